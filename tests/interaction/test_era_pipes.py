"""What holds on a pipe alone: lines, requests side by side, and its end."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from server.agents.base.backend import ToolCall
from server.mcp.call_outlet import Outlet
from server.mcp.result_encoding import ToolResult
from tests.interaction.agents import agent, says
from tests.interaction.pipe_client import PipeClient
from tests.interaction.session_house import Steps
from tests.interaction.wires import client
from tests.pair import encode
from tests.requirements import Cell


@pytest.mark.requirement("stdio.lines")
async def test_every_message_is_one_line_whatever_is_in_it(cell: Cell) -> None:
    said = 'two\nlines\r\n, a tab\t, "quotes", \u2028 and é'

    async def poet(call: ToolCall, outlet: Outlet) -> ToolResult:
        return says(said)

    async with client(cell, agent(poet=poet)) as one:
        assert isinstance(one, PipeClient)
        assert (await one.call("poet")).text == said
        assert await one.raw(b"") is None, "an empty line is no message"
        assert await one.raw(b"  \r") is None
        for line in one.lines:
            assert b"\n" not in line and b"\r" not in line
            assert json.loads(line.decode("utf-8"))["jsonrpc"] == "2.0"


@pytest.mark.requirement("stdio.side-by-side")
@pytest.mark.requirement("stdio.no-login")
async def test_a_request_that_takes_long_holds_no_other_up(cell: Cell) -> None:
    work = Steps()
    async with client(cell, agent(work=work)) as one, one.begins("tools/call", {"name": "work"}) as first:
        await work.begun.wait()
        assert (await one.ask("tools/list")).result["tools"]
        work.finish()
        assert (await first.reply()).text == "0 steps"


@pytest.mark.requirement("stdio.end")
async def test_what_runs_is_finished_when_the_client_closes_its_end(cell: Cell) -> None:
    work = Steps()
    async with client(cell, agent(work=work)) as one, one.begins("tools/call", {"name": "work"}) as asked:
        assert isinstance(one, PipeClient)
        await work.begun.wait()
        one.close()
        await trio.testing.wait_all_tasks_blocked()
        assert not one.finished.is_set()
        work.finish()
        assert (await asked.reply()).text == "0 steps"
        with trio.fail_after(60):
            await one.finished.wait()


@pytest.mark.requirement("safety.body", transport="stdio")
async def test_a_line_that_is_too_long_is_refused_and_the_next_is_read(cell: Cell) -> None:
    async with client(cell) as one:
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y" * 70_000}}
        refused = await one.raw(encode(message))
        assert refused["error"]["code"] == -32600 and "id" not in refused
        assert (await one.ask("tools/list")).result
