"""A nursery whose block raises what it raises, and not a group."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def bare_nursery() -> AsyncGenerator[trio.Nursery]:
    """Give a nursery whose tasks are cancelled at the end of the block. An error of the block comes out as it is."""
    raised: list[BaseException] = []
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except (Exception, GeneratorExit) as error:  # out of the nursery it would be a group
            raised.append(error)
        nursery.cancel_scope.cancel()
    if raised:
        raise raised.pop()
