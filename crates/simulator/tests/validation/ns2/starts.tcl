# The start times that spacing.tcl draws, in seconds, in the order in which it draws them
set rng [new RNG]; $rng seed 7
for {set i 0} {$i<32} {incr i} {puts [format "start %d seconds %.9f" $i [$rng uniform 0 0.1]]}
