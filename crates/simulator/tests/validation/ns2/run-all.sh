#!/bin/sh
# Prints results.txt: the reference grid on ns-2 2.35 (apt-get install ns2). About fifteen minutes.
cd "$(dirname "$0")" || exit 1
cat <<'HEAD'
# ns-2 2.35 (Debian package ns2), as run-all.sh prints it: after `##` the script beside this file
# and its arguments, then what `ns SCRIPT ARGUMENTS` printed. Packets are 1000 bytes on the wire
# (1400 in spacing.tcl); queues count packets.
HEAD
one() { printf '## %s\n' "$*"; ns "$@" | grep -v "^cmd "; }
for v in Sack1 Newreno cubic; do for b in 25 50 100; do one single.tcl $v Sack1 10 18 $b 200; done; done
one single.tcl Sack1 Sack1/DelAck 10 18 50 200
one single.tcl Sack1 Sack1 100 38 400 100
one single.tcl cubic Sack1 100 38 400 100
one two.tcl Sack1 Sack1 10 18 38 50 600
one two.tcl Sack1 Sack1 10 18 18 50 600
one two.tcl cubic Sack1 50 28 28 375 300
one two.tcl cubic cubic 50 28 58 375 300
for s in 1 2 3 4 5 6 7 8 9 10; do one many.tcl Sack1 Sack1 25 25 150 DropTail 200 $s; done
for s in 1 2 3 4 5; do one many.tcl Sack1 Sack1 5 25 150 DropTail 200 $s; one many.tcl Sack1 Sack1 100 25 150 DropTail 200 $s; one many.tcl Sack1 Sack1/DelAck 25 25 150 DropTail 200 $s; one many.tcl Sack1 Sack1 10 10 100 RED 200 $s; one many.tcl cubic Sack1 25 25 150 DropTail 200 $s; done
for k in 1 2 4 8 16; do for us in 112 150 200 300 500 800 1000 1150 1500 2000 3000 5000; do one spacing.tcl $k $us 0 20 50; done; done
for w in 20 800; do for us in 112 200 500 800 1000 1050 1150 1500 2000 3000 5000; do one spacing.tcl 16 $us 16 $w 100; done; done
for v in Newreno cubic; do for b in 25 50 100; do one steady.tcl $v Sack1 10 18 $b 20 220; done; done
one steady.tcl Sack1 Sack1 100 38 400 100 1100
one steady.tcl cubic Sack1 100 38 400 100 700
for s in 0.17 0.31 0.48 0.63 0.79 0.94 1.11 1.27 1.42 1.58; do
  one two.tcl Sack1 Sack1 10 18 38 50 600 $s; one two.tcl Sack1 Sack1 10 18 18 50 600 $s
  one two.tcl cubic Sack1 50 28 28 375 300 $s; one two.tcl cubic cubic 50 28 58 375 300 $s
done
for d in 38.03 38.07 38.11 38.15 38.19 38.23 38.27 38.31 38.35 38.39; do one two.tcl Sack1 Sack1 10 18 $d 50 600; done
for d in 58.01 58.02 58.03 58.04 58.05 58.06 58.07; do one two.tcl cubic cubic 50 28 $d 375 300; done
for w in 20 800; do for us in 500 800 1000 1050 1150 1500 2000 3000 5000; do for s in 1 2 3 4 5; do one spacing.tcl 16 $us 16 $w 100 $s; done; done; done
for d in 40.000 40.006 40.012 40.018 40.024 40.030; do one spacing.tcl 16 1050 16 20 100 7 $d; done
for a in "2000 16 800" "5000 16 800" "1500 16 20" "800 16 20"; do
  for d in 40.000 40.006 40.012 40.018 40.024 40.030; do one spacing.tcl 16 $a 100 7 $d; done
done
one switched.tcl LimTransmitFix_ 1 Sack1 Sack1 100 38 400 100
for v in Newreno cubic; do for b in 25 50 100; do one switched.tcl ssthresh_ 50 $v Sack1 10 18 $b 200; done; done
one switched.tcl ssthresh_ 900 cubic Sack1 100 38 400 100
for s in 0.2 0.17 0.31 0.48 0.63 0.79 0.94 1.11 1.27 1.42 1.58; do
  one two_switched.tcl 100 cubic Sack1 50 28 28 375 300 $s; one two_switched.tcl 100 cubic cubic 50 28 58 375 300 $s
done
for d in 58.01 58.02 58.03 58.04 58.05 58.06 58.07; do one two_switched.tcl 100 cubic cubic 50 28 $d 375 300; done
for s in 1 2 3 4 5; do one many_switched.tcl 8 cubic Sack1 25 25 150 DropTail 200 $s; done
for a in "2000 16 800" "5000 16 800" "1500 16 20"; do
  for s in 1 2 3 4 5 7; do one spacing_apart.tcl 16 $a 100 $s; done
done
one starts.tcl
