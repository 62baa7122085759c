"""The engine's fingerprint from its sources, as the build makes it (``crates/python/build.rs``)."""

from pathlib import Path

CRATES = (
    "foundation",
    "mechanisms",
    "network",
    "media",
    "scenario",
    "transport",
    "session",
    "elements",
    "runtime",
    "simulator",
)
"""The crates whose code a run passes through."""

FNV_OFFSET, FNV_PRIME = 0x6C62272E07BB014262B821756295C58D, 0x13B | 1 << 88
"""FNV-1a, 128 bits."""


def sources_fingerprint(checkout: Path) -> str:
    """The `engine_fingerprint` of a build of this checkout.

    Hashes path and content of each file, in order of the paths, each with its length before it;
    then the content of Cargo.lock.
    """
    crates = checkout / "crates"
    pieces: list[bytes] = []
    for name in CRATES:
        files = (crates / name / "src").rglob("*.rs")
        for file in sorted(files, key=lambda one: one.parts):
            pieces += [file.relative_to(crates).as_posix().encode(), file.read_bytes()]
    pieces.append((checkout / "Cargo.lock").read_bytes())
    found = FNV_OFFSET
    for piece in pieces:
        for byte in len(piece).to_bytes(8, "little") + piece:
            found = ((found ^ byte) * FNV_PRIME) & (2**128 - 1)
    return f"{found:032x}"
