"""The claims of sections 3 to 5, in the order of the figures, and what goes beyond them."""

from ontempo.lab.claims import Paper

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
)
