"""Simulates media over networks: will this media arrive on time, over this network?

A scenario describes a network, the flows that cross it and what is measured. `load` reads one from
a file, `parse` from a text; `run` simulates it and returns a `Result` of a few tables::

    import ontempo as ot
    import polars as pl

    scenario = ot.parse('''
        title = "Ten videos over 3 Mbit/s"
        duration = "30 s"

        [topology]
        kind = "dumbbell"
        access = { rate = "10 Mbit/s", delay = "5 ms" }

        [topology.bottleneck]
        rate = "3 Mbit/s"
        delay = "20 ms"
        queue = { kind = "drop-tail", limit = "60 packets" }

        [flows.video]
        count = 10
        application = { kind = "cbr", rate = "250 kbit/s" }
        playout = ["1 s"]
        transport = { kind = "tcp", congestion = "pert" }
    ''', overrides=["flows.video.count=8"])
    result = ot.run(scenario, seed=3)
    flows = pl.DataFrame(result.flows)          # no copy
    print(flows.height, "flows,", len(result.playout), "playouts")

The same scenario and seed give the same tables, to the byte, on every machine. Columns name their
units: ``_s`` is seconds, ``_bps`` bits per second, ``_bytes`` bytes.

A `Table` has Arrow's PyCapsule protocol: polars, DuckDB and pyarrow read it without a copy, and so
does pandas through pyarrow.

A congestion controller of one's own is a class, a `CongestionController`: `load`, `parse` and `run`
take it as ``controllers={"mine": Mine}``.

The other packages are imported by their own names: `ontempo.live` carries media between programs,
`ontempo.qos` has sockets with a quality of service, `ontempo.media` splits transport streams into
frames, and `ontempo.lab` runs studies (its command is ``ontempo-lab``).
"""

from ontempo._native import (
    Cancelled,
    CancelToken,
    ControllerError,
    Result,
    Scenario,
    ScenarioError,
    Table,
    claims_fingerprint,
    engine_fingerprint,
    load,
    parse,
    pert_response_probability,
    run,
)
from ontempo.congestion import CongestionController

__all__ = [
    "CancelToken",
    "Cancelled",
    "CongestionController",
    "ControllerError",
    "Result",
    "Scenario",
    "ScenarioError",
    "Table",
    "claims_fingerprint",
    "engine_fingerprint",
    "load",
    "parse",
    "pert_response_probability",
    "run",
]
