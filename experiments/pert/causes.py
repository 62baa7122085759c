"""Why a figure differs, where that was looked into; the evidence: docs/experiments-pert.md."""

SMALL_WINDOWS = (
    "at a round trip of 50 ms PERT's early responses cost timeouts. A video needs a window of only"
    " 4 packets there, and the responses often leave fewer, too few for a fast retransmission: with"
    " 26 videos one over PERT waits for 185 timeouts in 640 s, one over RENO for 106, one over"
    " CUBIC for 52. At 100 ms PERT is the best of the three from 3 s on."
)

AT_THE_START = (
    "many streams over PERT fall behind in their first minute. Their first losses come while few"
    " early responses are counted, so that alpha falls to 1 or 2; after that it grows by 0.1 in"
    " five round trips. With 22 and 24 videos at 100 ms and 3 s, no stream over PERT has a late"
    " packet after its first minute (of RENO's, 35 of 92 have). At 50 ms streams wait for timeouts"
    " all the time."
)

SAME_T_OTHER_LOAD = (
    " A range of T/μ is not the same load for each controller, either: where videos over PERT get"
    " less than their rate, transfers get more, so that runs with 31 and 33 videos at 50 ms are in"
    " this range over PERT only."
)

STARVED = ""

OVERCORRECTED = ""

PACED_LOSE = ""

PACED_STREAMS = ""

ALL_COMPETE = ""
