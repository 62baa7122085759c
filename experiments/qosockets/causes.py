"""Why a figure differs, where that was looked into; the evidence: docs/experiments-qosockets.md."""

SENT_RATE = (
    "the video sends 614.4 kbit/s here, as its traffic profile says. The published flows received"
    " 530 to 570 with nothing else on the link and nothing lost: they sent less than their profile."
)

CAPACITY = (
    "the published rates do not fill the link: 250 + 2·410 kbit/s in C1 and 520 + 2·330 in C2 are"
    " 71 and 79 % of 1.5 Mbit/s, while up to half of the packets are lost. Here the link is full, so"
    " that what is lost is what exceeds it, headers counted: 14 % of everything in C1."
)

LOSS_ALONE = (
    "alone, the video offers 628 kbit/s to 1.5 Mbit/s. The paper does not say what took its packets."
)

QUEUE = "what waits before the slow link, and the paper does not give its limit, decides this delay."

SMOOTH = (
    "sources here keep their rhythm, and between two messages of one the queue hardly changes. The"
    " published one shared two workstations, hubs and a department's network."
)

LITTLE_LOAD = (
    "with windows of 8 kB three flows cannot fill the queue, and one generator beside the images"
    " leaves half of the link idle."
)

IMAGE_TIME = (
    "an image of 38 kB takes 208 ms of the idle link; a generator's message waits behind 8 kB of"
    " its own socket at most."
)

EMPTY_WAY_BACK = (
    "on the testbed nothing but ACKs and requests crosses the link against the images, 5 % of it,"
    " so that there is nothing to reserve against."
)
