"""Nodes that come and go tell the others, which do not wait until it is time to look (server/run/node_message_loop.py). The clock stands still:
whatever is known here was not found out by waiting."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from msgspec.structs import replace

from server.lib.log.metrics import Metrics
from server.run.node_membership import Membership, this_node
from server.run.node_message_loop import NodeMessageLoop
from server.store.inline_store import InlineStore
from server.store.jobs import JobTooSlow, StoreDb
from server.store.node_messages import node_message_rows
from server.store.node_messages.node_messages import NodeMessage
from server.store.node_rows import NodeSaid
from tests.inline_postgres import open_inline_postgres_store
from tests.store.node_messages.neighbours import KEY, NOW


class RingingStore:
    """With each new letter all are told that there may be some; as the feed of a store does."""

    def __init__(self, store: InlineStore) -> None:
        self.kept = store
        self.bells: list[Callable[[], None]] = []
        self.on_letters = self.bells.append
        self._newest = 0
        self.too_slow = False

    async def write(self, job: Callable[[StoreDb], Any]) -> Any:
        found = await self.kept.write(job)
        newest = await self.kept.read(node_message_rows.newest)
        if newest != self._newest:
            self._newest = newest
            for ring in self.bells:
                ring()
        return found

    async def read(self, job: Callable[[StoreDb], Any]) -> Any:
        if self.too_slow:
            await trio.lowlevel.checkpoint()
            raise JobTooSlow("too long")
        return await self.kept.read(job)


class LivingNode:
    def __init__(self, store: RingingStore, folder: Path, name: str) -> None:
        node = replace(this_node(name, folder, address=f"{name}:1"), home=name, place=name)
        log = structlog.wrap_logger(structlog.ReturnLogger())
        self.membership = Membership(store, node, log, alone=False)  # pyright: ignore[reportArgumentType]
        self.membership.describe = lambda: NodeSaid("serving")
        self.lost: list[str] = []
        self.membership.on_loss.append(lambda: self.lost.append("loss"))
        self._store = store
        self._log = log
        self.talks: NodeMessageLoop | None = None

    @property
    def knows(self) -> list[str]:
        return [other.boot_id for other in self.membership.others]

    @asynccontextmanager
    async def living(self) -> AsyncGenerator[NodeMessageLoop]:
        await self.membership.enter()
        talks = NodeMessageLoop(
            self._store, self.membership, lambda _: KEY, self._log, Metrics("1")  # pyright: ignore[reportArgumentType]
        )  # fmt: skip
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.membership.run)
            nursery.start_soon(talks.run)
            yield talks
            nursery.cancel_scope.cancel()


@pytest.fixture
async def store(postgres_database: dict[str, str]) -> AsyncGenerator[RingingStore]:
    async with open_inline_postgres_store(postgres_database, clock=lambda: NOW) as store:
        yield RingingStore(store)


async def test_one_that_comes_and_one_that_leaves_are_known_to_the_others_at_once(
    store: RingingStore, tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    a, b = LivingNode(store, tmp_path, "a"), LivingNode(store, tmp_path, "b")
    async with a.living():
        await trio.testing.wait_all_tasks_blocked()
        async with b.living() as talks:
            await trio.testing.wait_all_tasks_blocked()
            assert (a.knows, b.knows) == (["b"], ["a"])
        await b.membership.leave(talks.goodbye())
        await trio.testing.wait_all_tasks_blocked()
        assert (a.knows, a.lost) == ([], ["loss"])
    assert mock_clock.current_time() == 0


async def test_whoever_is_new_is_told_at_once_what_the_others_have_to_say(
    store: RingingStore, tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    a, b = LivingNode(store, tmp_path, "a"), LivingNode(store, tmp_path, "b")
    heard: list[str] = []
    async with a.living() as talks:
        talks.letters.on_company(lambda: talks.letters.send_soon("watches", "all") or None)
        await trio.testing.wait_all_tasks_blocked()
        async with b.living() as other:

            def hear(letter: NodeMessage) -> None:
                heard.append(letter.topic)

            other.letters.hear("watches", hear)
            await trio.testing.wait_all_tasks_blocked()
            assert heard == ["all"]
    assert mock_clock.current_time() == 0


async def test_a_store_that_is_too_slow_to_be_read_ends_nothing(
    store: RingingStore, tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    a, b = LivingNode(store, tmp_path, "a"), LivingNode(store, tmp_path, "b")
    async with a.living():
        await trio.testing.wait_all_tasks_blocked()
        store.too_slow = True
        for ring in store.bells:
            ring()
        await trio.testing.wait_all_tasks_blocked()
        store.too_slow = False
        async with b.living():
            await trio.testing.wait_all_tasks_blocked()
            assert (a.knows, b.knows) == (["b"], ["a"])
    assert mock_clock.current_time() == 0


async def test_one_that_is_another_now_says_so_at_once(
    store: RingingStore, tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    a = LivingNode(store, tmp_path, "a")

    async def state() -> str:
        rows = await store.read(lambda db: db.fetch_all("SELECT state FROM nodes"))
        return rows[0]["state"]

    async with a.living():
        await trio.testing.wait_all_tasks_blocked()
        a.membership.describe = lambda: NodeSaid("draining")
        a.membership.look_now()
        await trio.testing.wait_all_tasks_blocked()
        assert await state() == "draining"
    assert mock_clock.current_time() == 0
