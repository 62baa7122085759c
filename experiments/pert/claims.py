"""The thesis' claims, by chapter."""

from ontempo.lab.claims import Conclusion, Paper

from .declared import ON_REQUEST, PRIMARY
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
    readings=[PRIMARY],
    on_request=ON_REQUEST,
    conclusions=[
        Conclusion(
            "PERT outperforms RENO and CUBIC in delivering video where the rate is scarce.",
            ["pert/fig9", "pert/fig10", "pert/fig11", "pert/fig12"],
            "It depends on the samples of the round trip. Of single packets, PERT's streams do less"
            " well than CUBIC's, and not better than RENO's in every range; the likely causes are"
            " its small windows beside RENO, and ties where every stream succeeds. Of cumulative"
            " acknowledgements, retransmissions included, figure 12 is as published, and PERT is"
            " nowhere below the two in figures 9 and 10, but mostly cannot be told apart from"
            " them.",
        ),
        Conclusion(
            "A test with a real video confirms that PERT plays it with fewer interruptions.",
            ["pert/table2", "pert/fig14", "pert/fig14-emulated"],
            "PERT's window varies least, as published; the plays need real packets.",
        ),
        Conclusion(
            "Coalesced acknowledgements send data in trains, which overestimate the round trip.",
            ["pert/alg1-3", "pert/fig16", "pert/fig17", "pert/fig18"],
            "Yes: four packets an acknowledgement, trains, and a round trip longer by one train.",
        ),
        Conclusion(
            "Pacing, or a correction, gives the round trip of a sender without coalescing.",
            ["pert/fig20", "pert/fig21-24", "pert/fig31", "pert/fig32-34"],
            "Pacing does, alone on a link; with cross traffic the means are up to 8 % apart, as"
            " they are with the correction.",
        ),
        Conclusion(
            "Pacing lessens losses and shares the link more fairly.",
            ["pert/fig25", "pert/fig26", "pert/fig27", "pert/fig28", "pert/fig29"],
            "Not shown: paced and unpaced flows mostly cannot be told apart in the quick grid's few"
            " runs, and where they can, pacing loses more.",
        ),
    ],
)
