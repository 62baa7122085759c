"""The claims of the paper on inter-packet spacing, in the order of its figures."""

from ontempo.lab.claims import Conclusion, Paper

from .declared import READINGS
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
    readings=READINGS,
    conclusions=[
        Conclusion(
            "A receiver gets more, up to a point, where senders leave time between packets.",
            ["psp/fig8-9", "psp/fig10-11", "psp/headline"],
            "Losses fall as published, from 90 % to none; but the received rate does not rise with"
            " spacing: a full link carries as much with losses as without.",
        ),
        Conclusion(
            "Spaced senders leave TCP its share of the link.",
            ["psp/fig12-13", "psp/fig14-15", "psp/aqm"],
            "Yes: TCP starves beside unspaced senders, and beside spaced ones single TCPs have the"
            " published share. Beside adaptive ones it has its half; not so in the first 20 s where"
            " they decide on fresh feedback.",
        ),
        Conclusion(
            "Adaptive spacing finds the rate that fits; damping makes it smoother and faster.",
            ["psp/fig5", "psp/fig16-17", "psp/fig18", "psp/fig19"],
            "Senders give way to TCP, and damping gains 6 to 10 %. With fresh feedback damped"
            " senders swing little, and 16 of them keep 96 % of the throughput; where they decide"
            " at each report neither is so. Two senders do not get equal rates under any reading.",
        ),
    ],
)
