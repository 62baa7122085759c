# K senders of 1400-byte UDP packets at one spacing, with M TCPs of 1400-byte packets: ns spacing.tcl K SPACING_US M WINDOW SECONDS [SEED [DELAY_MS]]
source lib.tcl
lassign $argv k us m win dur seed delay
if {$seed eq ""} {set seed 7}
if {$delay eq ""} {set delay 40}
Agent/UDP set packetSize_ 2000
set mid [$ns node]; set sink [$ns node]
$ns duplex-link $mid $sink 155Mb ${delay}ms DropTail; $ns queue-limit $mid $sink 10
set rng [new RNG]; $rng seed $seed
for {set i 0} {$i<$k} {incr i} {
  set a [$ns node]; $ns duplex-link $a $mid 100Mb 2ms DropTail; $ns queue-limit $a $mid 100000
  set u($i) [new Agent/UDP]; set z($i) [new Agent/LossMonitor]; $ns attach-agent $a $u($i); $ns attach-agent $sink $z($i); $ns connect $u($i) $z($i)
  set c($i) [new Application/Traffic/CBR]; $c($i) set packetSize_ 1400; $c($i) set interval_ [expr $us/1e6]; $c($i) attach-agent $u($i)
  $ns at [$rng uniform 0 0.1] "$c($i) start"
}
for {set i 0} {$i<$m} {incr i} {
  set a [$ns node]; $ns duplex-link $a $mid 100Mb [expr {[info exists apart] ? 2+0.0045*($i+0.5) : 2}]ms DropTail; $ns queue-limit $a $mid 100000
  lassign [pair $a $sink Sack1 Sack1] t($i) s($i); $t($i) set packetSize_ 1360; $t($i) set window_ $win
  set f($i) [new Application/FTP]; $f($i) attach-agent $t($i); $ns at [$rng uniform 0 0.1] "$f($i) start"
}
set q [watch $mid $sink]
$ns at $dur {
  set b 0; set lost 0; set rx 0; for {set i 0} {$i<$k} {incr i} { incr b [$z($i) set bytes_]; incr lost [$z($i) set nlost_]; incr rx [$z($i) set npkts_] }
  set tcp 0; for {set i 0} {$i<$m} {incr i} { incr tcp [$t($i) set ack_] }
  set n [expr $m>0 ? $m : 1]
  puts [format "spacing_us %s udp_received_mbps %.4f udp_loss_pct %.3f tcp_mbps %.4f" $us [expr $b*8.0/$dur/1e6/$k] [expr 100.0*$lost/($lost+$rx)] [expr $tcp*11200.0/$dur/1e6/$n]]
  report_queue $q $dur; exit 0 }
$ns run
