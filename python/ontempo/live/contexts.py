"""Objects that ``async with`` opens and closes."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Self, TypeVar

C = TypeVar("C", bound=AbstractAsyncContextManager[Any, None])


class Closing(ABC):
    """An object that an ``async with`` block closes at its end."""

    @abstractmethod
    async def close(self) -> None:
        """Close it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()


class Opening(Generic[C]):
    """An object to be opened: await it, or enter it by ``async with``, which closes it."""

    def __init__(self, open_it: Callable[[], Awaitable[C]]) -> None:
        self._open = open_it
        self._opened: C | None = None

    def __await__(self) -> Generator[Any, None, C]:
        return self._open().__await__()

    async def __aenter__(self) -> C:
        self._opened = await self
        return self._opened

    async def __aexit__(self, *raised: Any) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(*raised)
