# The start times that spacing.tcl draws, in seconds, for each seed in the order in which it draws them
foreach seed {1 2 3 4 5 7} {
  set rng [new RNG]; $rng seed $seed
  for {set i 0} {$i<32} {incr i} {puts [format "seed %d start %d seconds %.9f" $seed $i [$rng uniform 0 0.1]]}
}
