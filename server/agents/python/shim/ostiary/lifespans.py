"""What the files of a worker have open while it runs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import Any, Callable

from .errors import Misuse
from .failures import log
from .hooks import Lifespan
from .provide import manager_of


class Lifespans:
    """Of a worker. `open` and `close` belong in the same task."""

    def __init__(self, all_of_them: Sequence[Lifespan]) -> None:
        self._all = all_of_them
        self._stack = AsyncExitStack()
        self._values: dict[Callable[..., Any], Any] = {}

    async def open(self) -> None:
        """In their order. Raises what they raise; then those that were open are closed."""
        try:
            for one in self._all:
                self._values[one.call] = await self._enter(one)
        except BaseException:
            await self._stack.aclose()
            raise

    async def _enter(self, one: Lifespan) -> Any:
        value = one.call()
        if inspect.isawaitable(value):
            value = await value
        manager = manager_of(value) or value
        if isinstance(manager, AbstractAsyncContextManager):
            return await self._stack.enter_async_context(manager)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if isinstance(manager, AbstractContextManager):
            return self._stack.enter_context(manager)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        raise Misuse(f"{one.function.where}: it yields once, between what it opens and what it closes")

    async def close(self, seconds: float) -> None:
        """The last one first. What takes longer is cancelled, and what goes wrong is in the log."""
        task = asyncio.current_task()
        assert task is not None
        # No task of its own, as `wait_for` would have: what was entered in one task is left in it.
        ending = asyncio.get_running_loop().call_later(seconds, task.cancel)
        try:
            await self._stack.aclose()
        except (Exception, asyncio.CancelledError) as error:
            log(error)
        finally:
            ending.cancel()

    def has(self, source: Callable[..., Any]) -> bool:
        return source in self._values

    def value(self, source: Callable[..., Any]) -> Any:
        return self._values[source]

    def of(self, module: str) -> Any:
        """That of the same file, else the first."""
        for one in self._all:
            if one.module == module:
                return self._values[one.call]
        return self._values[self._all[0].call] if self._all else None
