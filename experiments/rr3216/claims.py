"""The claims of sections 3 to 5, in the order of the figures, and what goes beyond them."""

from ontempo.lab.claims import Conclusion, Paper

from .declared import READINGS
from .figures import (
    beyond,
    buffers,
    confidence,
    emulated,
    fig3,
    fig6,
    fig7,
    fig8,
    fig9,
    fig10,
    fig11,
    fig12,
    fig13,
    fig14,
    laws,
    ranges,
)

PAPER = Paper(
    name="rr3216",
    title="Out-of-sequence processing",
    about="A report of 1997 on application data units (ADUs) that are processed as they come"
    " rather than in order: what is gained in total time, buffers and jitter, by a model and by"
    " simulation.",
    claims=[
        fig3.CLAIM,
        emulated.LEFT,
        emulated.RIGHT,
        emulated.RIGHT_MODERN,
        fig6.LEFT,
        fig6.RIGHT,
        fig7.LEFT,
        fig7.RIGHT,
        fig8.CLAIM,
        fig9.LEFT,
        fig9.RIGHT,
        fig10.LEFT,
        fig10.RIGHT,
        fig11.CLAIM,
        fig12.CLAIM,
        fig13.CLAIM,
        emulated.FIG13,
        emulated.FIG13_MODERN,
        fig14.CLAIM,
        emulated.FIG14,
        emulated.FIG14_MODERN,
        buffers.BUFFERS,
        buffers.JITTER,
        laws.GILBERT,
        laws.DELAY,
        confidence.CLAIM,
        ranges.CLAIM,
        beyond.PARTIAL,
        beyond.STREAM,
    ],
    readings=READINGS,
    conclusions=[
        Conclusion(
            "The total time gains at most about 30 % at usual loss rates, more at very high ones.",
            ["rr3216/fig6-right", "rr3216/fig12"],
            "",
        ),
        Conclusion(
            "It gains only in a narrow range of processing times, where Ta is less than R.",
            ["rr3216/fig3-4", "rr3216/fig6-left", "rr3216/fig7-left", "rr3216/fig7-right"],
            "",
        ),
        Conclusion(
            "The range widens with the delay alone: it pays where D is ten times Ta or more.",
            ["rr3216/fig10-left", "rr3216/fig10-right", "rr3216/fig11", "rr3216/ranges"],
            "",
        ),
        Conclusion(
            "Window, acknowledgements and rate control matter less.",
            ["rr3216/fig8", "rr3216/fig9-left", "rr3216/fig9-right"],
            "",
        ),
        Conclusion(
            "Receive buffers shrink by around 70 %, jitter by 30 %, for all applications.",
            ["rr3216/buffers", "rr3216/jitter", "rr3216/fig13", "rr3216/fig14"],
            "",
        ),
        Conclusion(
            "The results depend neither on bursts of losses nor on the law of the delay.",
            ["rr3216/gilbert", "rr3216/delay-law"],
            "",
        ),
    ],
)
