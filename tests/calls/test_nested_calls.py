"""What a running call uses of its own server, counted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace as replace_struct

from server.agents.base.backend import NoSuchResource, ToolCall, UseKind
from server.agents.base.catalog import Catalog, ToolPrices
from server.calls.nested_calls import MOST_DEPTH, MOST_USES, use
from server.calls.request import Request
from server.calls.servers.endpoint import Endpoint
from server.calls.sessions.session import Session
from server.calls.tools_call import TOOL_CALL
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.inbound_messages import Route
from server.mcp.messages import ResourceContents, TextContent
from server.mcp.method_params import CallToolParams, RequestMeta
from server.mcp.result_encoding import ToolResult
from server.mcp.versions import LATEST, TASKS_EXTENSION
from server.payments.seller.till import Till
from tests.interaction.agents import USER, agent, house, says
from tests.interaction.everything import everything

SEVEN = TextContent(text='{"n":7}')
ONE = ResourceContents(uri="test://one", mime_type="text/plain", text="content")


def _outer(endpoint: Endpoint) -> Request:
    route = Route(TOOL_CALL, 1, CallToolParams(name="x"), LATEST, None, 0)
    return Request(endpoint=endpoint, principal=USER, call_id="call_1", route=route)


async def test_uses_are_counted_on_all_levels_together() -> None:
    route = Route(TOOL_CALL, 1, CallToolParams(name="x"), LATEST, None, 0)
    endpoint = house().endpoint
    outer = Request(endpoint=endpoint, principal=USER, call_id="call_1", route=route)
    inside = [
        Request(
            endpoint=endpoint,
            principal=USER,
            call_id=f"call_1.{number}",
            route=route,
            depth=1,
            outermost=outer,
        )
        for number in (1, 2)
    ]
    outer.used_inside = MOST_USES - 3
    for request in (outer, *inside):
        with pytest.raises(NoSuchResource):
            await use(request, "tool", "unheard-of", {})
    assert outer.used_inside == MOST_USES
    for request in (outer, *inside):
        with pytest.raises(BackendError, match="no more than 1000 others"):
            await use(request, "tool", "echo", {"text": "x"})
    assert [request.used for request in (outer, *inside)] == [1, 1, 1]


@pytest.mark.parametrize(("what", "name"), [("resource", "test://asks"), ("prompt", "asks")])
async def test_what_asks_its_caller_answers_no_call(what: UseKind, name: str) -> None:
    request = _outer(house(everything()).endpoint)
    with pytest.raises(BackendError):
        await use(request, what, name, {})
    found = await use(request, "prompt", "greet", {"name": "ada"})
    assert "ada" in str(found["messages"])


@pytest.mark.parametrize(
    ("what", "name", "arguments", "found"),
    [
        ("tool", "plain", {}, {"content": (TextContent(text="done"),), "isError": False}),
        ("tool", "structured", {}, {"content": (SEVEN,), "isError": False, "structuredContent": {"n": 7}}),
        ("tool", "fails", {}, {"content": (TextContent(text="no luck today"),), "isError": True}),
        ("tool", "asks", {}, None),
        ("resource", "test://one", {}, {"contents": [ONE]}),
        ("prompt", "greet", {"name": 1}, None),
        ("prompt", "greet", {}, None),
    ],
)
async def test_what_is_used_is_answered_in_the_fields_of_its_result(
    what: UseKind, name: str, arguments: dict[str, Any], found: dict[str, Any] | None
) -> None:
    request = _outer(house(everything()).endpoint)
    if found is None:
        with pytest.raises(BackendError):
            await use(request, what, name, arguments)
    else:
        assert await use(request, what, name, arguments) == found


async def test_nothing_is_bought_inside_of_a_call() -> None:
    prices = cast("ToolPrices", SimpleNamespace(price=lambda *_: "0.01", shown=lambda tool, _: tool))
    catalog, till = Catalog((everything(),), prices=prices), cast("Till", object())
    request = _outer(replace(house().endpoint, catalog=catalog, till=till))
    with pytest.raises(BackendError, match="has a price"):
        await use(request, "tool", "plain", {})


async def test_calls_inside_of_calls_go_so_deep_and_no_deeper() -> None:
    request = _outer(house(everything()).endpoint)
    request.depth = MOST_DEPTH - 1
    await use(request, "tool", "plain", {})
    request.depth = MOST_DEPTH
    with pytest.raises(BackendError, match=f"no deeper than {MOST_DEPTH}"):
        await use(request, "tool", "plain", {})


async def test_a_call_inside_of_a_call_is_told_from_others_like_the_call_around_it() -> None:
    heard: list[str] = []

    async def whose(call: ToolCall, outlet: Outlet) -> ToolResult:
        heard.append(call.apart)
        return says("-")

    route = Route(TOOL_CALL, 1, CallToolParams(name="x"), LATEST, None, 0)
    endpoint = house(agent(whose=whose)).endpoint
    for session in ("one", "two"):
        outer = Request(
            endpoint=endpoint,
            principal=USER,
            call_id="call_1",
            route=route,
            session=cast("Session", SimpleNamespace(id=session)),
        )
        await use(outer, "tool", "whose", {})
        assert heard[-1] == outer.apart
    assert len(set(heard)) == 2


async def test_a_call_inside_of_a_call_waits_for_a_task_whatever_the_client_around_it_takes() -> None:
    heard: list[bool] = []

    async def waits(call: ToolCall, outlet: Outlet) -> ToolResult:
        assert call.origin is not None
        heard.append(call.origin.without_tasks)
        return says("-")

    outer = _outer(house(agent(waits=waits)).endpoint)
    assert not outer.without_tasks  # no client sent it as a message
    for extensions in ({}, {TASKS_EXTENSION: {}}):
        meta = RequestMeta(protocol_version=LATEST.version, client_capabilities={"extensions": extensions})
        outer.route = replace_struct(outer.route, params=CallToolParams(name="x", meta=meta))
        assert outer.without_tasks == (extensions == {})
        await use(outer, "tool", "waits", {})
    assert heard == [False, False]
