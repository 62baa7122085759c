"""What is wrong with an argument, in a sentence."""

import math
from collections.abc import Sequence
from typing import SupportsIndex, TypeAlias

# What Python calls a buffer has no name to be typed by before 3.12.
Data: TypeAlias = bytes | bytearray | memoryview
"""The data of a unit: anything that has a buffer is taken."""

_MAX_SECONDS = 1e9
_MAX_VARINT = 2**62 - 1  # QUIC's largest number (RFC 9000, section 16)
_MAX_PORT = 65_535


def seconds(name: str, value: float, *, above: bool) -> float:
    """A span of time, in seconds, from 0 or above it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: a number of seconds")
    if not math.isfinite(value) or not 0 <= value <= _MAX_SECONDS or (above and value == 0):
        least = "above 0" if above else "from 0"
        raise ValueError(f"{name} is {value!r}: a number of seconds {least}, at most 1e9")
    return float(value)


def whole(name: str, value: SupportsIndex, least: int = 0, most: int = _MAX_VARINT) -> int:
    """A whole number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}: a whole number")
    if not least <= (number := value.__index__()) <= most:
        raise ValueError(f"{name} is {number}: a whole number from {least} to {most}")
    return number


def numbers(name: str, values: Sequence[int]) -> list[int]:
    """Numbers of units."""
    return [whole(f"{name}[{at}]", value) for at, value in enumerate(values)]


def octets(data: Data) -> bytes:
    """The bytes of a buffer; a copy, where they could change."""
    return data if type(data) is bytes else bytes(memoryview(data))


def secret(token: str | Data) -> bytes:
    """A token's bytes."""
    return token.encode() if isinstance(token, str) else octets(token)


def address(text: str, *, listening: bool) -> tuple[str | None, int]:
    """A host, where there is one, and a port."""
    if not isinstance(text, str):
        raise TypeError(f"the address is {text!r}: a text such as 'host.example:4433'")
    host, colon, port = text.rpartition(":")
    right = "':4433' or '127.0.0.1:4433'" if listening else "'host.example:4433'"
    if not colon:
        raise ValueError(f"{text!r}: the port is missing: write {right}")
    if not (host or listening):
        raise ValueError(f"{text!r}: the host is missing: write {right}")
    least = 0 if listening else 1
    if not (port.isascii() and port.isdigit() and least <= int(port) <= _MAX_PORT):
        raise ValueError(f"{text!r}: {port!r} is no port from {least} to {_MAX_PORT}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an address of IPv6 stands in brackets: write '[::1]:4433'")
    return host or None, int(port)
