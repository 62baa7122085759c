"""Shared by the tests of connections for asyncio."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ontempo import live, qos

__all__ = ["GARBAGE", "refused", "run", "there"]

GARBAGE: Any = 9
"""A value of no accepted type."""


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine; it fails after 30 s."""

    async def within() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(within(), debug=False)


def refused(call: Callable[[], Any], error: type[Exception], sentence: str) -> None:
    """Await a call, which must fail with a sentence."""

    async def main() -> None:
        with pytest.raises(error, match=sentence):
            await call()

    run(main)


def there(listener: live.Listener | qos.Listener) -> str:
    """The address of a listener on this machine."""
    return f"127.0.0.1:{listener.local[1]}"
