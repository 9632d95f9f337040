"""The words of a file about itself as a whole: what it opens, what it does around its calls, what it settles for all its
tools, and which other files are part of it.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, TypeVar

from .errors import Misuse
from .hooks import Hook, Lifespan
from .registry import Registry, current

F = TypeVar("F", bound=Callable[..., Any])


def lifespan(function: F, /) -> F:
    """Open, before anybody calls, what the file needs, yield it, and close it when the worker stops.

    The function is an async generator, or what `contextlib.asynccontextmanager` makes of one; plain ones will do. Its value is
    `ctx.lifespan`, and `Provide(function)` fills a parameter with it."""
    current.get().add_lifespan(Lifespan(function))
    return function


def around(function: F, /) -> F:
    """Run `async def f(call, proceed)` in place of each call of a tool of this file; its result is that of the tool. `await
    proceed()` goes on: to the next of these, in the order of the file, and at last to the tool."""
    current.get().hooks.append(Hook(function, wraps=True))
    return function


def before_call(function: F, /) -> F:
    """Run `f(call)` before each call of a tool of this file: it may change `call.arguments`, or raise `ToolFailure`."""
    current.get().hooks.append(Hook(function, wraps=False))
    return function


def defaults(
    *, structured: bool | None = None, coerce: bool | None = None, show_errors: bool | None = None
) -> None:
    """Set what is usual for the tools below it in the file; `show_errors` for all of it. See `tool` for the first two.
    `show_errors`: callers see the text of an exception that nobody expected, which may say more than they should know."""
    settled = {"structured": structured, "coerce": coerce, "show_errors": show_errors}
    for name, value in settled.items():
        if value is not None:
            setattr(current.get().defaults, name, value)


def include(path: str | os.PathLike[str], prefix: str = "") -> None:
    """Offer all that another file offers, with the prefix and "_" before the names of tools and prompts, and as the first
    step of resources. The path is as seen from this file."""
    from .loading import load_beside

    caller = sys._getframe(1).f_globals.get("__file__")  # pyright: ignore[reportPrivateUsage] - whose path it is seen from
    file = os.path.join(os.path.dirname(os.path.abspath(caller or "")), os.fspath(path))
    outer = current.get()
    if os.path.realpath(file) in outer.including:
        raise Misuse(f"{os.fspath(path)} is included by what it includes")
    inner = Registry()
    inner.included = outer.included
    inner.including = {*outer.including, os.path.realpath(file)}
    load_beside(inner, file)
    outer.take(inner, prefix)
