"""Causes of differing figures, with their experiments; the tables: docs/experiments-rr3216.md."""

from ontempo.lab.claims import Cause

from .model import blocking_gain

READINGS = "python -m experiments.rr3216.readings"

SMALL_TA = Cause(
    "the paper's argument is of the end of a run: the last ADU is done at the same time in both"
    " orders, as the figure shows. The ADUs behind the loss wait for it in order, and the mean"
    " total time of an ADU counts that. By the run's total time (reading “run”) G is below 0.05 at"
    " both ends. The paper's figures 6 to 12, too, have large gains at small Ta.",
    f"{READINGS} totals",
)

LEVEL = Cause(
    "two total times. Section 3.3 defines G by an ADU's; at figure 13 the paper computes it"
    " from the run's. Of the run's (reading “run”) we measure 0.28 to 0.30 for all Ta up to R: the"
    " published 30 %. In an ADU's mean it cannot be that little: a lost ADU arrives 374 ms after it"
    " was first sent, in which 37 others could be sent, of which one in ten is lost, so that nearly"
    " every ADU waits for some other, 160 ms on average beside a way of 120 ms.",
    f"{READINGS} totals",
)

RATE_RAISES = Cause(
    "section 4.1 and section 4.2.3 of the paper contradict each other. At Ta = 1 ms an ADU's G is"
    " smaller with R = 10 ms than with R = 0, at Ta from 10 to 15 ms larger: spacing helps where"
    " it keeps a backlog from building up out of sequence, and nowhere else. In the run's total"
    " time it lowers the gain under every reading.",
    f"{READINGS} totals",
)

RATE_LOWERS = Cause(
    "section 4.2.3 and section 4.1 of the paper contradict each other, and it depends on the"
    " total time. In the run's, rate control lowers the gain as section 4.2.3 has it: 0.38 with"
    " R = 0, 0.29 with 10 ms, 0.03 with 20 ms (Ta = 1 ms), since a slow sender's window hardly"
    " ever shuts. In an ADU's, spacing also takes the backlog away that ADUs wait in out of"
    " sequence, so that more is gained near Ta = R.",
    f"{READINGS} totals",
)

RARE_ACKS = Cause(
    "a loss is revealed by an acknowledgement, so that a lost ADU arrives 374 ms after its"
    " first sending with A = 2 and 500 ms with A = 16. In order all behind it wait as long (mean"
    " total time 311 and 436 ms), out of sequence hardly any do (152 and 163 ms): G rises. Where"
    " losses need no acknowledgement (reading “implicit loss”, section 3.1.3) it stays at 0.45 to"
    " 0.46 from A = 1 to 16.",
    f"{READINGS} acks",
)

WINDOW_PER_TRIP = Cause(
    "a window of 32 in a round trip of 1 s lets an ADU come each 31 ms. Where Ta is above that the"
    " application is the bottleneck in both orders, and the gain falls: 0.08 are left at 100 ms."
    " With implicit losses, which are known a few tens of milliseconds sooner, it is 0.03. The"
    " paper explains its value with a window of 10 ADUs and a recovery of one D instead of two.",
    f"{READINGS} window",
)

R_STAYS = Cause(
    "R stays at 10 ms (so says the caption) while D and Ta change, and with it the number of"
    " ADUs that are sent in a round trip: 2 with D = 10 ms, 100 with D = 500 ms, of which a"
    " window of 32 lets a third go. D, Ta and R alone make time here: where R is 0, or a tenth of"
    " D, a run at the same D/Ta is the same run on another scale, and all curves fall together"
    " within 0.03. By the run's total time with R = 0 and implicit losses every check of this"
    " figure and of the ranges holds.",
    f"{READINGS} ratio",
)

MODEL_HAS_R = Cause(
    "Gb at Ta above R is x / (x + n(1 - R/Ta)) with x = rtt/Ta. It depends on R/Ta, too; only"
    " with R = 0 is x all that counts, so that the formula contradicts the sentence that R does not"
    f" matter. At x = 20 and n = 10 it is {blocking_gain(10, 10, 200, 0):.2g} with R = 0, more with"
    " any other R.",
    f"{READINGS} model",
)

SLOWED_BY_LOSS = Cause(
    "retransmissions take their turns, so that new ADUs come every R/(1 - L): every 25 ms at a"
    " loss rate of 60 %. The gain is largest for Ta below that, 0.73 to 0.74 from 1 to 20 ms"
    " over twenty runs, and which of those is the very largest is chance.",
    f"{READINGS} loss",
)

CONTRADICTION = Cause(
    "the report contradicts itself: its text says 90 %, its conclusions 50 %. Over twenty runs it"
    " is 0.73 to 0.74 where Ta is at most 20 ms and 0.52 at 40 ms. By the run's total time with"
    " implicit losses it is 0.59; from an ADU's last sending 0.93. With a timer that backs off,"
    " which the paper's model does not have, it is 0.87 to 0.90: in order it is met ten times"
    " as often.",
    f"{READINGS} loss",
)

ONE_RUN = Cause(
    "the paper shows one run of 100 ADUs on a real stack, and no Ta, and its 40 % is of two rounded"
    " times. Single runs scatter: with Ta = 10 ms 90 % of 200 runs take 1.68 to 2.66 s in order and"
    " gain 0.10 to 0.39. Where arrivals alone are acknowledged (reading “arrivals”, as the appendix"
    " has it), a shut window stays shut longer: 1.77 to 3.41 s, and 0.14 to 0.52.",
    f"{READINGS} runs",
)

MEMORY = Cause(
    "the paper's runs have q = 1 - p, which makes the chain memoryless. Where losses come in"
    " bursts, the same number of ADUs is lost in fewer places: one round trip recovers a whole"
    " burst, order is broken more rarely, and the gain falls with the burst's length. Long bursts"
    " stop either order alike: retransmissions are lost, too.",
    f"{READINGS} bursts",
)

ORDER_KEPT = Cause(
    "an ADU never overtakes another (D_RESEQ of figure 1), so that a slow one holds up all"
    " behind it and they arrive together. With ADUs each 10 ms that makes the mean way 246 and"
    " 353 ms of an exponential and a hyper-exponential delay of 100, and fills the window. Where"
    " ADUs may overtake the laws are nearer to each other, within 0.09 at all four Ta and within"
    " 0.04 at 20 ms. A constant delay differs at Ta = R, where it is the only one that leaves no"
    " backlog.",
    f"{READINGS} laws",
)

FIVE_RUNS = Cause(
    "how the interval was made is not said, nor of what. Half of the interval in order, made with"
    " Student's quantile of 2.78 for five runs, is up to 6.2 % of the mean of an ADU's total time,"
    " of the run's up to 4.2 %. With 16,000 ADUs it is 2.5 %: a lost retransmission shuts the"
    " window and delays all that follow, so that 1,000 ADUs are far fewer independent samples.",
    f"{READINGS} confidence",
)

SMALL_STEPS = Cause(
    "chance: over forty runs the gain without rate control falls from 0.523 at Ta = 0.1 ms by"
    " steps of 0.003 to 0.007, less than what five runs can tell apart, and from 35 ms on it is"
    " 0.003 throughout. At 40 ms with a loss rate of 1 or 2 % nothing is gained at all, a tie.",
    f"{READINGS} steps",
)
