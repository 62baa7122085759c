"""The claims of chapters II and III, in the order of the figures."""

from ontempo.lab.claims import Paper

from .figures import fig1, fig2, fig4, fig5, fig6, fig7, fig8, fig9, fig10, fig11, fig12

PAPER = Paper(
    name="pert",
    title="Video over PERT",
    about="A thesis on streaming live video over PERT, a TCP congestion controller that responds"
    " to delay before packets are lost, beside RENO and CUBIC. Chapters II and III, simulation.",
    claims=[
        figure.CLAIM
        for figure in (fig1, fig2, fig4, fig5, fig6, fig7, fig8, fig9, fig10, fig11, fig12)
    ],
)
