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
            "Yes for the whole run: 0.30 at 10 % loss (reading “run”). The mean of an ADU's own"
            " total time, which the paper defines, gains 0.5. At 60 % loss the text says 90 %, the"
            " conclusions 50 %; we find 0.74 (ADU), 0.68 (run), 0.59 (run and implicit loss), 0.93"
            " (last sending).",
        ),
        Conclusion(
            "It gains only in a narrow range of processing times, where Ta is less than R.",
            ["rr3216/fig3-4", "rr3216/fig6-left", "rr3216/fig7-left", "rr3216/fig7-right"],
            "Nothing is gained at long processing times, and the gain falls from Ta = R on, as"
            " published. At very short ones an ADU gains half, the run nothing, as in the paper's"
            " figure 3.",
        ),
        Conclusion(
            "The range widens with the delay alone: it pays where D is ten times Ta or more.",
            ["rr3216/fig10-left", "rr3216/fig10-right", "rr3216/fig11", "rr3216/ranges"],
            "Yes for the whole run without rate control: one curve over D/Ta, nothing below 5, the"
            " maximum above 10, and with implicit losses the published ranges. With the captions'"
            " R = 10 ms the curves do not coincide, and by arithmetic cannot.",
        ),
        Conclusion(
            "Window, acknowledgements and rate control matter less.",
            ["rr3216/fig8", "rr3216/fig9-left", "rr3216/fig9-right"],
            "The window acts as published. Rare acknowledgements raise the gain where they reveal"
            " losses, and leave it alone where losses are implicit. Of rate control the paper says"
            " both that it raises and that it lowers the gain: it lowers the run's, and an ADU's"
            " hardly changes.",
        ),
        Conclusion(
            "Receive buffers shrink by around 70 %, jitter by 30 %, for all applications.",
            ["rr3216/buffers", "rr3216/jitter", "rr3216/fig13", "rr3216/fig14"],
            "Yes: 75 % fewer buffers, and jitter lower by 64 to 94 %. The published run is one of"
            " nine in ten of our single runs but for its 40 % (39 at most; more where arrivals"
            " alone are acknowledged).",
        ),
        Conclusion(
            "The results depend neither on bursts of losses nor on the law of the delay.",
            ["rr3216/gilbert", "rr3216/delay-law"],
            "Not so: bursts of four losses and more lessen the gain under every reading, and"
            " delays whose law has a long tail change it, since ADUs keep their order. The paper's"
            " own runs had no bursts.",
        ),
    ],
)
