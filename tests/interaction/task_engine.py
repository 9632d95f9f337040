"""An engine that keeps the tasks of a house in memory."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any

import structlog

from server.calls import Asked, Calls
from server.mcp.tasks import Completed, Ending
from server.store.inline import open_inline_store
from server.tasks.desk import Tasking
from server.tasks.engine import Tasks, TaskTerms
from server.tasks.order import Order

NOW = 1_800_000_000_000


@asynccontextmanager
async def engine(
    engines: list[Tasks], changed: list[Callable[[str], None]], *, wasmagent: bool
) -> AsyncGenerator[Callable[[Calls], Tasking]]:
    """`changed` are told of each task that is another than before."""

    def announce(_server: str, task_id: str) -> None:
        for tell in changed:
            tell(task_id)

    async with open_inline_store(clock=lambda: NOW) as store:

        def tasking(calls: Calls) -> Tasking:
            async def perform(order: Order, outlet: Any) -> Ending:
                asked = Asked(
                    order.principal.principal(),
                    order.tool,
                    order.arguments,
                    order.call_id,
                    outlet=outlet,
                    can=order.can,
                    wants_progress=True,
                    log_level="debug",
                    unhurried=True,
                )
                return Completed(await calls.call(asked))

            engine = Tasks(
                store,
                perform=perform,
                clock=lambda: NOW,
                entropy=secrets.token_bytes,
                key=bytes(32),
                boot_id="boot",
                log=structlog.wrap_logger(structlog.PrintLogger(StringIO())),
                announce=announce,
                terms=TaskTerms(),
            )
            engines.append(engine)
            return Tasking(
                name="main",
                tasks=engine,
                calls=calls,
                wasmagent=wasmagent,
                sync_timeout_seconds=25,
                ttl_ms=60_000,
            )

        yield tasking
