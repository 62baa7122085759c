#!/bin/sh
# Prints results.txt: run-all.sh NS, the ns-2 of README.md. About an hour of processor time.
cd "$(dirname "$0")" || exit 1
cat <<'HEAD'
# ns-2 2.35 with the agent beside this file, as run-all.sh prints it: after `##` the script and its
# arguments (controller, round trip in ms, videos and as many file transfers, seconds, who comes
# first of packets that meet, seed), then what it printed.
HEAD
one() { printf '## video.tcl %s\n' "$*"; "$NS" video.tcl "$@" | grep -v "^cmd "; }
NS=$1
for seed in 1 2 3; do
  for cell in "50 20" "50 26" "50 29" "50 33" "100 26" "100 33" "150 26" "150 33"; do
    for order in clock any waited; do one pert $cell 400 $order $seed; done
    for cc in cubic reno; do one $cc $cell 400 clock $seed; done
  done
done
