"""The claims of section IV, in the order of the figures."""

from ontempo.lab.claims import Conclusion, Paper

from .declared import READINGS
from .figures import ack_path, emulated, fig6, fig7, fig8, fig9, fig10, fig11, fig12

PAPER = Paper(
    name="qosockets",
    title="Applications with and without reservations",
    about="A paper on a socket interface with quality of service: a video tool over UDP and image"
    " transfers over TCP cross a slow link beside other traffic, with and without reservations of"
    " integrated services. Section IV on its testbed, simulated and with real packets.",
    claims=[
        *(figure.CLAIM for figure in (fig6, fig7, fig8, fig9)),
        fig9.UNRESERVED,
        *(figure.CLAIM for figure in (fig10, fig11, fig12, ack_path)),
        *emulated.CLAIMS,
    ],
    readings=READINGS,
    conclusions=[
        Conclusion(
            "UDP and TCP applications gain from reservations, most of all under overload.",
            [
                "qosockets/fig6",
                "qosockets/fig7",
                "qosockets/fig8",
                "qosockets/fig9",
                "qosockets/fig10",
                "qosockets/fig11",
                "qosockets/fig12",
            ],
            "Yes in direction: reserved flows lose next to nothing, and wait less. The published"
            " amounts are mostly others, since the testbed's rates cannot be had from its text.",
        ),
        Conclusion(
            "TCP needs a reservation for its acknowledgements, too.",
            ["qosockets/ack-path"],
            "Not shown: with the way back reserved images get no more.",
        ),
        Conclusion(
            "Sockets map what applications ask for to reservations, and cost less than 1 %.",
            ["qosockets/coercion", "qosockets/overhead", "qosockets/violation"],
            "Needs real packets: see the rows of the emulation.",
        ),
    ],
)
