"""A scenario that is small enough to be run for a test."""

import ontempo as ot

TEXT = """\
title = "three videos beside two file transfers"
duration = "30 s"
seed = 4

[topology]
kind = "dumbbell"
access = { rate = "10 Mbit/s", delay = "5 ms" }

[topology.bottleneck]
rate = "3 Mbit/s"
delay = "15 ms"
queue = { kind = "drop-tail", limit = "30 packets" }

[flows.video]
count = 3
application = { kind = "cbr", rate = "300 kbit/s" }
playout = ["1 s", "5 s"]
transport = { kind = "tcp", congestion = "pert", packet = "1000 B" }

[flows.ftp]
count = 2
application = { kind = "ftp" }
transport = { kind = "tcp", congestion = "reno", packet = "1000 B" }

[measure]
from = "5 s"
events = true
"""

LONG = 'duration="10000000 s"'
"""An override that makes a run longer than any test may take."""


def scenario(*overrides: str) -> ot.Scenario:
    return ot.parse(TEXT, "small.toml", overrides)
