"""What a running call uses of its own server, counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from server.backends.base import BackendError, NoSuchResource, Outlet, ToolCall, UseKind
from server.backends.catalog import Source
from server.mcp.inbound import Route
from server.mcp.params import CallToolParams
from server.mcp.results import ToolResult
from server.mcp.versions import LATEST
from server.request.inner import MOST_USES, use
from server.request.request import Request
from server.request.tools import TOOL_CALL
from server.sessions.session import Session
from tests.interaction.agents import USER, agent, house, says
from tests.interaction.everything import Everything


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
    endpoint = house(Source(name="agent", backend=Everything({}))).endpoint
    route = Route(TOOL_CALL, 1, CallToolParams(name="x"), LATEST, None, 0)
    request = Request(endpoint=endpoint, principal=USER, call_id="call_1", route=route)
    with pytest.raises(BackendError):
        await use(request, what, name, {})
    found = await use(request, "prompt", "greet", {"name": "ada"})
    assert "ada" in str(found["messages"])


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
