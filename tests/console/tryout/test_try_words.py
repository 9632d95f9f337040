"""Words in which somebody who tries a tool out in a browser hears that it was not called: whole, in tests/snapshots."""

from __future__ import annotations

from typing import Any

import trio
from msgspec.structs import replace
from trio.testing import MockClock

from server.agents.base.backend import ToolCall
from server.console.tryout import try_call
from server.console.tryout.tool_form import filled
from server.console.tryout.try_call import TryAnswer
from server.lib.rates.rates import rate
from server.lib.rates.usage_table import RateTable
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from server.store.limits.endpoint_gate import Gate, GateRules, ServerLimits
from server.store.limits.restraint_counts import Restraint
from tests.console.tryout.test_tool_form import MISFITS, one
from tests.interaction.agents import USER, House, agent, house, says
from tests.interaction.everything import NUMBER
from tests.snapshots import Snapshot


async def done(call: ToolCall, outlet: Outlet) -> ToolResult:
    return says("done")


async def stays(call: ToolCall, outlet: Outlet) -> ToolResult:
    await trio.sleep_forever()
    raise AssertionError


async def fails(call: ToolCall, outlet: Outlet) -> ToolResult:
    raise BackendError("the agent is not there")


async def tried(made: House, name: str, **arguments: Any) -> TryAnswer:
    who = replace(USER, scopes=frozenset({"mcp:tools:read"}))
    return await try_call.call(made.endpoint, who, name, arguments, call_id="c", address="10.0.0.1", once="o")


async def test_what_somebody_is_told_who_tries_a_tool(autojump_clock: MockClock, snapshot: Snapshot) -> None:
    lines: list[str] = []
    for schema, typed, _ in MISFITS:
        field = one(schema, required=True)
        (problem,) = filled([field], {field.name: typed}).problems.values()
        lines.append(f"{typed[:10]!r}, for {schema}\n  {field.label} {problem}")
    restraint = Restraint()
    callers = RateTable(rate(60, 60, 4), clock=lambda: 0)
    limits = ServerLimits(
        gate=Gate(GateRules(calls_at_once=0, loopback=True), restraint, addresses=None, callers=callers),
        restraint=restraint,
    )
    listed = {"done": Tool(name="done", input_schema=NUMBER)}
    terms = CallTerms(deadline_seconds=10_000)
    made = house(agent(listed=listed, terms=terms, done=done, stays=stays, fails=fails), limits=limits)
    for name in ("nothing", "fails", "stays", "done", "done"):
        answer = await tried(made, name)
        told = answer.problem or (answer.result or {})["content"][0]["text"]
        lines.append(f"{name}\n  {told}".replace("\n", "\n  ").replace("\n    ", "\n  "))
    snapshot("tried_tools", "\n".join(lines))
