"""The thesis' claims, by chapter."""

from ontempo.lab.claims import Paper

from .figures import (
    alg1,
    emulated,
    fig1,
    fig2,
    fig4,
    fig5,
    fig6,
    fig7,
    fig8,
    fig9,
    fig10,
    fig11,
    fig12,
    fig14,
    fig16,
    fig17,
    fig18,
    fig20,
    fig21,
    fig25,
    fig26,
    fig27,
    fig28,
    fig29,
    fig31,
    fig32,
    homogeneous,
    scale,
    table2,
)

CHAPTER_II = (fig1, fig2, scale, homogeneous)
CHAPTER_III = (fig4, fig5, fig6, fig7, fig8, fig9, fig10, fig11, fig12, fig14)
CHAPTER_IV = (alg1, fig16, fig17, fig18, fig20, fig21, fig25, fig26, fig27, fig28, fig29)
CHAPTER_V = (fig31, fig32)

EMULATED = (*emulated.CLAIMS, table2.CLAIM, fig14.EMULATED)
"""Claims checked with real packets."""

PAPER = Paper(
    name="pert",
    title="Video over PERT",
    about="A thesis on streaming live video over PERT, a TCP congestion controller that responds"
    " to delay before packets are lost, beside RENO and CUBIC, and on coalesced ACKs, pacing and"
    " the round trip that a sender then measures. Simulation, and some of it with real packets.",
    claims=[
        *(figure.CLAIM for figure in (*CHAPTER_II, *CHAPTER_III, *CHAPTER_IV, *CHAPTER_V)),
        *EMULATED,
    ],
)
