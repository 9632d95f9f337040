"""Agents are kept, begun and let go as the settings change (calls/servers/agent_lineup.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import structlog
import trio
import trio.testing

from server.agents.base.backend import Announce, ToolCall
from server.agents.base.catalog import Source
from server.calls.servers.agent_lineup import RunningAgents
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms


class Kind(msgspec.Struct, frozen=True):
    name: str
    breaks: bool = False


class Worker:
    def __init__(self, kind: Kind) -> None:
        self.kind, self.busy = kind, False
        self.running = self.closed = False

    def tools(self) -> Sequence[Tool]:
        return ()

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True

    async def run(self, announce: Announce, *, task_status: trio.TaskStatus[None]) -> None:
        if self.kind.breaks:
            raise BackendError("it is broken")
        self.running = True
        try:
            task_status.started()
            await trio.sleep_forever()
        finally:
            self.running = False


class House:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.made: list[Worker] = []
        announce = Announce(lists=lambda: None, resource=lambda _: None)
        self.agents = RunningAgents(self._make, announce, nursery, structlog.get_logger())

    def _make(self, position: int, settings: Any) -> Source:
        worker = Worker(settings)
        self.made.append(worker)
        return Source(name=f"main[{position}]", backend=worker, terms=CallTerms(deadline_seconds=30))


async def test_what_is_written_as_before_goes_on_and_the_rest_is_exchanged(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        house.agents.take(await house.agents.start([Kind("a"), Kind("b")]))
        a, b = house.made
        lineup = await house.agents.start([Kind("c"), Kind("a")])
        c = house.made[2]
        assert a.running and b.running and c.running  # beside each other, until it is taken
        assert [source.backend for source in lineup.sources] == [c, a]
        house.agents.take(lineup)
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(1)
        assert b.closed and not b.running and a.running and not a.closed
        nursery.cancel_scope.cancel()


async def test_what_is_let_go_finishes_its_calls_within_their_time(autojump_clock: trio.abc.Clock) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        house.agents.take(await house.agents.start([Kind("a"), Kind("b")]))
        quick, stuck = house.made
        quick.busy = stuck.busy = True
        house.agents.take(await house.agents.start([]))
        await trio.sleep(10)
        assert quick.running and stuck.running
        quick.busy = False
        await trio.sleep(1)
        assert quick.closed and not quick.running and stuck.running
        await trio.sleep(20)
        assert stuck.closed and not stuck.running
        nursery.cancel_scope.cancel()


async def test_one_that_cannot_start_leaves_everything_as_it_was(autojump_clock: trio.abc.Clock) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        house.agents.take(await house.agents.start([Kind("a")]))
        with pytest.raises(BackendError, match=r"main\[3\]: it is broken"):
            await house.agents.start([Kind("a"), Kind("b"), Kind("c", breaks=True)])
        await trio.sleep(1)
        a, b, _ = house.made
        assert a.running and not a.closed and b.closed and not b.running
        nursery.cancel_scope.cancel()


async def test_two_that_are_written_alike_are_two(autojump_clock: trio.abc.Clock) -> None:
    async with trio.open_nursery() as nursery:
        house = House(nursery)
        house.agents.take(await house.agents.start([Kind("a")]))
        house.agents.take(await house.agents.start([Kind("a"), Kind("a")]))
        await trio.sleep(1)
        assert len(house.made) == 2 and all(worker.running for worker in house.made)
        house.agents.take(await house.agents.start([Kind("a"), Kind("a")], renewed=lambda _: True))
        await trio.sleep(1)
        assert [worker.running for worker in house.made] == [False, False, True, True]
        nursery.cancel_scope.cancel()
