"""The worlds of a reproduction, and why this machine cannot check claims in one of them."""

from collections.abc import Iterable, Mapping, Sequence

from ontempo.lab.cells import Cell
from ontempo.lab.claims import Claim, World
from ontempo.lab.errors import BadInputError, LabError
from ontempo.lab.real_time import hindrance, load_control

DEFAULT = (World.ANALYSIS, World.SIMULATION)
"""The worlds that are computed, not run in real time."""


def read_worlds(text: str | None) -> tuple[World, ...]:
    """Parse ``--worlds``: names separated by commas."""
    if text is None:
        return DEFAULT
    names = [name.strip() for name in text.split(",")]
    known = {world.value for world in World}
    for name in names:
        if name not in known:
            raise BadInputError(f"--worlds: {name!r} is none of {', '.join(World)}")
    return tuple(world for world in World if world.value in names)


def in_worlds(claims: Sequence[Claim], worlds: Sequence[World], only: Sequence[str]) -> list[Claim]:
    """The claims that are checked in these worlds; one that `only` names must be."""
    for claim in claims:
        if claim.id in only and claim.world not in worlds:
            asked = ",".join([*worlds, claim.world])
            raise BadInputError(f"{claim.id} is checked by {claim.world}: add --worlds {asked}")
    return [claim for claim in claims if claim.world in worlds]


def hindrances(needed: Mapping[str, Iterable[Cell]]) -> dict[str, str]:
    """Claims by id whose cells this machine cannot run with real packets, and why not."""
    controls: dict[str, str] = {}
    loaded: dict[str, str] = {}
    found = {}
    for claim, cells in needed.items():
        real = [cell.real for cell in cells if cell.real]
        if not real:
            continue
        reason = hindrance()
        for control in dict.fromkeys(name for one in real for name in one.controls):
            if not reason and control not in controls:
                # The kernel has each once, for all cells of the command.
                first = loaded.setdefault(control.split()[0], control)
                controls[control] = _refusal(control) if first == control else _apart(control)
            reason = reason or controls[control]
        if reason:
            found[claim] = reason
    return found


def _apart(control: str) -> str:
    return f"needs the kernel's {control}, and claims before it other settings: run it with --only"


def _refusal(control: str) -> str:
    """Why one of our congestion controls cannot be loaded; empty if it can."""
    try:
        load_control(control)
    except LabError as error:
        return str(error)
    return ""
