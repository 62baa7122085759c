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

Between programs, ``connect`` and ``listen`` carry media over QUIC, for asyncio (``ontempo.live``)::

    async with ot.connect("player.example:4433", trust=fingerprint) as peer:
        async with peer.open_flow() as flow:
            await flow.send(picture, lifetime_s=0.2)

``ontempo.lab`` builds studies, statistics and reports on top; its command is ``ontempo-lab``.
"""

from ontempo import qos
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
from ontempo.live import (
    BindError,
    ClosedError,
    CloseReason,
    Connection,
    ConnectionStatistics,
    DelayStatistics,
    DeliveryOrder,
    Dropped,
    EndpointError,
    FlowConfig,
    Identity,
    IdentityError,
    Listener,
    NotConnectedError,
    Options,
    ReceiveFlow,
    ReceiveStatistics,
    Refused,
    Reliability,
    SendFlow,
    SendStatistics,
    Trust,
    Unit,
    UnitError,
    connect,
    listen,
)

__all__ = [
    "BindError",
    "CancelToken",
    "Cancelled",
    "CloseReason",
    "ClosedError",
    "Connection",
    "ConnectionStatistics",
    "DelayStatistics",
    "DeliveryOrder",
    "Dropped",
    "EndpointError",
    "FlowConfig",
    "Identity",
    "IdentityError",
    "Listener",
    "NotConnectedError",
    "Options",
    "ReceiveFlow",
    "ReceiveStatistics",
    "Refused",
    "Reliability",
    "Result",
    "Scenario",
    "ScenarioError",
    "SendFlow",
    "SendStatistics",
    "Table",
    "Trust",
    "Unit",
    "UnitError",
    "connect",
    "engine_fingerprint",
    "listen",
    "load",
    "parse",
    "pert_response_probability",
    "qos",
    "run",
]
