"""Both deliveries side by side over a lossy path, with real packets: needs root.

python -m examples.image.compare --runs 10 --out out/image

Each delivery has its own path in the emulator, both alike. What each receiver draws is
recorded with its time; the first run becomes an animated PNG, and the medians of all are printed.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from ontempo import live

from .animation import animate
from .jpeg import JpegError, Pieces, layout, split
from .picture import chosen
from .send import DELIVERIES

__all__ = [
    "SHARES",
    "IncompleteError",
    "NetworkPath",
    "Run",
    "compare",
    "emulate",
    "reached",
    "scenario",
    "table",
]

ROOT = Path(__file__).resolve().parents[2]
PORT = 4433

SHARES = (0.5, 0.9, 1.0)
"""Shares of the picture's area for which times are printed."""

Run = dict[str, list[tuple[float, int]]]
"""For each delivery: seconds since the first piece was sent, and the piece drawn then."""


class IncompleteError(RuntimeError):
    """A run ended before the picture was complete."""


@dataclass(frozen=True, slots=True)
class NetworkPath:
    """The path of each delivery; they do not share it."""

    loss: float = 0.1
    """Probability that a packet is lost, in each direction."""
    round_trip_ms: float = 100
    """Propagation delay of the round trip."""
    rate_mbit_s: float = 8
    """Rate of the link."""
    lasts_s: int = 12
    """Duration of a run."""


def scenario(path: NetworkPath, folder: Path, fingerprint: str) -> str:
    """The scenario file of a run, whose programs write their records to `folder`."""
    links, flows = [], []
    for name in DELIVERIES:
        links.append(
            f'{{ from = "{name}-sender", to = "{name}-receiver",'
            f' rate = "{path.rate_mbit_s} Mbit/s", delay = "{path.round_trip_ms / 2} ms",'
            f' loss = {{ kind = "bernoulli", rate = {path.loss} }} }}'
        )
        python = [sys.executable, "-m"]
        send = [*python, "examples.image.send", f"{{sink}}:{PORT}", "--fingerprint", fingerprint]
        send += ["--delivery", name, "--picture", str(folder / "picture.jpg")]
        # Nobody else is on the emulated path.
        receive = [*python, "examples.image.receive", "--anyone", "--listen", f":{PORT}"]
        receive += ["--identity", str(folder / "receiver.pem")]
        receive += ["--times", str(folder / f"{name}.json")]
        flows.append(
            f"[flows.{name}]\n"
            f'from = "{name}-sender"\nto = "{name}-receiver"\ntransport = {{ kind = "own" }}\n'
            f'application = {{ kind = "command", command = {json.dumps(send)},'
            f" peer = {json.dumps(receive)} }}\n"
        )
    head = f'title = "A picture, with both deliveries"\nduration = "{path.lasts_s} s"\n'
    topology = f'[topology]\nkind = "graph"\nlinks = [{", ".join(links)}]\n'
    return "\n".join([head, topology, *flows])


