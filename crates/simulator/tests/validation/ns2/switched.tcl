# One long flow, with a variable of ns-2's sender set: ns switched.tcl NAME VALUE VARIANT SINK MBPS ONEWAY_MS BUFFER SECONDS
source lib.tcl
lassign $argv name value v sink bw d buf dur
set a [$ns node]; set l [$ns node]; set r [$ns node]; set b [$ns node]
$ns duplex-link $a $l 1000Mb 1ms DropTail; $ns duplex-link $l $r ${bw}Mb ${d}ms DropTail; $ns duplex-link $r $b 1000Mb 1ms DropTail
$ns queue-limit $a $l 100000; $ns queue-limit $l $r $buf
lassign [pair $a $b $v $sink] t k
# The sender sets ssthresh_ as it begins; Agent/TCP/Linux keeps another one.
if {$v eq "cubic" && $name eq "ssthresh_"} {$t set_ca_param cubic initial_ssthresh $value} else {$ns at 0.0001 "\$t set $name $value"}
set f [new Application/FTP]; $f attach-agent $t
set q [watch $l $r]
$ns at 0 "$f start"
$ns at $dur {report_tcp flow $t $dur; report_queue $q $dur; exit 0}
$ns run
