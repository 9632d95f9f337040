"""`anonymous_tools`: which tools somebody without a login may use of a server that asks for one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from auth.values.identity_model import ANONYMOUS, STRANGER, Principal, PrincipalKind
from server.agents.base.catalog import ToolEntry
from server.agents.base.demo_agent import ECHO, Demo
from server.calls.rights.standing import Rights, Standing, rights_of
from server.calls.rights.tiers import SCOPES
from server.calls.rights.visitors import VISITOR, visitor_tools
from server.mcp.schema import ToolSchema
from server.mcp.terms import CallTerms, Tier
from server.settings.tool_selection import Selections


def entry(
    name: str, tier: Tier = "read", *, scopes: frozenset[str] = frozenset(), price: Any = None
) -> ToolEntry:
    tool = replace(ECHO, name=name)
    terms = CallTerms(tier=tier, scopes=scopes | {SCOPES[tier]})
    return ToolEntry(tool, ToolSchema(tool), Demo(), terms, price)


def stands(found: ToolEntry, *written: str, who: Principal = VISITOR, default: str = "") -> Standing:
    return rights_of(Selections(default=default), visitor_tools(written)).standing(who, found)


@pytest.mark.parametrize(
    ("found", "written", "allowed"),
    [
        (entry("search"), "search", True),
        (entry("search"), "se*", True),
        (entry("search"), "*", True),
        (entry("search"), "find", False),
        (entry("send", "write"), "send", True),
        (entry("send", "write"), "s*", False),
        (entry("pay", "financial"), "pay", False),
        (entry("search", scopes=frozenset({"billing:read"})), "search", False),
        (entry("search", price=object()), "search", False),
    ],
)
def test_a_pattern_is_for_what_reads_and_a_name_for_what_writes(
    found: ToolEntry, written: str, allowed: bool
) -> None:
    assert stands(found, written) is (Standing.ALLOWED if allowed else Standing.HIDDEN)


def test_without_such_tools_there_are_no_visitors() -> None:
    assert visitor_tools(()) is None
    assert stands(entry("search")) is Standing.HIDDEN


def test_the_servers_own_selection_is_for_others_and_the_requests_own_only_narrows() -> None:
    assert stands(entry("search"), "search", default="none") is Standing.ALLOWED
    for tools, standing in (
        (";-search", Standing.HIDDEN),
        (";all", Standing.ALLOWED),
        (";none", Standing.HIDDEN),
    ):
        assert stands(entry("search"), "search", who=replace(VISITOR, tools=tools)) is standing
    assert stands(entry("other"), "search", who=replace(VISITOR, tools=";all")) is Standing.HIDDEN


def test_nobody_else_is_taken_for_a_visitor() -> None:
    someone = Principal(kind=PrincipalKind.USER, subject=VISITOR.subject, reach=frozenset())
    for who in (someone, STRANGER, ANONYMOUS):
        assert stands(entry("search"), "search", who=who) is Standing.HIDDEN


def test_what_visitors_may_use_is_taken_over_with_new_settings() -> None:
    rights = Rights()
    rights.take(rights_of(Selections(), visitor_tools(("search",))))
    assert rights.standing(VISITOR, entry("search")) is Standing.ALLOWED
    rights.take(rights_of(Selections()))
    assert rights.standing(VISITOR, entry("search")) is Standing.HIDDEN
