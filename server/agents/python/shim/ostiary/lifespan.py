"""`@lifespan`: the function that opens what a file needs, before anybody calls, and closes it when the worker stops."""

from __future__ import annotations

from typing import Any, Callable

from .errors import Misuse
from .function import Function


class Lifespan:
    """A function that takes nothing and yields once, or returns something to be entered."""

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
