"""The engine's fingerprints from its sources, as ``crates/python/build.rs`` makes them."""

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

LIST = Path("crates", "python", "engine-sources.txt")
"""Which sources are hashed, and which of them only films use; from the checkout."""

FNV_OFFSET, FNV_PRIME = 0x6C62272E07BB014262B821756295C58D, 0x13B | 1 << 88
"""FNV-1a, 128 bits."""


def listed(checkout: Path, kind: str) -> list[str]:
    """The crates (``crate``) or the places of films (``film``) that the list names."""
    lines = (checkout / LIST).read_text("utf-8").splitlines()
    words = (line.partition(" ") for line in lines if not line.startswith("#"))
    return [name for word, _, name in words if word == kind]


def engine_files(checkout: Path, *, films: bool = True) -> Iterator[Path]:
    """The engine's sources in the order in which they are hashed, or those without films."""
    crates = checkout / "crates"
    left_out = [] if films else [crates / place for place in listed(checkout, "film")]
    for name in listed(checkout, "crate"):
        files = (crates / name / "src").rglob("*.rs")
        for file in sorted(files, key=lambda one: one.parts):
            if not any(file.is_relative_to(place) for place in left_out):
                yield file


def locked(lock: str, crates: Sequence[str]) -> list[str]:
    """The packages that these crates depend on, and they themselves: ``name version checksum``.

    What only other programs of the workspace use decides no run.
    """
    packages = tomllib.loads(lock)["package"]
    # A dependency is written "name", or "name version" where several versions are locked.
    by_name = {name: one for one in packages for name in (one["name"], _versioned(one))}
    wanted, found = [f"ontempo-{name}" for name in crates], set()
    while wanted:
        package = by_name[wanted.pop()]
        line = f"{_versioned(package)} {package.get('checksum', '')}"
        if line not in found:
            found.add(line)
            wanted += package.get("dependencies", ())
    return sorted(found)


def _versioned(package: dict[str, str]) -> str:
    return f"{package['name']} {package['version']}"


def sources_fingerprint(checkout: Path, *, films: bool = True) -> str:
    """The `engine_fingerprint` of a build of this checkout; without films its `claims_fingerprint`.

    Hashes path and content of each file, in order of the paths, each with its length before it;
    then the packages of Cargo.lock that the engine's crates depend on.
    """
    pieces: list[bytes] = []
    for file in engine_files(checkout, films=films):
        pieces += [file.relative_to(checkout / "crates").as_posix().encode(), file.read_bytes()]
    lock = (checkout / "Cargo.lock").read_text("utf-8")
    pieces += [one.encode() for one in locked(lock, listed(checkout, "crate"))]
    found = FNV_OFFSET
    for piece in pieces:
        for byte in len(piece).to_bytes(8, "little") + piece:
            found = ((found ^ byte) * FNV_PRIME) & (2**128 - 1)
    return f"{found:032x}"
