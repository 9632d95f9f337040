"""The hooks of a file: `@around` and `@before_call`, which run around each call of its tools, and `@lifespan`, which runs
around all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, Callable

from .context import Context
from .errors import Misuse
from .function import Function
from .hints import own

Proceed = Callable[[], Awaitable[Any]]


class ToolUse:
    """A call as a hook sees it. `arguments` are those that the function will get, converted to its hints: a hook may change
    them."""

    def __init__(self, tool: str, tags: frozenset[str], arguments: dict[str, Any], context: Context) -> None:
        self.tool = tool
        self.tags = tags
        self.arguments = arguments
        self.context = context


class Hook:
    """A function around calls. `wraps`: it goes on with the call itself."""

    def __init__(self, call: Callable[..., Any], *, wraps: bool) -> None:
        what = "@around" if wraps else "@before_call"
        if not callable(call) or inspect.isclass(call):
            raise Misuse(f"{what} stands over a function")
        self.call = call
        self.wraps = wraps
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(own(call)))
        if wraps and not self.is_async:
            raise Misuse(
                f"{what}: {own(call).__name__}() is to be an `async def f(call, proceed)` that awaits proceed()"
            )


class Lifespan:
    """A function that opens what a file needs and closes it: it takes nothing and yields once, or returns something to be
    entered."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.function = Function(call, "the lifespan")
        self.call = call
        self.module: str = getattr(call, "__module__", "")
        if (
            self.function.context is not None
            or self.function.provided
            or any(f.required for f in self.function.parameters)
        ):
            raise Misuse(f"{self.function.where}: it runs before anybody calls, and takes nothing")