def emulate(path: NetworkPath, seed: int, picture: bytes, folder: Path) -> Run:
    """One run, both deliveries at the same time.

    Raises `RuntimeError` with the output of the emulator or a program if it fails, and
    `IncompleteError` if a picture was not complete in time.
    """
    folder.mkdir(parents=True)
    (folder / "picture.jpg").write_bytes(picture)
    identity = live.Identity.load_or_create(folder / "receiver.pem")
    file = folder / "scenario.toml"
    file.write_text(scenario(path, folder, identity.fingerprint))
    program = shutil.which("ontempo", path=str(Path(sys.executable).parent)) or "ontempo"
    command = [program, "emulate", str(file), "--out", str(folder / "run"), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    logs = [log.read_text() for log in sorted((folder / "run").glob("*.log"))]
    if done.returncode != 0:
        raise RuntimeError("\n".join([done.stderr.strip(), *logs]))
    return {name: _recorded(folder, name) for name in DELIVERIES}


def _recorded(folder: Path, name: str) -> list[tuple[float, int]]:
    """A receiver's record, with times relative to its sender: both use the machine's clock."""
    output = (folder / "run" / f"{name}.0.source.log").read_text()
    times = folder / f"{name}.json"
    if not (output.startswith("{") and times.exists()):
        raise IncompleteError(f"the picture did not come by {name} delivery: {output.strip()}")
    begun_s = json.loads(output)["begun_s"]
    return [(at_s - begun_s, number) for at_s, number in json.loads(times.read_text())]


def reached(pieces: Pieces, drawn: Sequence[tuple[float, int]], share: float) -> float:
    """Seconds until that share of the picture was drawn."""
    head, units = layout(pieces.tables), 0
    for at_s, number in drawn:
        units += len(head.span(number - 1)) if number > 0 else 0
        if units >= share * head.units:
            return at_s
    return math.inf


def compare(path: NetworkPath, runs: int, picture: bytes, folder: Path) -> list[Run]:
    """Several runs, with seeds from 1.

    A run without a complete picture is omitted and reported: on a busy machine the programs may not
    have started.
    """
    done = []
    for seed in range(1, runs + 1):
        try:
            done.append(emulate(path, seed, picture, folder / str(seed)))
        except IncompleteError as error:
            print(f"run {seed} is left out: {error}", file=sys.stderr, flush=True)
    return done


def table(pieces: Pieces, runs: Sequence[Run]) -> str:
    """Medians over runs, and the quartiles around them, in Markdown."""
    lines = [
        f"| drawn | {' | '.join(f'{name}, s' for name in DELIVERIES)} | sooner by, s |",
        "| --- | --- | --- | --- |",
    ]
    for share in SHARES:
        ordered, out_of_sequence = (
            [reached(pieces, run[name], share) for run in runs] for name in DELIVERIES
        )
        sooner = [one - other for one, other in zip(ordered, out_of_sequence, strict=True)]
        cells = " | ".join(_quartiles(values) for values in (ordered, out_of_sequence, sooner))
        lines.append(f"| {share:.0%} | {cells} |")
    return "\n".join(lines)


def _quartiles(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.2f}"
    low, median, high = quantiles(values, n=4, method="inclusive")
    return f"{median:.2f} ({low:.2f} to {high:.2f})"


def _arguments() -> argparse.Namespace:
    path = NetworkPath()
    parser = argparse.ArgumentParser("examples.image.compare", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how many, with seeds 1, 2, …")
    parser.add_argument(
        "--loss", type=float, default=path.loss, help="share of packets lost, in each direction"
    )
    parser.add_argument("--round-trip", type=float, default=path.round_trip_ms, metavar="MS")
    parser.add_argument("--rate", type=float, default=path.rate_mbit_s, metavar="MBIT_S")
    parser.add_argument("--duration", type=int, default=path.lasts_s, metavar="S")
    parser.add_argument(
        "--picture", type=Path, help="a JPEG with restart markers; drawn if missing"
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    return parser.parse_args()


def _main(arguments: argparse.Namespace) -> None:
    if arguments.out.exists():
        raise RuntimeError(f"{arguments.out} is there already: choose another folder for --out")
    picture, name = chosen(arguments.picture)
    pieces = split(picture, name)
    path = NetworkPath(arguments.loss, arguments.round_trip, arguments.rate, arguments.duration)
    print(f"{len(picture)} bytes, {len(pieces.intervals)} restart intervals")
    runs = compare(path, arguments.runs, picture, arguments.out.resolve())
    if not runs:
        raise RuntimeError("no run was complete: give them a longer --duration")
    (arguments.out / "runs.json").write_text(json.dumps(runs))
    animate(pieces, runs[0], arguments.out / "drawn.png")
    print(f"{len(runs)} of {arguments.runs} runs, median (quartiles)\n\n{table(pieces, runs)}")


if __name__ == "__main__":
    try:
        _main(_arguments())
    except (JpegError, OSError, RuntimeError, ValueError) as error:
        sys.exit(str(error))
