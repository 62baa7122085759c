"""Checks of arguments, whose errors are sentences."""

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import SupportsIndex, TypeAlias

from .errors import CloseReason

# What Python calls a buffer has no name to be typed by before 3.12.
Data: TypeAlias = bytes | bytearray | memoryview
"""The data of a unit: any object with the buffer protocol."""

_MAX_SECONDS = 1e9
_MAX_VARINT = 2**62 - 1  # QUIC's largest number (RFC 9000, section 16)
_MAX_PORT = 65_535
_MIN_OWN_CODE = 256


def seconds(name: str, value: float, *, above: bool) -> float:
    """A span of time in seconds: at least 0, or above 0; at most 1e9."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: a number of seconds")
    if not math.isfinite(value) or not 0 <= value <= _MAX_SECONDS or (above and value == 0):
        bound = "above 0" if above else "from 0"
        raise ValueError(f"{name} is {value!r}: a number of seconds {bound}, at most 1e9")
    return float(value)


def whole(name: str, value: SupportsIndex, minimum: int = 0, maximum: int = _MAX_VARINT) -> int:
    """A whole number."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}: a whole number")
    if not minimum <= (number := value.__index__()) <= maximum:
        raise ValueError(f"{name} is {number}: a whole number from {minimum} to {maximum}")
    return number


def close_code(code: CloseReason | int) -> int:
    """The application error code of a reason, or one of the program's own."""
    if not isinstance(code, CloseReason):
        return whole("code", code, _MIN_OWN_CODE)
    if code.code is None:
        raise ValueError(f"code is {code!r}: a reason with a code, such as CloseReason.FAILED")
    return code.code


def numbers(name: str, values: Sequence[int]) -> list[int]:
    """A list of unit numbers."""
    return [whole(f"{name}[{at}]", value) for at, value in enumerate(values)]


def octets(data: Data) -> bytes:
    """The bytes of a buffer; a copy, where they could change."""
    return data if type(data) is bytes else bytes(memoryview(data))


def secret(token: str | Data) -> bytes:
    """A token's bytes."""
    return token.encode() if isinstance(token, str) else octets(token)


def admitted(token: str | Data | None, anyone: bool) -> bytes:
    """The token of a listener: that which is given, none, or a new one of 128 random bits."""
    if token is None:
        return b"" if anyone else secrets.token_hex(16).encode()
    if not (given := secret(token)):
        raise ValueError(
            "token is empty, which admits anybody: leave it out for a random one, or say"
            " anyone=True"
        )
    if anyone:
        raise ValueError("anyone=True admits every client: leave out token")
    return given


def address(text: str, *, listening: bool) -> tuple[str | None, int]:
    """The host, or ``None`` where there is none, and the port of ``HOST:PORT``."""
    if not isinstance(text, str):
        raise TypeError(f"the address is {text!r}: a text such as 'host.example:4433'")
    host, colon, port = text.rpartition(":")
    right = "':4433' or '127.0.0.1:4433'" if listening else "'host.example:4433'"
    if not colon:
        raise ValueError(f"{text!r}: the port is missing: write {right}")
    if not (host or listening):
        raise ValueError(f"{text!r}: the host is missing: write {right}")
    minimum = 0 if listening else 1
    if not (port.isascii() and port.isdigit() and minimum <= int(port) <= _MAX_PORT):
        raise ValueError(f"{text!r}: {port!r} is no port from {minimum} to {_MAX_PORT}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an address of IPv6 stands in brackets: write '[::1]:4433'")
    return host or None, int(port)


def parameter_texts(parameters: Mapping[str, str | float | bool]) -> dict[str, str]:
    """The parameters of a congestion control, each value as the text of a scenario file."""
    if not isinstance(parameters, Mapping):
        raise TypeError(f"congestion_parameters is {parameters!r}: a dict of values by name")
    texts = {}
    for name, value in parameters.items():
        if not isinstance(name, str) or not isinstance(value, str | float | int):
            what = f"congestion_parameters: {name!r} is {value!r}"
            raise TypeError(f"{what}: a text, a number, or true or false")
        texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts
