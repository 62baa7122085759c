"""Why a figure differs, where that was looked into; the evidence: docs/experiments-pert.md."""

from ontempo.lab.claims import Cause

READINGS = "python -m experiments.pert.readings"

SMALL_WINDOWS = Cause(
    "at a round trip of 50 ms PERT's early responses cost timeouts. A video needs a window of only"
    " 4 packets there, and the responses often leave fewer, too few for a fast retransmission: with"
    " 26 videos one over PERT waits for 185 timeouts in 640 s, one over RENO for 106, one over"
    " CUBIC for 52. At 100 ms PERT is the best of the three from 3 s on.",
    f"{READINGS} trips",
)

AT_THE_START = Cause(
    "many streams over PERT fall behind in their first minute. Their first losses come while few"
    " early responses are counted, so that alpha falls to 1 or 2; after that it grows by 0.1 in"
    " five round trips. With 22 and 24 videos at 100 ms and 3 s, no stream over PERT has a late"
    " packet after its first minute (of RENO's, 35 of 92 have). At 50 ms streams wait for timeouts"
    " all the time.",
    "docs/experiments-pert.md",
)

SAME_T_OTHER_LOAD = Cause(
    " A range of T/μ is not the same load for each controller, either: where videos over PERT get"
    " less than their rate, transfers get more, so that runs with 31 and 33 videos at 50 ms are in"
    " this range over PERT only.",
    f"{READINGS} trips",
)

HELD_ACKS = (
    "an ACK that its timer sends was held for twice the mean time between packets, and the round"
    " trip contains that wait. PERT takes it for queueing, responds, sends less, and the next wait"
    " is longer: beside 5 transfers over RENO the paced flow ends at 27 and 105 kbit/s (two seeds;"
    " the one without coalescing at 515 and 314), where ACKs wait up to 0.5 s. Pacing does not"
    " shorten that. With both receivers immediate the two means are within 2 %."
)

CORRECTED_AWAY = (
    "the correction takes the wait of held ACKs away too, most of it (5 cross flows: from +2 % and"
    " +28 % to +1 % and +5 %, two seeds). What is left is of flows that hardly send: 37 to 70"
    " kbit/s, a few samples a second. With a buffer of 15 packets instead of 150 the two means are"
    " within 2 %."
)

NEARLY_ALWAYS = (
    "both flows keep the queue moving, and smoothed round trips that are higher by 3 to 8 ms on"
    " average cross now and then."
)

PACED_LOSE = (
    "three things. Pacing by itself costs: with immediate ACKs for all (figure 25) paced flows get"
    " 3.8 Mbit/s beside 7.3 and 7.4 and lose 3.4 % of their packets beside 2.0 %, as Aggarwal et"
    " al. (2000), the thesis' source, found of paced flows among bursty ones. Pacing with"
    " coalescing times out: four packets spread over a round trip, then one ACK, come to 1.75"
    " round trips, beyond the least timeout of 200 ms; of a paced flow's 92 retransmissions only"
    " 34 follow a loss. And PERT takes the wait of held ACKs for queueing."
)

PACED_STREAMS = (
    "a video sends a packet each 27 ms, so an ACK for four comes 80 ms late, or 53 ms by its timer,"
    " and PERT takes that for queueing. With 0.4 bandwidth-delay products a video has 165 timeouts"
    " in 240 s, with neither 12; with a least timeout of 1 s it has 9, and the worst stream's late"
    " packets fall from 0.90 to 0.41. With 1.0 products a video gets 159 kbit/s, with coalescing"
    " alone 228, with pacing alone 269, with neither 301. The link is full either way, so that no"
    " throughput is left to gain."
)

QUEUE_AT_THRESHOLD = (
    "20 flows without a loss hold the queueing delay at 11 ms, just beyond T_max of 10 ms, where"
    " PERT begins to respond in earnest. A quarter of RENO's queue in a buffer of 150 packets would"
    " be 7 ms, where it responds with a probability of 0.02."
)
