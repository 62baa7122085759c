"""Both deliveries side by side over a lossy path, with real packets: needs the rights of root.

python -m examples.image.compare --runs 10 --out out/image

Each delivery has a path of its own in the emulator, both alike. What each receiver has drawn when
is recorded; of the first run an animated PNG is made, and the medians of all runs are printed.
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
from .jpeg import Cut, JpegError, cut, layout
from .picture import chosen
from .send import DELIVERIES

__all__ = [
    "SHARES",
    "IncompleteError",
    "Run",
    "Way",
    "compare",
    "emulate",
    "reached",
    "scenario",
    "table",
]

ROOT = Path(__file__).resolve().parents[2]
PORT = 4433

SHARES = (0.5, 0.9, 1.0)
"""Of the picture's area, to be drawn."""

Run = dict[str, list[tuple[float, int]]]
"""For each delivery: so many seconds after the first piece was sent, which piece was drawn."""


class IncompleteError(RuntimeError):
    """A run that was over before the picture was there."""


@dataclass(frozen=True, slots=True)
class Way:
    """The path that each delivery has for itself."""

    loss: float = 0.1
    """Probability that a packet is lost, each way."""
    round_trip_ms: float = 100
    """Propagation delay, there and back."""
    rate_mbit_s: float = 8
    """Of the link."""
    lasts_s: int = 12
    """How long a run is."""


def scenario(way: Way, folder: Path, fingerprint: str) -> str:
    """The scenario file of a run, whose programs leave what they record in `folder`."""
    links, flows = [], []
    for name in DELIVERIES:
        links.append(
            f'{{ from = "{name}-sender", to = "{name}-receiver", rate = "{way.rate_mbit_s} Mbit/s",'
            f' delay = "{way.round_trip_ms / 2} ms",'
            f' loss = {{ kind = "bernoulli", rate = {way.loss} }} }}'
        )
        python = [sys.executable, "-m"]
        send = [*python, "examples.image.send", f"{{sink}}:{PORT}", "--fingerprint", fingerprint]
        send += ["--delivery", name, "--picture", str(folder / "picture.jpg")]
        receive = [*python, "examples.image.receive", "--listen", f":{PORT}"]
        receive += ["--identity", str(folder / "receiver.pem")]
        receive += ["--times", str(folder / f"{name}.json")]
        flows.append(
            f"[flows.{name}]\n"
            f'from = "{name}-sender"\nto = "{name}-receiver"\ntransport = {{ kind = "own" }}\n'
            f'application = {{ kind = "command", command = {json.dumps(send)},'
            f" peer = {json.dumps(receive)} }}\n"
        )
    head = f'title = "A picture, delivered both ways"\nduration = "{way.lasts_s} s"\n'
    topology = f'[topology]\nkind = "graph"\nlinks = [{", ".join(links)}]\n'
    return "\n".join([head, topology, *flows])


def emulate(way: Way, seed: int, picture: bytes, folder: Path) -> Run:
    """One run, both deliveries at the same time.

    Raises `RuntimeError` with the output of the emulator or a program where it fails, and
    `IncompleteError` where a picture did not come in time.
    """
    folder.mkdir(parents=True)
    (folder / "picture.jpg").write_bytes(picture)
    identity = live.Identity.load_or_create(folder / "receiver.pem")
    file = folder / "scenario.toml"
    file.write_text(scenario(way, folder, identity.fingerprint))
    program = shutil.which("ontempo", path=str(Path(sys.executable).parent)) or "ontempo"
    command = [program, "emulate", str(file), "--out", str(folder / "run"), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    logs = [log.read_text() for log in sorted((folder / "run").glob("*.log"))]
    if done.returncode != 0:
        raise RuntimeError("\n".join([done.stderr.strip(), *logs]))
    return {name: _recorded(folder, name) for name in DELIVERIES}


def _recorded(folder: Path, name: str) -> list[tuple[float, int]]:
    """What a receiver has drawn, on the axis of its sender: both have the machine's clock."""
    output = (folder / "run" / f"{name}.0.source.log").read_text()
    times = folder / f"{name}.json"
    if not (output.startswith("{") and times.exists()):
        raise IncompleteError(f"the picture did not come by {name} delivery: {output.strip()}")
    begun_s = json.loads(output)["begun_s"]
    return [(at_s - begun_s, number) for at_s, number in json.loads(times.read_text())]


def reached(pieces: Cut, drawn: Sequence[tuple[float, int]], share: float) -> float:
    """After how many seconds that share of the picture was drawn."""
    head, units = layout(pieces.tables), 0
    for at_s, number in drawn:
        units += len(head.span(number - 1)) if number > 0 else 0
        if units >= share * head.units:
            return at_s
    return math.inf


def compare(way: Way, runs: int, picture: bytes, folder: Path) -> list[Run]:
    """So many runs, whose seeds are counted from 1.

    One in which a picture did not come is left out and reported: on a busy machine the programs may
    not have begun.
    """
    done = []
    for seed in range(1, runs + 1):
        try:
            done.append(emulate(way, seed, picture, folder / str(seed)))
        except IncompleteError as error:
            print(f"run {seed} is left out: {error}", file=sys.stderr, flush=True)
    return done


def table(pieces: Cut, runs: Sequence[Run]) -> str:
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
    way = Way()
    parser = argparse.ArgumentParser("examples.image.compare", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how many, with seeds 1, 2, …")
    parser.add_argument("--loss", type=float, default=way.loss, help="of packets, each way")
    parser.add_argument("--round-trip", type=float, default=way.round_trip_ms, metavar="MS")
    parser.add_argument("--rate", type=float, default=way.rate_mbit_s, metavar="MBIT_S")
    parser.add_argument("--duration", type=int, default=way.lasts_s, metavar="S")
    parser.add_argument(
        "--picture", type=Path, help="a JPEG with restart markers; drawn if missing"
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder that is not there yet")
    return parser.parse_args()


def _main(arguments: argparse.Namespace) -> None:
    if arguments.out.exists():
        raise RuntimeError(f"{arguments.out} is there already: choose another folder for --out")
    picture, name = chosen(arguments.picture)
    pieces = cut(picture, name)
    way = Way(arguments.loss, arguments.round_trip, arguments.rate, arguments.duration)
    print(f"{len(picture)} bytes, {len(pieces.intervals)} restart intervals")
    runs = compare(way, arguments.runs, picture, arguments.out.resolve())
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
