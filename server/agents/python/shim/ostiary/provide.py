"""`Annotated[Db, Provide(get_db)]`: a parameter that the file fills itself, so that no caller sees or sends it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from typing import Any, Callable, Optional, TypeVar, Union, cast

T = TypeVar("T")
Manager = Optional[Union["AbstractAsyncContextManager[Any]", "AbstractContextManager[Any]"]]


class Provide:
    """`source` is a function: plain, async, or a generator of either kind that yields the value once and cleans up behind it. It is
    called once in each call of a tool, and may itself take a context and what others provide. The function under `@lifespan`
    provides what it has yielded at the start."""

    def __init__(self, source: Callable[..., Any]) -> None:
        self.source = source


def _itself(value: T) -> T:
    return value


def manager_of(value: Any) -> Manager:
    """Of a generator, and of what `contextlib` makes of one. Other values, even such as could be entered, are what is provided."""
    if inspect.isasyncgen(value):
        return asynccontextmanager(partial(_itself, cast("AsyncGenerator[Any]", value)))()
    if inspect.isgenerator(value):
        return contextmanager(partial(_itself, cast("Generator[Any]", value)))()
    if hasattr(value, "gen") and isinstance(value, (AbstractAsyncContextManager, AbstractContextManager)):
        return value  # pyright: ignore[reportUnknownVariableType]
    return None
