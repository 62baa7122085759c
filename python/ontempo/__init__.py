"""Will this media arrive on time, over this network, with this transport?

A scenario file describes a network, the flows that cross it and what is measured. Running it
yields a few tables, the same from every world that ontempo can run in::

    import ontempo as ot

    scenario = ot.load("dumbbell.toml", overrides=["flows.video.count=30"])
    result = ot.run(scenario, seed=3)

    import polars as pl
    flows = pl.DataFrame(result.flows)          # no copy
    flows.group_by("group").agg(pl.col("goodput_bps").mean())

The same scenario and seed give the same tables, to the byte, on every machine.

A `Table` speaks Arrow's PyCapsule protocol: polars, DuckDB and pyarrow take it as it is, without
a copy, and so does pandas by way of pyarrow::

    frame = pyarrow.table(result.flows).to_pandas(split_blocks=True)

``ontempo.lab`` builds studies, statistics and reports on top; its command is ``ontempo-lab``.
"""

from ontempo._native import (
    Cancelled,
    CancelToken,
    Result,
    Scenario,
    ScenarioError,
    Table,
    engine_fingerprint,
    load,
    parse,
    pert_response_probability,
    run,
)

__all__ = [
    "CancelToken",
    "Cancelled",
    "Result",
    "Scenario",
    "ScenarioError",
    "Table",
    "engine_fingerprint",
    "load",
    "parse",
    "pert_response_probability",
    "run",
]
