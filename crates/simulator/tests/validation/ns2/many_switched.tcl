# many.tcl, in which slow start ends at SSTHRESH packets: ns many_switched.tcl SSTHRESH VARIANT SINK N MBPS BUFFER QUEUE SECONDS SEED
set argv [lassign $argv ssthresh]
source many.tcl
