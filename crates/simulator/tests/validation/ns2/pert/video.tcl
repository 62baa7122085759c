# Live videos beside file transfers and web users: ns video.tcl pert|cubic|reno RTT_MS N SECONDS ORDER SEED
# The scenario is experiments/pert/video.toml. ORDER says who comes first of packets that reach a link
# at the same moment: clock (what ns-2 does), waited (those that waited for the link before), fresh
# (the others), or any (each sender waits up to 10 ns).
remove-all-packet-headers
add-packet-header IP TCP Flags
lassign $argv cc rtt n dur order seed
ns-random [expr 7919*$seed]
set ns [new Simulator]
$ns use-scheduler Heap
$ns rtproto Manual                 ;# a host's only way is its router; ns-2's own routing takes seconds for 700 hosts
Agent/TCP set packetSize_ 960      ;# + 40 bytes of headers
Agent/TCP set window_ 100000
if {$order eq "any"} {Agent/TCP set overhead_ 1e-8}
DelayLink/Ordered set shift_ [dict get {clock 0 any 0 waited -1e-9 fresh 1e-9} $order]
rename new create
proc new {class args} { create [expr {$class eq "DelayLink" ? "DelayLink/Ordered" : $class}] {*}$args }
set rng [new RNG]; $rng seed [expr 104729+7919*$seed]
proc u {a b} { global rng; return [expr $a+($b-$a)*[$rng uniform 0 1]] }
proc pareto {mean shape} {         ;# cut at 100 means, as ontempo's
  set x [expr $mean*($shape-1)/$shape*pow(1-[u 0 1],-1.0/$shape)]
  return [expr $x>100*$mean ? 100*$mean : $x]
}
proc route {node args} { [$node get-module Manual] add-route-to-adj-node {*}$args }
set l [$ns node]; set r [$ns node]
$ns duplex-link $l $r 25Mb [expr 0.3*$rtt]ms DropTail
$ns queue-limit $l $r 150; $ns queue-limit $r $l 1000000
route $l -default $r; route $r -default $l
set q [$ns monitor-queue $l $r [open /dev/null w] 1e9]
$q set-pkts-integrator [new Integrator]
proc pair {variant} {
  global ns l r rtt
  set a [$ns node]; set b [$ns node]; set d [expr 0.1*$rtt]ms
  $ns duplex-link $a $l 10Mb $d DropTail; $ns queue-limit $a $l 1000000
  $ns duplex-link $r $b 10Mb $d DropTail; $ns queue-limit $r $b 1000000
  route $a -default $l; route $b -default $r; route $l $a; route $r $b
  set t [new Agent/TCP/$variant]
  if {$variant eq "Linux"} {$t select_ca cubic}
  set k [new Agent/TCPSink/Sack1]
  $ns attach-agent $a $t; $ns attach-agent $b $k; $ns connect $t $k
  return [list $t $k]
}
set variant [dict get {pert Sack1/Pert cubic Linux reno Sack1} $cc]
set interval [expr 8000.0/300000]
for {set i 0} {$i<$n} {incr i} {
  set at [u 0 20]
  lassign [pair $variant] tv($i) kv($i)
  set app($i) [new Application/Playout]; $app($i) live $at $interval; $app($i) attach-agent $kv($i)
  set c [new Application/Traffic/CBR]; $c set packetSize_ 960; $c set interval_ $interval; $c set random_ 0
  $c attach-agent $tv($i); $ns at $at "$c start"
}
for {set i 0} {$i<$n} {incr i} {
  lassign [pair Sack1] tf($i) kf($i)
  set f [new Application/FTP]; $f attach-agent $tf($i); $ns at [u 0 20] "$f start"
}
# A web user has one connection: thinks, fetches the objects of a page one after the other.
proc page {i} { global left; set left($i) [expr max(1,round([pareto 1.7 2.43]))]; object $i }
proc object {i} { global tw left; incr left($i) -1; $tw($i) advanceby [expr max(1,int(ceil([pareto 12 1.2])))] }
proc fetched {i} { global left ns; if {$left($i)>0} {object $i} else {$ns at [expr [$ns now]+[pareto 5.5 1.4]] "page $i"} }
Agent/TCP instproc done {} { global user ns; if {[info exists user($self)]} {$ns at [$ns now] "fetched $user($self)"} }
for {set i 0} {$i<300} {incr i} {
  lassign [pair Sack1] tw($i) kw($i); set user($tw($i)) $i
  $ns at [expr [u 0 20]+[pareto 5.5 1.4]] "page $i"
}
proc total {agents what} { global $agents; set sum 0; foreach {i t} [array get $agents] {incr sum [$t set $what]}; return $sum }
$ns at $dur {
  set packets 0; array set ok {0 0 1 0 2 0}; array set share {0 0 1 0 2 0}
  for {set i 0} {$i<$n} {incr i} {
    set shares [lassign [$app($i) report] got]; incr packets $got
    for {set j 0} {$j<3} {incr j} {
      set share($j) [expr $share($j)+[lindex $shares $j]/$n]
      if {[lindex $shares $j]<1e-4} {set ok($j) [expr $ok($j)+1.0/$n]}
    }
  }
  puts [format "video kbps %.1f success %.3f %.3f %.3f late %.5f %.5f %.5f timeouts %.1f sent_again %.4f" \
    [expr $packets*8.0/$n/($dur-10)] $ok(0) $ok(1) $ok(2) $share(0) $share(1) $share(2) \
    [expr 1.0*[total tv nrexmit_]/$n] [expr 1.0*[total tv nrexmitpack_]/[total tv ndatapack_]]]
  puts [format "others ftp_kbps %.1f ftp_sent_again %.4f web_mbps %.2f drops %.4f queue %.1f" \
    [expr [total tf ack_]*8.0/$n/$dur] [expr 1.0*[total tf nrexmitpack_]/[total tf ndatapack_]] [expr [total tw ack_]*8e-3/$dur] \
    [expr 1.0*[$q set pdrops_]/[$q set parrivals_]] [expr [[$q get-pkts-integrator] set sum_]/$dur]]
  if {$cc eq "pert"} {
    array set sum {0 0 1 0 2 0 3 0}
    for {set i 0} {$i<$n} {incr i} {set j 0; foreach v [$tv($i) pert] {set sum($j) [expr $sum($j)+1.0*$v/$n]; incr j}}
    puts [format "pert early %.0f alpha %.2f curq_ms %.1f maxq_ms %.1f" $sum(0) $sum(1) [expr 1000*$sum(2)] [expr 1000*$sum(3)]]
  }
  exit 0
}
$ns run
