"""What pages are told of the servers as they run (server/calls/servers/shown_servers.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import UNSET

from server.agents.base.catalog import Catalog
from server.calls.rights.standing import rights_of
from server.calls.rights.tiers import ServerRules
from server.calls.servers.endpoint import Endpoint
from server.calls.servers.shown_servers import ShownServers
from server.mcp.messages import Icon, Implementation, Tool, ToolAnnotations
from server.mcp.result_encoding import ServerIdentity
from server.settings.policy_settings import ToolConfig
from server.settings.tool_selection import Selections
from tests.interaction.agents import agent, says

ISSUER = "https://agent.example.org"
PICTURE = "data:image/png;base64,iVBORw0KGgo="


async def works(*_: Any) -> Any:
    return says("done")


def tool(name: str, *, reads: bool = False) -> Tool:
    hints = ToolAnnotations(read_only_hint=True) if reads else UNSET
    return Tool(name=name, input_schema={"type": "object"}, annotations=hints)


def shown(
    *icons: str, rules: ServerRules | None = None, selection: str = "", info: Any = None
) -> ShownServers:
    listed = {"search": tool("search", reads=True), "send": tool("send"), "pay": tool("pay")}
    tools = {"pay": ToolConfig(tier="financial"), "send": ToolConfig(scope="team:mail")}
    catalog = Catalog(
        [agent(listed=listed, search=works, send=works, pay=works)],
        rules or ServerRules(tools=tools, financial=True),
    )
    implementation = info or Implementation(
        name="house", version="1", title="Support desk", icons=[Icon(src=src) for src in icons] or UNSET
    )
    endpoint = SimpleNamespace(
        identity=ServerIdentity(implementation),
        catalog=catalog,
        rights=rights_of(Selections(default=selection)),
    )
    endpoints = {"main": cast("Endpoint", endpoint), "second": cast("Endpoint", endpoint)}
    return ShownServers(endpoints, {"main": "/mcp", "second": "/second/mcp"}, ISSUER)


def names(found: ShownServers, *granted: str, selection: str = "") -> list[str]:
    offered = found.tools("main", person="usr_1", selection=selection, granted=granted)
    return [each.name for each in offered.tools]


def test_a_server_is_what_it_says_of_itself() -> None:
    server = shown().server("main")
    assert (server.title, server.description, server.icon) == ("Support desk", "", "")
    assert shown(info=Implementation(name="ostiary", version="1")).server("main").title == ""


@pytest.mark.parametrize(
    "theirs", ["https://cdn.example/logo.png", "https://agent.example.org.evil.example/a.png"]
)
def test_a_picture_for_which_a_browser_would_ask_a_stranger_is_not_shown(theirs: str) -> None:
    assert shown(theirs).server("main").icon == ""
    assert shown(theirs, PICTURE).server("main").icon == PICTURE
    assert shown(theirs, f"{ISSUER}/logo.png").server("main").icon == f"{ISSUER}/logo.png"


def test_tools_are_those_that_a_login_with_these_scopes_could_call() -> None:
    found = shown()
    assert names(found, "mcp") == ["search"]
    assert names(found, "mcp", "team:mail") == ["search", "send"]
    assert names(found, "mcp:tools:read") == ["search"]
    assert names(found, "financial") == ["pay"]
    assert names(found) == []
    assert found.moves_money("main")


def test_neither_the_servers_selection_nor_the_accounts_is_passed_over() -> None:
    everything = ("mcp", "team:mail", "financial")
    assert names(shown(selection="readonly"), *everything) == ["search"]
    assert names(shown(), *everything, selection="default,-search") == ["send", "pay"]


def test_what_changes_something_and_what_moves_money_is_said() -> None:
    found = shown().tools("main", person="usr_1", selection="", granted=("mcp", "team:mail", "financial"))
    assert [(each.name, each.changes, each.moves_money) for each in found.tools] == [
        ("search", False, False),
        ("send", True, False),
        ("pay", True, True),
    ]
    assert not found.some_missing
    rules = ServerRules(tools={"pay": ToolConfig(enabled=False)})
    assert not shown(rules=rules).moves_money("main")


def test_each_server_of_a_host_has_a_name_of_its_own_in_somebodys_program() -> None:
    found = shown()
    first, second = (
        next(way for way in found.ways(server, ISSUER, "ostiary") if way.program == "Claude Code").text
        for server in ("main", "second")
    )
    assert first.endswith(" agent-example-org https://agent.example.org/mcp")
    assert second.endswith(" agent-example-org-second https://agent.example.org/second/mcp")
