"""Whether PERT, as it ran, kept PERT's own rules: what breaks them tells nothing about PERT."""

import polars as pl

from ontempo.lab.study import Results

MOST_RESPONSES = 0.5
"""Early responses per packet at most: one until a window is acknowledged, and no window that a
response leaves holds less than two packets."""


def fault(results: Results) -> str:
    """Why a difference says nothing about PERT; empty where every flow kept the rule."""
    flows = results.table("flows").filter(pl.col("early_responses") > 0)
    breaking = flows.filter(pl.col("early_responses") > MOST_RESPONSES * pl.col("sent_packets"))
    if breaking.is_empty():
        return ""
    rate = int(breaking["early_responses"].sum()) / int(breaking["sent_packets"].sum())
    return (
        f"a fault of the simulator, not of PERT. Of {flows.height:,} flows that respond early,"
        f" {breaking.height:,} do so {rate:.2f} times for each packet; one response a window of at"
        f" least two packets allows {MOST_RESPONSES:g} at most. A flow with a window of two"
        " responds to every ACK, and its window never grows again (docs/experiments-pert.md)."
    )
