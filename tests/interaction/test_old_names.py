"""Calls by names that tools had before their owner changed them: they are calls of those tools in everything that is decided or kept."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from test_limited_calls import limits_of
from test_tool_search import answers, ask, called, names, searched

from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source
from server.calls.servers.old_names import MOST_USED, OldNames
from server.mcp.call_outlet import Outlet
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from server.store.limits.tool_limits import BoundRules
from tests.interaction.agents import USER, Agent, House, house

DOTS = {"weather.*": "weather__*", "post": "mail__send"}


def renamed(names: dict[str, str] = DOTS, until: date | None = None, **how: Any) -> House:
    made = searched(**how)
    made.endpoint.old_names.take(names, until)
    return made


def told(made: House) -> list[dict[str, Any]]:
    return [line for line in made.lines if line["event"] == "tool.called_by_old_name"]


async def test_a_tool_is_called_by_the_name_that_it_had() -> None:
    made = renamed()
    assert (await called(made, "post"))["content"][0]["text"] == "mail__send {}"
    assert made.measured[-1] == ("mail__send", "ok")
    listed = await names(made, _meta={"io.ostiary/discovery": "list"})
    assert listed == ["weather__get_forecast", "mail__send", "secret"]


async def test_rights_and_limits_are_those_of_the_tool_as_it_is_called_now() -> None:
    made = renamed(limits=limits_of({"mail__send": BoundRules(limit="1/min")}))
    assert (await called(made, "post"))["isError"] is False
    assert (await called(made, "mail__send"))["isError"] is True
    scoped = renamed(terms=CallTerms(scopes=frozenset({"mcp:write"})))
    answer = await scoped.pair.modern("tools/call", {"name": "post"}, authorization="Bearer t")
    assert answer.status == 403 and "mcp:write" in answer.headers["www-authenticate"]


async def test_a_tool_that_a_caller_must_not_know_of_is_not_found_by_an_old_name_either() -> None:
    made = renamed({"hush": "secret"}, hidden=frozenset({"secret"}))
    message = (await ask(made, "tools/call", name="hush"))["error"]["message"]
    assert "hush" in message and "secret" not in message
    assert not told(made) and not made.endpoint.old_names.used


async def test_each_old_name_is_told_once_to_the_log_and_kept_for_the_owner() -> None:
    made = renamed()
    for _ in range(3):
        await called(made, "post")
    (line,) = told(made)
    assert (line["old"], line["tool"], line["server"]) == ("post", "mail__send", "main")
    assert made.endpoint.old_names.told()["used"] == {"post": {"now": "mail__send", "program": USER.program}}
    made.endpoint.old_names.take({"send": "mail__send"}, None)
    assert made.endpoint.old_names.told() == {"used": {}, "until": "", "over": False}


async def test_a_call_by_an_old_name_inside_of_call_tool_finds_its_tool_too() -> None:
    result = await called(renamed(), "call_tool", name="post")
    assert result["content"][0]["text"] == "mail__send {}"


async def test_headers_that_repeat_arguments_are_compared_all_the_same() -> None:
    made = renamed()
    params = {"name": "weather.get_forecast", "arguments": {"city": "Oslo"}}
    right = await made.pair.modern("tools/call", params, authorization="Bearer t", mcp_param_city="Oslo")
    assert right.json["result"]["content"][0]["text"] == "weather__get_forecast {'city': 'Oslo'}"
    wrong = await made.pair.modern("tools/call", params, authorization="Bearer t", mcp_param_city="Rome")
    assert (wrong.status, wrong.json["error"]["code"]) == (400, -32020)


async def test_a_use_inside_of_a_call_finds_its_tool_too() -> None:
    async def outer(call: ToolCall, outlet: Outlet) -> ToolResult:
        assert call.origin is not None
        found = await call.origin.use("tool", "before", {})
        return ToolResult(content=found["content"])

    agent = Agent({"outer": outer, "now": answers})
    made = house(Source(name="agent", backend=agent), tokens={"t": USER})
    made.endpoint.old_names.take({"before": "now"}, None)
    assert (await called(made, "outer"))["content"][0]["text"] == "now {}"


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("notes.read", "notes__read"),
        ("notes.", None),
        ("notes.other", None),
        ("mail__send", "send"),
        ("old", "notes__read"),
        ("older", None),
    ],
)
def test_a_star_stands_for_the_same_on_either_side(name: str, now: str | None) -> None:
    names = OldNames({"notes.*": "notes__*", "mail__*": "*", "old": "notes__read"})
    assert names.now(name, {"notes__read", "send"}) == now


def test_old_names_count_until_their_last_day() -> None:
    today = [date(2027, 1, 31)]
    names = OldNames({"old": "new"}, date(2027, 1, 31), lambda: today[0])
    assert names.now("old", {"new"}) == "new" and not names.are_over
    today[0] = date(2027, 2, 1)
    assert names.now("old", {"new"}) is None
    assert names.told() == {"used": {}, "until": "2027-01-31", "over": True}


async def test_a_name_that_a_tool_has_is_never_an_old_one() -> None:
    made = renamed({"secret": "mail__send"})
    assert (await called(made, "secret"))["content"][0]["text"] == "secret {}"


def test_only_so_many_names_are_remembered() -> None:
    names = OldNames({"o*": "n*"})
    assert all(names.note(f"o{number}", f"n{number}", "") for number in range(MOST_USED))
    assert not names.note("one more", "n", "") and len(names.used) == MOST_USED
