"""Nodes in one process: houses with all that two machines have of their own, and one store. What one writes the others are woken for."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from typing import Any

import structlog
import trio

from server.agents.base.catalog import Source
from server.calls.servers.change_news import ChangesElsewhere, hear_changes
from server.calls.servers.endpoint import Endpoint, TaskRules
from server.calls.sessions.background_tasks import BackgroundTasks
from server.calls.sessions.ended_sessions import EndedSessions
from server.calls.sessions.session_ids import SessionIds
from server.calls.sessions.sessions import MAX_PER_CALLER, Sessions
from server.calls.sessions.shared_sessions import SharedSessions
from server.calls.tasks.task_engine import Tasks, TaskTerms
from server.calls.tools_call import carry_out
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import StoreDb
from server.store.node_messages.node_messages import NodeMessages
from tests.interaction.agents import House, house
from tests.interaction.session_house import Living
from tests.pair import NodeConversation

KEY = bytes(range(32))
NOW = 1_800_000_000_000


def clock() -> int:
    return NOW + round(trio.current_time() * 1000)


class WakingStore:
    """A store that says when something was written."""

    def __init__(self, store: InlineStore) -> None:
        self.kept = store
        self.bells: list[trio.Event] = []
        self.written = 0
        self.on_changes = store.on_changes
        self.on_audit = store.on_audit
        self.on_trust = store.on_trust
        self.on_letters = store.on_letters
        self.chain_audit = store.chain_audit

    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        try:
            return await self.kept.write(job)
        finally:
            self.written += 1
            for bell in self.bells:
                bell.set()

    async def read(self, job: Callable[[StoreDb], Any]) -> Any:
        return await self.kept.read(job)


@dataclass(kw_only=True)
class Street:
    """All that the nodes have in common."""

    store: WakingStore
    alive: list[str] = field(default_factory=list)
    lines: list[Any] = field(default_factory=list)

    def letters(self, name: str) -> NodeMessages:
        """Of a node that lives from now on."""
        self.alive.append(name)

        def keep(_logger: object, level: str, event: Any) -> Any:
            self.lines.append({**event, "level": level})
            raise structlog.DropEvent

        return NodeMessages(
            self.store,
            node=name,
            key=KEY,
            clock=clock,
            entropy=secrets.token_bytes,
            others=lambda: [one for one in self.alive if one != name],
            log=structlog.wrap_logger(structlog.PrintLogger(StringIO()), processors=[keep]),
        )

    async def deliver(self, letters: NodeMessages) -> None:
        """As the feed of a store does: woken by what others write."""
        bell = trio.Event()
        self.store.bells.append(bell)
        await letters.look()
        while True:
            await bell.wait()
            self.store.bells.remove(bell)
            bell = trio.Event()
            self.store.bells.append(bell)
            await letters.look()


@asynccontextmanager
async def street() -> AsyncGenerator[Street]:
    async with open_inline_store(clock=clock) as store:
        yield Street(store=WakingStore(store))


@dataclass(kw_only=True)
class Neighbour:
    name: str
    letters: NodeMessages
    living: Living
    tasks: Tasks
    shared: SharedSessions
    nursery: trio.Nursery

    @property
    def pair(self) -> Any:
        return self.living.pair

    @property
    def house(self) -> House:
        return self.living.house

    @property
    def sessions(self) -> Sessions:
        return self.living.sessions

    def talk(self, one: NodeConversation) -> NodeConversation:
        """The same client, whose requests come here. It numbers them on."""
        return NodeConversation(
            pair=self.pair, headers=one.headers, welcome=one.welcome, _asked=one._asked + 1000
        )

    def die(self, of: Street) -> None:
        """At once, with all that is in its memory."""
        of.alive.remove(self.name)
        self.nursery.cancel_scope.cancel()


@asynccontextmanager
async def neighbour(
    of: Street, name: str, *sources: Source, age_ms: int = 60_000, **how: Any
) -> AsyncGenerator[Neighbour]:
    """`age_ms`: how long ago it began."""
    letters = of.letters(name)
    ended = EndedSessions(of.store)
    await ended.load()
    shared = SharedSessions(
        letters,
        ended,
        of.store,
        key=KEY,
        per_caller=MAX_PER_CALLER,
        clock=clock,
        entropy=secrets.token_bytes,
        log=structlog.get_logger(),
    )
    ids = SessionIds(KEY, "main", clock=clock, entropy=secrets.token_bytes)
    sessions = Sessions(ids, ended, shared=shared)
    sessions._began_at -= age_ms
    endpoints: dict[str, Endpoint] = {}
    log = structlog.wrap_logger(structlog.PrintLogger(StringIO()))
    tasks = Tasks(
        of.store,
        perform=partial(carry_out, endpoints),
        clock=clock,
        entropy=secrets.token_bytes,
        key=KEY,
        boot_id=name,
        log=log,
        announce=lambda server, task_id: endpoints[server].task_changed(task_id),
        terms=TaskTerms(),
        letters=letters,
    )
    couriers = BackgroundTasks(log)
    rules = TaskRules(engine=tasks, couriers=couriers, ttl_ms=3_600_000)
    made = house(*sources, sessions=sessions, tasks=rules, elsewhere=ChangesElsewhere(letters, "main"), **how)
    endpoints["main"] = made.endpoint
    hear_changes(letters, endpoints)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.mcp.crew.run)
        nursery.start_soon(couriers.run)
        nursery.start_soon(letters.run)
        nursery.start_soon(shared.run)
        nursery.start_soon(of.deliver, letters)
        await nursery.start(tasks.run)
        yield Neighbour(
            name=name,
            letters=letters,
            living=Living(made, sessions),
            tasks=tasks,
            shared=shared,
            nursery=nursery,
        )
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def two(*sources: Source, **how: Any) -> AsyncGenerator[tuple[Street, Neighbour, Neighbour]]:
    """Both alive, and each knows of the other."""
    async with street() as of, AsyncExitStack() as stack:
        one = await stack.enter_async_context(neighbour(of, "a" * 16, *sources, **how))
        other = await stack.enter_async_context(neighbour(of, "b" * 16, *sources, **how))
        await trio.testing.wait_all_tasks_blocked()
        yield of, one, other
