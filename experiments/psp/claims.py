"""The claims of the paper on inter-packet spacing, in the order of its figures."""

from ontempo.lab.claims import Paper

from .figures import adaptive, alone, emulated, live, motive, with_tcp

PAPER = Paper(
    name="psp",
    title="Inter-packet spacing",
    about="A paper on spacing UDP packets with feedback (PSP), for media that is to do well beside"
    " TCP and under active queue management. Section 3, simulation, and its motive.",
    claims=[
        live.FIG1_2,
        adaptive.FIG5,
        alone.FIG7,
        alone.FIG8_9,
        with_tcp.FIG10_11,
        with_tcp.FIG12_13,
        with_tcp.FIG14_15,
        with_tcp.ARRIVALS,
        adaptive.FIG16_17,
        adaptive.FIG18,
        adaptive.FIG19,
        motive.AQM,
        motive.HEADLINE,
        live.HEADLINE,
        emulated.SPACING,
    ],
)
