"""Whether PERT, as it ran, kept PERT's own rules: what breaks them tells nothing about PERT."""

import polars as pl

from ontempo.lab.study import Results

MOST_RESPONSES = 0.5
"""Early responses per packet at most: one until a window is acknowledged, and no window that a
response leaves holds less than two packets."""


def responses_per_packet(results: Results) -> float:
    """Early responses per packet sent, over all flows under PERT; zero where there is none."""
    flows = results.table("flows").filter(pl.col("early_responses") > 0)
    sent = int(flows["sent_packets"].sum())
    return int(flows["early_responses"].sum()) / sent if sent else 0.0


def fault(results: Results) -> str:
    """Why a difference says nothing about PERT; empty where PERT kept its rules."""
    rate = responses_per_packet(results)
    if rate <= MOST_RESPONSES:
        return ""
    return (
        f"a fault of the simulator, not of PERT. Its flows respond early {rate:.2f} times for each"
        f" packet; one response a window of at least two packets allows {MOST_RESPONSES:g} at most."
        " A flow with a window of two responds to every ACK, and its window never grows again"
        " (docs/experiments-pert.md)."
    )
