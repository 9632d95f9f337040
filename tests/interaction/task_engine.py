"""An engine that keeps the tasks of a house in memory."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO

import structlog
import trio

from server.calls.servers.endpoint import Endpoint, TaskRules
from server.calls.sessions.background_tasks import BackgroundTasks
from server.calls.tasks.task_engine import Tasks, TaskTerms
from server.calls.tools_call import carry_out
from server.store.inline_store import open_inline_store

NOW = 1_800_000_000_000


@asynccontextmanager
async def engine(
    engines: list[Tasks],
    changed: list[Callable[[str], None]],
    endpoints: Mapping[str, Endpoint],
    *,
    wasmagent: bool,
) -> AsyncGenerator[TaskRules]:
    """`changed` are told of each task that is another than before. `endpoints` are where they are carried out."""

    def announce(_server: str, task_id: str) -> None:
        for tell in changed:
            tell(task_id)

    log = structlog.wrap_logger(structlog.PrintLogger(StringIO()))
    couriers = BackgroundTasks(log)
    async with open_inline_store(clock=lambda: NOW) as store, trio.open_nursery() as nursery:
        nursery.start_soon(couriers.run)
        kept = Tasks(
            store,
            perform=partial(carry_out, endpoints),
            clock=lambda: NOW,
            entropy=secrets.token_bytes,
            key=bytes(32),
            boot_id="boot",
            log=log,
            announce=announce,
            terms=TaskTerms(),
        )
        engines.append(kept)
        yield TaskRules(
            engine=kept, couriers=couriers, ttl_ms=60_000, wasmagent=wasmagent, sync_timeout_seconds=25
        )
        nursery.cancel_scope.cancel()
