"""What tests of connections for asyncio share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ontempo import live, qos

__all__ = ["GARBAGE", "refused", "run", "there"]

GARBAGE: Any = 9
"""What is of no type that is taken."""


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine; what takes long has hung."""

    async def within() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(within(), debug=False)


def refused(call: Callable[[], Any], error: type[Exception], sentence: str) -> None:
    """Await what a call answers, which must fail with a sentence."""

    async def main() -> None:
        with pytest.raises(error, match=sentence):
            await call()

    run(main)


def there(listener: live.Listener | qos.Listener) -> str:
    """Where a listener of this machine is reached."""
    return f"127.0.0.1:{listener.local[1]}"
