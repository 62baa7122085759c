# two.tcl, in which slow start ends at SSTHRESH packets: ns two_switched.tcl SSTHRESH V1 V2 MBPS ONEWAY1_MS ONEWAY2_MS BUFFER SECONDS [START2]
set argv [lassign $argv ssthresh]
source two.tcl
