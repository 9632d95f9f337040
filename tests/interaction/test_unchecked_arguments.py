"""Arguments that a tool's own agent checks: they reach it as they came, unless something here depends on them."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from server.agents.base.catalog import Catalog, Source
from server.mcp.terms import CallTerms
from server.settings.policy_settings import ToolConfig
from tests.calls.policy.governing import HookRunnerFake, governing, hooked
from tests.interaction.agents import Agent
from tests.interaction.test_governed_calls import Shop, deny, everywhere, server
from tests.interaction.wires import client
from tests.payments.seller.till_fakes import prices
from tests.requirements import Cell

AS_TEXT = {"n": "3"}


class CheckingAgent(Agent):
    """An agent that checks arguments by a schema of its own."""

    checks_arguments = True


def source(shop: Shop) -> Source:
    made = shop.source()
    backend = cast("Agent", made.backend)
    return replace(made, backend=CheckingAgent(backend.work, backend.listed))


@everywhere
async def test_arguments_that_do_not_fit_reach_an_agent_that_checks_them(where: Cell) -> None:
    shop = Shop()
    async with client(where, source(shop)) as one:
        assert (await one.call("remove", AS_TEXT)).text == "done"
        assert shop.calls == [AS_TEXT]
    async with client(where, shop.source()) as one:
        assert "Invalid arguments" in (await one.call("remove", AS_TEXT)).text


async def test_a_rule_that_compares_arguments_is_never_passed_by_their_type() -> None:
    shop = Shop()
    async with (
        governing(server(deny())) as made,
        client(Cell("modern", "http"), source(shop), governing=made.policy) as one,
    ):
        for value in ("10", [10], {"v": 10}, 10):
            assert (await one.call("remove", {"n": value})).result["isError"] is True
        assert (await one.call("remove", {"n": 9})).text == "done"
    assert shop.calls == [{"n": 9}]


CHECKED = [
    ({"policy": [deny()]}, True),
    ({"policy": [deny(when={"$schema": {"required": ["n"]}})]}, True),
    ({"policy": [{"tools": ["remove"], "decision": "allow", "max_calls": 3}]}, False),
    ({"policy": [{"tools": ["remove"], "decision": "deny", "who": {"kind": ["api_key"]}}]}, False),
    ({"policy": [deny(tools=["other"])]}, False),
    ({"redact": {"sets": ["emails"]}}, False),
    ({"tools": {"remove": {"confirm": {"keys": False}}}}, True),
    ({}, False),
]


def terms_of(catalog: Catalog) -> CallTerms:
    entry = catalog.get("remove")
    assert entry is not None
    return entry.terms


@pytest.mark.parametrize(("settings", "checked"), CHECKED)
async def test_they_are_checked_here_where_something_depends_on_them(
    settings: dict[str, Any], checked: bool
) -> None:
    async with governing({"name": "main", **settings}) as made:
        assert terms_of(Catalog([source(Shop())], policy=made.policy)).unchecked is not checked


async def test_they_are_checked_here_in_front_of_a_hook() -> None:
    async with governing(hooked("before"), runners=[HookRunnerFake()]) as made:
        assert terms_of(Catalog([source(Shop())], policy=made.policy)).unchecked is False


def test_they_are_checked_here_where_a_call_costs_something_or_another_answers() -> None:
    sold = prices(None, {"remove": ToolConfig(price="$0.01")})
    assert terms_of(Catalog([source(Shop())], prices=sold)).unchecked is False
    assert terms_of(Catalog([source(Shop())], stand_ins={"remove": Agent({})})).unchecked is False
    assert terms_of(Catalog([source(Shop())], prices=prices())).unchecked is True


class OldLists(Agent):
    """An agent whose lists may be older than what it has."""

    asked: str = ""

    def missed(self, tool: str) -> None:
        self.asked = tool


@everywhere
async def test_a_tool_that_no_list_has_is_looked_for_when_it_is_called(where: Cell) -> None:
    shop = Shop()
    made = shop.source()
    known = cast("Agent", made.backend)
    backend = OldLists(known.work, known.listed)
    async with client(where, replace(made, backend=backend)) as one:
        await one.call("remove", {"n": 1})
        assert not backend.asked
        await one.ask("tools/call", {"name": "newer", "arguments": {}})
        assert backend.asked == "newer"
