"""Something that goes on while a block runs, and ends with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from server.client.client_errors import ClientError


@asynccontextmanager
async def beside(*tasks: Callable[[], Awaitable[object]]) -> AsyncGenerator[None, None]:
    """Expected errors of the block come out as they are, not in a group: its callers tell them apart."""
    expected: ClientError | None = None
    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task)
        try:
            yield
        except ClientError as error:
            expected = error
        nursery.cancel_scope.cancel()
    if expected is not None:
        raise expected
