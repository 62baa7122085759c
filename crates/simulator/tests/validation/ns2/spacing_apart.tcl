# spacing.tcl, in which the TCPs' access delays lie 4.5 us apart, 72 us in all, which is one packet's sending time:
# ns spacing_apart.tcl K SPACING_US M WINDOW SECONDS [SEED]
set apart 1
source spacing.tcl
