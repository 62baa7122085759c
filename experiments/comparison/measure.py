"""One cell: some contenders carry the stream side by side, each over its own path, all alike.

python -m experiments.comparison.measure srt rist loss=0.05 'source="cbr"' out/one    # needs root
"""

import json
import shutil
import sys
import tomllib
from array import array
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path as File
from typing import Any

import polars as pl

from ontempo.lab.cells import Cell, Measurement
from ontempo.lab.errors import LabError, UnfitEnvironmentError
from ontempo.lab.real_time import emulate

from .contenders import CONTENDERS, INPUT, OUTPUT, WIRE, Contender
from .encode import make_stream, stream_key
from .ends import NAMESPACE
from .frames import arrivals, pacing_errors, packet_latencies, quantile, read_times, unit_table
from .paths import FULL_PACKET_BYTES, LABELS, Path
from .stream import PACKET, PER_DATAGRAM, Stream, read_stream

HERE = File(__file__).parent
SCENARIO = HERE / "comparison.toml"

WARM_UP_S = 3.0
"""How long contenders have to connect before the stream begins, in seconds."""

LEAD_S = 2
"""Seconds of stream that are sent first and not counted: windows and buffers settle."""

DRAIN_S = 2.5
"""How long after the end of the stream packets may still arrive, in seconds."""

CLOSE_S = 3.5
"""How long programs have to end and to write their recordings on a busy machine, in seconds."""

PEER_SOONER_S = 0.5
"""By how much the emulator starts the sink before the source, in seconds."""

DOWNLOAD = "download"
"""The flow group of the download beside the contender of a number: ``download3``."""

CLOCK_MAY_MOVE_S = 0.000_5
"""By how much CLOCK_REALTIME may be set during a run, in seconds; beyond, the run is refused."""


def comparison_cell(path: Path, together: Sequence[Contender], counted_s: int, seed: int) -> Cell:
    """A cell: contenders, path, and the measured seconds of the stream."""
    duration_s = WARM_UP_S + LEAD_S + counted_s + DRAIN_S + CLOSE_S
    ends = [(one, f"s{number}", f"r{number}") for number, one in enumerate(together)]
    links = ", ".join(path.link(begin, end) for _, begin, end in ends)
    flows = [
        f'"{one.name}" = {{ from = "{begin}", to = "{end}", transport = {{ kind = "own" }},'
        f' application = {{ kind = "command", command = ["true"], peer = ["true"] }} }}'
        for one, begin, end in ends
    ]
    if path.queue_bdp:
        flows += [
            f'{DOWNLOAD}{number} = {{ from = "{begin}", to = "{end}", application = {{ kind = "ftp"'
            f' }}, transport = {{ kind = "tcp", packet = "{FULL_PACKET_BYTES} bytes",'
            f' congestion = {{ kind = "cubic", variant = "linux" }} }} }}'
            for number, (_, begin, end) in enumerate(ends)
        ]
    versions = ", ".join(f"{one.name} {one.version()}" for one in together)
    measurement = Measurement(
        "comparison",
        partial(measure, path=path, together=together, counted_s=counted_s),
        (
            ("contenders", versions),
            ("stream", stream_key(LEAD_S + counted_s, path.source)),
            ("seconds", json.dumps([WARM_UP_S, LEAD_S, DRAIN_S])),
            (
                "settings",
                json.dumps(
                    [[one.send(path), one.receive(path), one.congestion] for one in together]
                ),
            ),
        ),
    )
    labels = (*((name, getattr(path, name)) for name in LABELS), ("together", len(together)))
    overrides = (
        f'duration="{duration_s} s"',
        f"topology.links=[{links}]",
        f"flows={{ {', '.join(flows)} }}",
        'measure.sample-every="1 s"',
    )
    return Cell(SCENARIO, overrides, seed, labels, duration_s, measurement)


def measure(
    cell: Cell, folder: File, *, path: Path, together: Sequence[Contender], counted_s: int
) -> None:
    """Run it; write the emulator's `links`, and `units` and `carried`, to `folder`.

    `units` has those of the first `LEAD_S`, too, on which later ones may depend.
    """
    stream_file = make_stream(LEAD_S + counted_s, path.source)
    stream = read_stream(stream_file, bursts=path.source != "paced")
    places = {one.name: folder / "ends" / one.name for one in together}
    due = folder / "ends" / "due"
    due.parent.mkdir(parents=True)
    due.write_bytes(array("q", (time for time, _ in stream.datagrams())).tobytes())
    for one in together:
        write_plan(one, path, places[one.name], stream_file, due, LEAD_S + counted_s)
    commands = (
        f"flows.{one.name}.application.{field}={json.dumps(words)}"
        for one in together
        for field, words in _commands(places[one.name]).items()
    )
    emulate(replace(cell, overrides=(*cell.overrides, *commands)), folder)
    read = [read_end(one.name, places[one.name], stream) for one in together]
    links = pl.read_parquet(folder / "links.parquet")
    samples = pl.read_parquet(folder / "samples.parquet")
    for table in folder.glob("*.parquet"):
        if table.stem != "links":
            table.unlink()
    wire = [
        wire_bytes(links, number) | {"download_bps": download_bps(samples, number, counted_s)}
        for number in range(len(together))
    ]
    pl.concat(units for units, _ in read).write_parquet(folder / "units.parquet")
    rows = [row | sent for (_, row), sent in zip(read, wire, strict=True)]
    carried = pl.DataFrame(
        rows, schema_overrides={"download_bps": pl.Float64}, infer_schema_length=None
    )
    carried.write_parquet(folder / "carried.parquet")
    shutil.rmtree(folder / "ends")


