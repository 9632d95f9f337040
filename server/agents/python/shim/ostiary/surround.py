"""A call whose function is not alone: what is provided for it, and the hooks around it.

A plain function runs with plain and async providers in one thread, so that a connection stays in the thread that made it; an async one
runs with all of them in the loop. A hook that is async runs in the loop, and a plain function that it goes on to in a thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from functools import partial
from typing import Any, Callable, Protocol

from .context import Context, Line, SyncContext
from .function import Function
from .hooks import Hook, ToolUse
from .lifespans import Lifespans
from .provide import manager_of

Json = dict[str, Any]
Source = Callable[..., Any]


class Runner(Line, Protocol):
    """The call, to what surrounds its function."""

    @property
    def lifespans(self) -> Lifespans: ...

    async def in_thread(self, work: Callable[[], Any]) -> Any: ...

    async def whole(self, value: Any) -> Any:
        """What it comes to, in the loop: awaited, or gathered from a generator."""
        ...

    def whole_here(self, value: Any) -> Any:
        """The same in a thread."""
        ...

    def wait_at_the_end(self, awaitable: Any) -> Any:
        """From a thread, even when the call was cancelled: something is to be closed."""
        ...


class Surrounded:
    def __init__(
        self,
        runner: Runner,
        function: Function,
        arguments: dict[str, Any],
        shape: Callable[[Any], Json],
        *,
        tool: str = "",
        tags: frozenset[str] = frozenset(),
        hooks: Sequence[Hook] = (),
    ) -> None:
        self._runner = runner
        self._function = function
        self._use = ToolUse(tool, tags, arguments, Context(runner))
        self._shape = shape
        self._hooks = tuple(hooks)
        self._wrapped = any(hook.wraps for hook in self._hooks)
        self._made: dict[Source, Any] = {}
        self.in_loop = function.is_async or any(hook.is_async for hook in self._hooks)

    # ── in a thread ──

    def run_here(self) -> Json:
        for hook in self._hooks:
            hook.call(self._use)
        return self._run_here(self._shape)

    def _run_here(self, finish: Callable[[Any], Any]) -> Any:
        with ExitStack() as stack:
            filled = self._filled_here(self._function, SyncContext(self._runner), stack)
            return finish(self._runner.whole_here(self._function.call(**self._use.arguments, **filled)))
        raise RuntimeError("what was provided kept to itself why the function failed")

    def _filled_here(self, function: Function, context: SyncContext, stack: ExitStack) -> Json:
        filled = {
            name: self._provided_here(source, provider, stack)
            for name, (source, provider) in function.provided.items()
        }
        if function.context is not None:
            filled[function.context] = context
        return filled

    def _provided_here(self, source: Source, provider: Function, stack: ExitStack) -> Any:
        if source in self._made:
            return self._made[source]
        runner = self._runner
        if runner.lifespans.has(source):
            return runner.lifespans.value(source)
        context: Any = Context(runner) if provider.is_async else SyncContext(runner)
        value = provider.call(**self._filled_here(provider, context, stack))
        if inspect.iscoroutine(value):
            value = runner.wait(value)
        manager = manager_of(value)
        if isinstance(manager, AbstractAsyncContextManager):
            value = runner.wait(_entering(manager))
            stack.push(partial(_leave_here, runner, manager))
        elif manager is not None:
            value = stack.enter_context(manager)
        self._made[source] = value
        return value

    # ── in the loop ──

    async def run_in_loop(self) -> Json:
        if not self._wrapped:
            await self._before(0)
            return await self._run(self._shape)
        return self._shape(await self._go_on(0))

    async def _before(self, number: int) -> None:
        for hook in self._hooks[number:]:
            came = hook.call(self._use)
            if inspect.isawaitable(came):
                await came

    async def _go_on(self, number: int) -> Any:
        if number == len(self._hooks):
            return await self._run(lambda value: value)
        hook = self._hooks[number]
        if hook.wraps:
            return await hook.call(self._use, partial(self._go_on, number + 1))
        came = hook.call(self._use)
        if inspect.isawaitable(came):
            await came
        return await self._go_on(number + 1)

    async def _run(self, finish: Callable[[Any], Any]) -> Any:
        self._made = {}  # a hook may go on twice
        if not self._function.is_async:
            return await self._runner.in_thread(partial(self._run_here, finish))
        async with AsyncExitStack() as stack:
            filled = await self._filled(self._function, Context(self._runner), stack)
            return finish(await self._runner.whole(self._function.call(**self._use.arguments, **filled)))
        raise RuntimeError("what was provided kept to itself why the function failed")

    async def _filled(self, function: Function, context: Any, stack: AsyncExitStack) -> Json:
        filled = {
            name: await self._provided(source, provider, stack)
            for name, (source, provider) in function.provided.items()
        }
        if function.context is not None:
            filled[function.context] = context
        return filled

    async def _provided(self, source: Source, provider: Function, stack: AsyncExitStack) -> Any:
        if source in self._made:
            return self._made[source]
        if self._runner.lifespans.has(source):
            return self._runner.lifespans.value(source)
        context: Any = Context(self._runner) if provider.is_async else SyncContext(self._runner)
        value = provider.call(**await self._filled(provider, context, stack))
        if inspect.isawaitable(value):
            value = await value
        manager = manager_of(value)
        if isinstance(manager, AbstractAsyncContextManager):
            value = await stack.enter_async_context(manager)
        elif manager is not None:
            value = stack.enter_context(manager)
        self._made[source] = value
        return value


async def _entering(manager: AbstractAsyncContextManager[Any]) -> Any:
    return await manager.__aenter__()


def _leave_here(runner: Runner, manager: AbstractAsyncContextManager[Any], *error: Any) -> bool:
    return bool(runner.wait_at_the_end(manager.__aexit__(*error)))
