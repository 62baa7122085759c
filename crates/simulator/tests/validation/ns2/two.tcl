# Two long flows of different RTT: ns two.tcl V1 V2 MBPS ONEWAY1_MS ONEWAY2_MS BUFFER SECONDS [START2]
# START2: when the second flow starts, in seconds; 0.2 where not given
source lib.tcl
lassign $argv v1 v2 bw d1 d2 buf dur start2
if {$start2 eq ""} {set start2 0.2}
set start1 0.1
set l [$ns node]; set r [$ns node]
$ns duplex-link $l $r ${bw}Mb 1ms DropTail; $ns queue-limit $l $r $buf
set q [watch $l $r]
foreach i {1 2} {
  set a [$ns node]; set b [$ns node]
  $ns duplex-link $a $l 1000Mb [set d$i]ms DropTail; $ns duplex-link $r $b 1000Mb 1ms DropTail; $ns queue-limit $a $l 100000
  lassign [pair $a $b [set v$i] Sack1] t$i k$i
  set f$i [new Application/FTP]; [set f$i] attach-agent [set t$i]; begin [set f$i] [set t$i] [set v$i] [set start$i]
}
$ns at $dur {report_tcp flow1 $t1 $dur; report_tcp flow2 $t2 $dur; report_queue $q $dur; exit 0}
$ns run