def _commands(place: File) -> dict[str, list[str]]:
    plan = str(place / "plan.json")
    return {
        "command": [sys.executable, str(HERE / "ends.py"), "source", plan, "{sink}"],
        "peer": [sys.executable, str(HERE / "ends.py"), "sink", plan, "{source}"],
    }


def write_plan(
    one: Contender, path: Path, place: File, stream: File, due: File, stream_s: float
) -> None:
    """Write the plan that the programs of both ends follow."""
    place.mkdir()
    plan = {
        "stream": str(stream),
        "due": str(due),
        "datagram": PACKET * PER_DATAGRAM,
        "send": one.send(path),
        "receive": one.receive(path),
        "congestion": one.congestion,
        "machine_namespace": File(NAMESPACE).stat().st_ino,
        "input": INPUT,
        "output": OUTPUT,
        "wire": WIRE,
        "warm_up_s": WARM_UP_S,
        "drain_s": DRAIN_S,
        "listen_s": WARM_UP_S + stream_s + DRAIN_S + PEER_SOONER_S,
    }
    (place / "plan.json").write_text(json.dumps(plan), "utf-8")


def read_end(name: str, place: File, stream: Stream) -> tuple[pl.DataFrame, dict[str, object]]:
    """The table of units and the row of one contender, from the files of both ends."""
    reports = {}
    for end in ("source", "sink"):
        file = place / f"{end}.json"
        if not file.exists():
            raise UnfitEnvironmentError(f"{name}: its {end} did not end in time")
        reports[end] = json.loads(file.read_text("utf-8"))
        moved_ms = reports[end]["clock_moved_ns"] / 1e6
        if abs(moved_ms) > CLOCK_MAY_MOVE_S * 1e3:
            raise UnfitEnvironmentError(
                f"{name}: the machine's clock was set by {moved_ms:g} ms during the run; run again"
            )
    left_ns = read_times((place / "departures").read_bytes())
    came = arrivals(stream, (place / "recording").read_bytes())
    latencies = packet_latencies(stream, left_ns, came, LEAD_S)
    pacing = pacing_errors([time for time, _ in stream.datagrams()], left_ns)
    row = {
        "contender": name,
        "latency_p50_s": quantile(latencies, 0.5),
        "latency_p99_s": quantile(latencies, 0.99),
        "repeated": came.repeated,
        "foreign": came.foreign,
        "overtaken": came.overtaken,
        "pacing_p50_s": quantile(pacing, 0.5),
        "pacing_p99_s": quantile(pacing, 0.99),
        "pacing_max_s": pacing[-1],
        "sender_processor_s": reports["source"]["processor_s"],
        "receiver_processor_s": reports["sink"]["processor_s"],
        "ended_early": ", ".join(
            f"{end} with {one['ended_early']}"
            for end, one in reports.items()
            if one["ended_early"] is not None
        ),
        "overflowed": reports["sink"]["overflowed"],
        "stream_bytes": len(stream.packets) * PACKET,
        "stream_s": stream.due_ns[-1] / 1e9,
    }
    units = unit_table(stream, left_ns, came)
    return units.with_columns(pl.lit(name).alias("contender")), row


def wire_bytes(links: pl.DataFrame, number: int) -> dict[str, object]:
    """What a contender sent on its path in both directions, and what the path dropped of it."""
    forth = links.filter(pl.col("from") == f"s{number}").row(0, named=True)
    back = links.filter(pl.col("from") == f"r{number}").row(0, named=True)
    return {
        "forth_bytes": forth["departed_bytes"],
        "back_bytes": back["departed_bytes"],
        "forth_packets": forth["arrivals"],
        "lost_packets": forth["dropped_loss"],
        "overflowed_packets": forth["dropped_full"],
    }


def download_bps(samples: pl.DataFrame, number: int, counted_s: int) -> float | None:
    """Goodput of the download beside a contender while the stream is counted, in bit/s.

    None if there is none.
    """
    begin_s = WARM_UP_S + LEAD_S
    delivered = samples.filter(
        pl.col("subject") == f"{DOWNLOAD}{number}.0",
        pl.col("quantity") == "delivered_bytes",
        pl.col("time_s").is_between(begin_s, begin_s + counted_s),
    ).sort("time_s")
    if delivered.height < 2:
        return None
    span = delivered[-1].row(0, named=True), delivered[0].row(0, named=True)
    bytes_, seconds = (span[0][name] - span[1][name] for name in ("value", "time_s"))
    return float(8 * bytes_ / seconds)


def main() -> None:
    """Measure ten seconds once, and print the results."""
    *words, folder = sys.argv[1:]
    names = [word for word in words if "=" not in word]
    given: dict[str, Any] = tomllib.loads("\n".join(word for word in words if "=" in word))
    path = Path(**given)
    together = [one for one in CONTENDERS if one.name in names]
    cell = comparison_cell(path, together, 10, 0)
    try:
        measure(cell, File(folder), path=path, together=together, counted_s=10)
    except LabError as error:
        sys.exit(f"error: {error}")
    units = pl.read_parquet(File(folder) / "units.parquet")
    counted = units.filter(pl.col("kind") != "sound", pl.col("sent_s") >= LEAD_S)
    for row in pl.read_parquet(File(folder) / "carried.parquet").iter_rows(named=True):
        mine = counted.filter(contender=row["contender"])["latency_s"]
        late = (mine > path.playout_ms(path.latency_ms) / 1000).sum()
        print(f"\n{mine.len()} frames, {mine.null_count()} lost, {late} late")
        for name, value in row.items():
            print(f"{name:22} {value}")


if __name__ == "__main__":
    main()
