"""The same work asked for by many at once is done once, and all of them get its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class _Flight(Generic[T]):
    def __init__(self) -> None:
        self.landed = trio.Event()
        self.result: T | None = None
        self.succeeded = False


class SingleFlight(Generic[T]):
    """By key. What is under way is run by whoever came first, in their own task.

    If that one is cancelled, or the work raises, the next of those who wait does it: nobody fails for somebody else's reason.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, _Flight[T]] = {}

    async def __call__(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            flight = self._under_way.get(key)
            if flight is None:
                return await self._fly(key, work)
            await flight.landed.wait()
            if flight.succeeded:
                return flight.result  # pyright: ignore[reportReturnType]  # of a flight that succeeded it is a T

    async def _fly(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        flight = self._under_way[key] = _Flight[T]()
        try:
            result = await work()
            flight.result, flight.succeeded = result, True
            return result
        finally:
            del self._under_way[key]
            flight.landed.set()
