# One long flow, counted from FROM on: ns steady.tcl VARIANT SINK MBPS ONEWAY_MS BUFFER FROM SECONDS
source lib.tcl
lassign $argv v sink bw d buf from dur
set a [$ns node]; set l [$ns node]; set r [$ns node]; set b [$ns node]
$ns duplex-link $a $l 1000Mb 1ms DropTail; $ns duplex-link $l $r ${bw}Mb ${d}ms DropTail; $ns duplex-link $r $b 1000Mb 1ms DropTail
$ns queue-limit $a $l 100000; $ns queue-limit $l $r $buf
lassign [pair $a $b $v $sink] t k
set f [new Application/FTP]; $f attach-agent $t
set q [watch $l $r]
proc counters {} {
  global t q
  list [$t set ack_] [$t set nrexmitpack_] [$t set nrexmit_] [$t set ncwndcuts_] [$q set pdrops_] [[$q get-pkts-integrator] set sum_]
}
$ns at 0 "$f start"
$ns at $from {set before [counters]}
$ns at $dur {
  foreach x [counters] y $before {lappend n [expr $x-$y]}
  lassign $n acked rex timeouts cuts drops waiting
  set span [expr $dur-$from]
  puts [format "flow acked %d goodput_mbps %.4f retransmitted %d timeouts %d cwnd_cuts %d" $acked [expr $acked*8000.0/$span/1e6] $rex $timeouts $cuts]
  puts [format "queue drops %d mean_packets %.3f" $drops [expr $waiting/$span]]
  exit 0 }
$ns run
