"""The claims of section IV, in the order of the figures."""

from ontempo.lab.claims import Paper

from .figures import ack_path, emulated, fig6, fig7, fig8, fig9, fig10, fig11, fig12

PAPER = Paper(
    name="qosockets",
    title="Applications with and without reservations",
    about="A paper on a socket interface with quality of service: a video tool over UDP and image"
    " transfers over TCP cross a slow link beside other traffic, with and without reservations of"
    " integrated services. Section IV on its testbed, simulated and with real packets.",
    claims=[
        *(figure.CLAIM for figure in (fig6, fig7, fig8, fig9, fig10, fig11, fig12, ack_path)),
        *emulated.CLAIMS,
    ],
)
