"""`discovery = "search"`: two tools stand for many, and a call by name is the call of the real tool in everything that is decided or kept."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from test_limited_calls import limits_of

from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source
from server.calls.rights.visitors import VISITOR
from server.calls.servers.tool_search import COUNTED_CHARACTERS, MOST_ARGUMENTS, search
from server.mcp.call_outlet import Outlet
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import DEFAULT_TERMS, CallTerms
from server.store.limits.tool_limits import BoundRules
from tests.interaction.agents import USER, Agent, House, house, says

KEY = Principal(kind=PrincipalKind.API_KEY, subject="key-1", scopes=frozenset({"mcp:tools"}))
FORECAST = {
    "type": "object",
    "properties": {"city": {"type": "string", "x-mcp-header": "City"}},
    "required": ["city"],
}


async def answers(call: ToolCall, outlet: Outlet) -> ToolResult:
    return says(f"{call.tool} {dict(call.arguments)}")


def searched(
    who: Principal = USER, hidden: frozenset[str] = frozenset(), terms: CallTerms = DEFAULT_TERMS, **how: Any
) -> House:
    listed = {
        "weather__get_forecast": Tool(
            name="weather__get_forecast",
            description="The weather of the next days",
            input_schema=FORECAST,
            meta={"else": 1},
        ),
        "mail__send": Tool(name="mail__send", description="Sends a message", input_schema={"type": "object"}),
        "secret": Tool(name="secret", description="Weather forecast", input_schema={"type": "object"}),
    }
    made: list[House] = []
    agent = Source(name="agent", backend=Agent(dict.fromkeys(listed, answers), listed), terms=terms)

    def may_know(_who: Principal, entry: Any) -> bool:
        return getattr(getattr(entry, "tool", None), "name", "") not in hidden

    found = search(["weather", "mail"], lambda: made[0].endpoint)
    made.append(house(agent, found, tokens={"t": who}, policy=may_know, **how))
    return made[0]


async def ask(made: House, method: str, **params: Any) -> Any:
    return (await made.pair.modern(method, params, authorization="Bearer t")).json


async def names(made: House, **params: Any) -> list[str]:
    return [tool["name"] for tool in (await ask(made, "tools/list", **params))["result"]["tools"]]


async def called(made: House, name: str, /, **arguments: Any) -> Any:
    return (await ask(made, "tools/call", name=name, arguments=arguments))["result"]


async def found(made: House, question: str, **more: Any) -> list[str]:
    result = await called(made, "find_tools", question=question, **more)
    return [tool["name"] for tool in result.get("structuredContent", {"tools": []})["tools"]]


async def test_a_list_has_the_two_tools_alone_and_whole_for_a_client_that_searches_by_itself() -> None:
    made = searched()
    assert await names(made) == ["find_tools", "call_tool"]
    everything = ["weather__get_forecast", "mail__send", "secret"]
    assert await names(made, _meta={"io.ostiary/discovery": "list"}) == everything
    answer = await made.pair.modern("tools/list", {}, authorization="Bearer t", ostiary_discovery="list")
    assert [tool["name"] for tool in answer.json["result"]["tools"]] == everything


async def test_a_search_finds_what_its_caller_may_know_of_with_its_schema() -> None:
    made = searched(hidden=frozenset({"secret"}))
    result = await called(made, "find_tools", question="what will the weather be in Oslo?")
    assert result["structuredContent"]["tools"] == [
        {
            "name": "weather__get_forecast",
            "description": "The weather of the next days",
            "inputSchema": FORECAST,
        }
    ]
    assert "inputSchema" in result["content"][0]["text"], "for clients that show a model the content alone"
    assert await found(made, "messages to be sent") == ["mail__send"]
    assert await found(made, "quantum") == []
    assert await found(searched(), "weather", most=1) == ["weather__get_forecast"]


async def test_a_call_by_name_is_the_call_of_that_tool() -> None:
    made = searched()
    arguments = {"city": "Oslo"}
    result = await called(made, "call_tool", name="weather__get_forecast", arguments=arguments)
    assert result["content"][0]["text"] == "weather__get_forecast {'city': 'Oslo'}"
    assert ("weather__get_forecast", "ok") in [(name, how) for name, how in made.measured]
    wrong = await called(made, "call_tool", name="weather__get_forecast")
    assert wrong["isError"] is True and "city" in wrong["content"][0]["text"]


async def test_what_agents_of_others_say_at_length_is_counted_in_part() -> None:
    end = COUNTED_CHARACTERS * " " + "needle"
    properties = {f"a{place}": {"type": "string", "description": end} for place in range(2 * MOST_ARGUMENTS)}
    schema = {"type": "object", "properties": {**properties, "odd": True}}
    listed = {"wordy": Tool(name="wordy", title=end, description=end, input_schema=schema)}
    made: list[House] = []
    agent = Source(name="agent", backend=Agent({"wordy": answers}, listed))
    made.append(house(agent, search([], lambda: made[0].endpoint), tokens={"t": USER}))
    assert await found(made[0], "needle") == [] and await found(made[0], "wordy") == ["wordy"]


async def test_what_is_hidden_cannot_be_called_by_name() -> None:
    made = searched(hidden=frozenset({"secret"}))
    answer = await ask(made, "tools/call", name="call_tool", arguments={"name": "secret"})
    assert answer["error"]["code"] == -32602 and "secret" in answer["error"]["message"]


@pytest.mark.parametrize(
    "arguments", [{"name": "call_tool"}, {"name": "call_tool", "arguments": {"name": "secret"}}]
)
async def test_a_call_that_names_no_other_tool_is_told_so(arguments: dict[str, Any]) -> None:
    assert (await called(searched(), "call_tool", **arguments))["isError"] is True


async def test_scopes_and_limits_are_those_of_the_real_tool() -> None:
    limits = limits_of({"mail__send": BoundRules(limit="1/min")})
    made = searched(limits=limits)
    assert (await called(made, "call_tool", name="mail__send"))["isError"] is False
    assert (await called(made, "call_tool", name="mail__send"))["isError"] is True
    scoped = searched(terms=CallTerms(scopes=frozenset({"mcp:write"})))
    params = {"name": "call_tool", "arguments": {"name": "mail__send"}}
    answer = await scoped.pair.modern("tools/call", params, authorization="Bearer t")
    assert answer.status == 403 and "mcp:write" in answer.headers["www-authenticate"]
    assert await names(searched(KEY)) == ["find_tools", "call_tool"]


async def test_a_caller_who_may_not_search_has_the_list() -> None:
    assert await names(searched(hidden=frozenset({"find_tools"}))) == [
        "weather__get_forecast",
        "mail__send",
        "secret",
    ]
    assert await names(searched(VISITOR)) == []


async def test_a_tool_of_an_agent_that_is_called_alike_is_only_a_tool() -> None:
    agent = Source(name="agent", backend=Agent(dict.fromkeys(["find_tools", "call_tool"], answers)))
    made = house(agent, tokens={"t": replace(USER)})
    assert await names(made) == ["find_tools", "call_tool"]
    result = await called(made, "call_tool", name="x")
    assert result["content"][0]["text"] == "call_tool {'name': 'x'}"
