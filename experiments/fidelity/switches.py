"""Which difference of the two profiles moves a cell that differs under `ns-2`.

python -m experiments.fidelity.switches

Each scenario runs under the profile of ns-2 with one field at a time as `linux` has it. A field
*decides* a cell where it alone takes the cell over at least half of its distance to the emulation.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from ontempo.lab.statistics import mean_interval
from ontempo.lab.terminal import exit_codes, run_shown

from .__main__ import SIMULATED_RUNS
from .agreement import Compared, compared, values_of
from .emulated import read_emulated
from .grid import PROFILES, ROWS, Row
from .page import number

FIELDS: Mapping[str, Mapping[str, str]] = {
    "recovery": {"recovery": '"rack"'},
    "tail-loss-probe": {"recovery": '"rack"', "tail-loss-probe": "true"},
    "proportional-rate-reduction": {"proportional-rate-reduction": "true"},
    "ack": {"ack": '{ kind = "linux" }'},
    "initial-window": {"initial-window": '"10 packets"'},
    "rto": {"rto": '"linux"'},
    "grow-when-application-limited": {"grow-when-application-limited": "false"},
    "idle-decay": {"idle-decay": "true"},
    "undo-timeouts": {"undo-timeouts": "true"},
    "handshake": {"handshake": "true"},
}
"""The fields in which the profiles differ, as `linux` has them; what needs another has it, too."""

CONTROLLERS: Mapping[str, str] = {
    "cubic": '{ kind = "cubic", variant = "linux" }',
    "reno": '{ kind = "reno", counting = "packets" }',
    "pert": '{ kind = "pert", counting = "packets" }',
}
"""The controllers as `linux` has them."""

HALF = 0.5


def switches(row: Row) -> Iterator[tuple[str, list[str]]]:
    """Each field in which the profiles differ for this scenario, and what sets it."""
    for name, fields in FIELDS.items():
        pairs = product(row.tcp, fields.items())
        yield name, [f"flows.{group}.transport.{key}={value}" for group, (key, value) in pairs]
    kinds = row.controllers()
    for group in row.tcp:
        kind = kinds[group]
        key = f"flows.{group}.transport.congestion"
        yield f"congestion of {group}", [f"{key}={CONTROLLERS[kind]}"]
        if kind == "pert":
            yield f"pacing of {group}", [f'flows.{group}.transport.pacing="window"']


def share(row: Compared, value: float) -> float:
    """How much of the distance between `ns-2` and the emulation is gone."""
    whole = row.emulated.value - row.simulated["ns-2"].value
    return (value - row.simulated["ns-2"].value) / whole


def words(row: Compared, values: Mapping[str, Sequence[float]]) -> str:
    """A cell, and the fields that decide it with the value under each."""
    shares = {name: share(row, mean_interval(runs).value) for name, runs in values.items()}
    deciding = [name for name in sorted(shares, key=shares.__getitem__) if shares[name] >= HALF]
    shown = ", ".join(f"`{name}` ({number(mean_interval(values[name]))})" for name in deciding)
    ns2, real = number(row.simulated["ns-2"]), number(row.emulated)
    return f"| {row.cell} | {ns2} | {real} | {shown or 'none alone'} |"


def main(
    every: Annotated[
        bool, typer.Option("--all", help="Also cells that agree under `linux`.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder of finished cells.")] = Path("out/fidelity"),
) -> None:
    """Print a table: cells that differ under `ns-2`, and the fields that decide them."""
    with exit_codes(f"python -m experiments.fidelity.switches --out {out}"):
        emulated, _ = read_emulated([row.name for row in ROWS])
        cells = [cell for row in ROWS for cell in row.simulated(SIMULATED_RUNS)]
        results = run_shown(cells, out)
        rows = compared(emulated, {one: values_of(results, one) for one in PROFILES})
        differing = [
            row
            for row in rows
            if row.is_of_tcp
            and row.verdict("ns-2") == "differs"
            and (every or row.verdict("linux") != "agrees")
        ]
        scenarios = {row.scenario for row in differing}
        chosen = [row for row in ROWS if row.name in scenarios]
        switched = [
            cell
            for row in chosen
            for name, sets in switches(row)
            for cell in row.switched(name, sets, SIMULATED_RUNS)
        ]
        results = run_shown(switched, out)
        names = sorted({str(dict(cell.labels)["world"]) for cell in switched})
        by_name = {name: values_of(results, name) for name in names}
        print("| cell | `ns-2` | emulated | fields that decide it |\n| --- | ---: | ---: | --- |")
        for row in differing:
            key = (row.scenario, row.subject, row.quantity)
            values = {name: found[key] for name, found in by_name.items() if key in found}
            print(words(row, values))


if __name__ == "__main__":
    typer.run(main)
