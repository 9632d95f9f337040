"""Requests of the handshake era outside of sessions: they run on without their clients, and so they are counted."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio
import trio.testing

from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source
from server.mcp.call_outlet import Outlet
from server.mcp.result_encoding import ToolResult
from server.transport.http import mcp_endpoint
from tests.interaction.agents import Agent, House, house, says
from tests.pair import encode, legacy

SLEEP = {"name": "sleep", "arguments": {}}


class Sleeper:
    def __init__(self) -> None:
        self.wake = trio.Event()

    async def __call__(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        await self.wake.wait()
        return says("awake")


def sleeping(sleeper: Sleeper) -> House:
    return house(Source(name="agent", backend=Agent({"sleep": sleeper})))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_endpoint, "MAX_ALONE", 3)


async def test_a_caller_who_leaves_again_and_again_does_not_pile_up_work() -> None:
    sleeper = Sleeper()
    made = sleeping(sleeper)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            body, headers = legacy("tools/call", SLEEP)
            left = await stack.enter_async_context(made.pair.open(body=body, headers=headers))
            await trio.testing.wait_all_tasks_blocked()
            left.hang_up()
        refused = await made.pair.legacy("tools/call", SLEEP)
        assert refused.status == 429
        assert refused.json["id"] == 1
        assert (await made.pair.legacy("tools/list")).status == 200, "what does not wait is answered"
        sleeper.wake.set()
        await trio.testing.wait_all_tasks_blocked()
        again = await made.pair.legacy("tools/call", SLEEP)
        assert again.json["result"]["content"][0]["text"] == "awake"


async def test_each_message_of_an_array_counts() -> None:
    sleeper = Sleeper()
    sleeper.wake.set()
    made = sleeping(sleeper)
    _, headers = legacy("tools/call", SLEEP)
    for count, status in ((3, 200), (4, 429)):
        array = [
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": SLEEP}
            for number in range(count)
        ]
        assert (await made.pair.request(body=encode(array), headers=headers)).status == status
