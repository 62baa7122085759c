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
                "qosockets/fig9-unreserved",
                "qosockets/fig10",
                "qosockets/fig11",
                "qosockets/fig12",
            ],
            "Yes in direction: reserved flows lose next to nothing, and wait less. At the sending"
            " rates of figure 6 alone C1 does not exceed the line, and nothing is lost there. With"
            " the 352 kbit/s that the published rates leave to others (reading “background”) the"
            " generators' losses and all delays are as published; the unreserved video's 47 % is"
            " not, and its jitter of 115 ms cannot be.",
        ),
        Conclusion(
            "TCP needs a reservation for its acknowledgements, too.",
            ["qosockets/ack-path"],
            "A conjecture without a number, not judged. Reserving the way back adds nothing here,"
            " but with one queue for all that is not reserved and traffic against the images.",
        ),
        Conclusion(
            "Sockets map what applications ask for to reservations, and cost less than 1 %.",
            ["qosockets/coercion", "qosockets/overhead", "qosockets/violation"],
            "Needs real packets: see the rows of the emulation.",
        ),
    ],
)
