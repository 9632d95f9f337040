"""Several back-ends behind one list of tools, and the agent of the first day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from server.agents.base.backend import AgentRequest, ToolCall
from server.agents.base.catalog import Catalog, CatalogError, Source
from server.agents.base.demo_agent import DEMO_TERMS, Demo
from server.calls.agent_use import MUTE
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.messages import Prompt, Resource, ResourceTemplate, Tool
from server.mcp.result_encoding import ToolResult
from server.mcp.schema import ToolSchema
from server.mcp.terms import CallTerms
from tests.interaction.agents import ANYTHING, USER, Agent, agent, house, says
from tests.interaction.test_sdk_failures import Shelf


async def work(call: ToolCall, outlet: Outlet) -> ToolResult:
    return says("done")


def test_tools_come_in_the_order_of_the_sources_and_of_each_back_end() -> None:
    catalog = Catalog(
        [
            Source(name="one", backend=Agent({"z": work, "a": work})),
            Source(name="two", backend=Agent({"m": work})),
        ]
    )
    assert [entry.tool.name for entry in catalog.entries()] == ["z", "a", "m"]


@pytest.mark.requirement("tools.name")
def test_everything_that_is_wrong_is_reported_at_once_and_by_name() -> None:
    bad = Tool(name="bad", input_schema={"type": "string"})
    sources = [
        Source(name="one", backend=Agent({"same": work, "bad": work, "no good": work}, {"bad": bad})),
        Source(name="two", backend=Agent({"same": work}), tool_terms={"missing": CallTerms()}),
    ]
    with pytest.raises(CatalogError) as caught:
        Catalog(sources)
    first, second, third, fourth = caught.value.problems
    assert "one" in first and "bad: inputSchema" in first
    assert "'no good' is no tool name" in second
    assert "two has terms for the tool missing" in third
    assert "same is offered by one and by two" in fourth


def test_a_refresh_that_cannot_be_offered_changes_nothing() -> None:
    backend = Agent({"a": work})
    catalog = Catalog([Source(name="one", backend=backend)])
    backend.work["b b"] = work
    with pytest.raises(CatalogError):
        catalog.refresh()
    assert [entry.tool.name for entry in catalog.entries()] == ["a"]


def test_a_tool_is_called_on_its_own_terms_or_else_on_its_sources() -> None:
    source = Source(
        name="one",
        backend=Agent({"a": work, "b": work}),
        terms=CallTerms(deadline_seconds=60),
        tool_terms={"b": CallTerms(quick=True)},
    )
    catalog = Catalog([source])
    a, b = catalog.entries()
    assert (a.terms.deadline_seconds, a.terms.quick) == (60, False)
    assert (b.terms.deadline_seconds, b.terms.quick) == (300, True)


async def test_closing_closes_every_back_end_even_beside_one_that_hangs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Hanging(Agent):
        async def aclose(self) -> None:
            await trio.sleep_forever()

    backends = [Agent({"a": work}), Hanging({"b": work}), Agent({"c": work})]
    catalog = Catalog([Source(name=str(number), backend=backend) for number, backend in enumerate(backends)])
    with trio.fail_after(10):
        await catalog.aclose()
    assert backends[0].closed and backends[2].closed


async def test_whose_resources_are_a_callers_alone_is_asked_of_all_at_once() -> None:
    asked: list[str] = []
    all_were = trio.Event()

    class Own(Shelf):
        def __init__(self, name: str) -> None:
            super().__init__({name: work})
            self.name = name

        def resources(self) -> Sequence[Resource]:
            return []

        def resource_templates(self) -> Sequence[ResourceTemplate]:
            return []

        def prompts(self) -> Sequence[Prompt]:
            return []

        async def resources_of(self, request: AgentRequest) -> Sequence[Resource]:
            asked.append(self.name)
            if len(asked) == 2:
                all_were.set()
            await all_were.wait()
            return [
                Resource(uri="note://same", name=self.name),
                Resource(uri=f"note://{self.name}", name="-"),
            ]

    catalog = Catalog([Source(name=name, backend=Own(name)) for name in ("one", "two")])
    with trio.fail_after(60):
        found = await catalog.resources_of(AgentRequest(subject="alice", call_id="c"))
    assert [(each.resource.uri, each.resource.name) for each in found] == [
        ("note://same", "one"),
        ("note://one", "-"),
        ("note://two", "-"),
    ]


async def test_an_answer_that_breaks_its_promise_is_a_fault_of_the_server() -> None:
    async def wrong(call: ToolCall, outlet: Outlet) -> ToolResult:
        return ToolResult(content=(), structured={"n": "x"})

    async def failing(call: ToolCall, outlet: Outlet) -> ToolResult:
        return ToolResult(content=(), is_error=True)

    promise: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
    listed = {
        name: Tool(name=name, input_schema=ANYTHING, output_schema=promise) for name in ("wrong", "failing")
    }
    made = house(agent(listed=listed, wrong=wrong, failing=failing))
    answer = await made.pair.modern("tools/call", {"name": "wrong"})
    assert answer.json["error"]["code"] == -32603
    assert (await made.pair.modern("tools/call", {"name": "failing"})).json["result"]["isError"] is True
    assert made.measured == [("wrong", "crashed"), ("failing", "error")]


async def test_a_structured_answer_without_text_gets_its_json_as_text() -> None:
    async def bare(call: ToolCall, outlet: Outlet) -> ToolResult:
        return ToolResult(content=(), structured={"n": 1})

    answer = await house(agent(bare=bare)).pair.legacy("tools/call", {"name": "bare"}, version="2024-11-05")
    assert answer.json["result"]["content"] == [{"type": "text", "text": '{"n":1}'}]


@pytest.mark.requirement("auth.no-passthrough", era="modern")
async def test_the_back_end_learns_who_asks_and_nothing_of_the_token() -> None:
    seen: list[ToolCall] = []

    async def look(call: ToolCall, outlet: Outlet) -> ToolResult:
        seen.append(call)
        return says("seen")

    made = house(agent(look=look), tokens={"sesame": USER})
    await made.pair.modern(
        "tools/call", {"name": "look", "arguments": {"n": 10**30}}, authorization="Bearer sesame"
    )
    (call,) = seen
    called = ToolCall(
        tool="look",
        arguments={"n": 10**30},
        subject="user-1",
        sharer="user:user-1",
        call_id="request-1",
        caller=USER,
    )
    assert call.came is not None  # what the body had, which a token is no part of
    assert b"sesame" not in bytes(call.came)
    assert replace(call, came=None, origin=None) == called
    # What it may ask about the request holds no token either, nor does what would be printed of it.
    assert call.origin is not None
    assert "sesame" not in repr(call.origin.asked_by()) + repr(call)
    assert call.origin.header(b"authorization") is None


def demo_now(zone: tzinfo) -> datetime:
    return datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC).astimezone(zone)


async def clock(**arguments: Any) -> ToolResult:
    call = ToolCall(tool="clock", arguments=arguments, subject="s", call_id="c")
    return await Demo(now=demo_now).call(call, MUTE)


async def test_the_clock_tells_the_time_in_a_zone() -> None:
    assert (await clock()).structured == {
        "time": "2026-01-02T03:04:05+00:00",
        "zone": "UTC",
        "utc_offset_minutes": 0,
    }
    answer = await clock(zone="America/New_York")
    assert answer.structured == {
        "time": "2026-01-01T22:04:05-05:00",
        "zone": "America/New_York",
        "utc_offset_minutes": -300,
    }


@pytest.mark.parametrize("zone", ["Nowhere", "Europe", "Europe/", "a" * 64])
async def test_an_unknown_zone_is_the_tools_own_failure(zone: str) -> None:
    answer = await clock(zone=zone)
    assert answer.is_error and "Europe/Berlin" in answer.content[0].text  # type: ignore[union-attr]


async def test_a_zone_is_a_name_and_never_a_path() -> None:
    schema = ToolSchema(Demo().tools()[1])
    for zone in ("../../etc/passwd", "/etc/passwd", "Europe/../Berlin", "a" * 65):
        assert schema.problems({"zone": zone})


async def test_a_tool_that_the_demo_does_not_have_cannot_be_run() -> None:
    with pytest.raises(BackendError):
        await Demo().call(ToolCall(tool="other", arguments={}, subject="s", call_id="c"), MUTE)


def test_the_demos_terms_are_for_tools_that_it_has() -> None:
    catalog = Catalog([Source(name="demo", backend=Demo(), tool_terms=DEMO_TERMS)])
    quick = {entry.tool.name: entry.terms.quick for entry in catalog.entries()}
    assert quick == {"echo": True, "clock": True, "countdown": False}
