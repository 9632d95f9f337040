"""What a guard judges anew, and of what (server/agents/mcp/trust/definition_guard.py)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from server.agents.mcp.trust.definition_guard import PinGuard, TrustMode
from server.agents.mcp.trust.definitions import DefinitionKey, define
from server.agents.mcp.trust.pin_rows import Pin, PinnedUpstream
from server.mcp.messages import Tool
from tests.agents.mcp.trust.trust_fakes import FILES, EventLog, a_tool, lists

READ = DefinitionKey("tool", "read")


class Guarded:
    """A guard, and how often it said that another judgement would differ."""

    def __init__(self, mode: TrustMode = "pinned", *, met: bool = False) -> None:
        self.now = 1_000
        self.again = 0
        self.guard = PinGuard(
            FILES, mode, pinned(met=met), first=lambda _: None, clock=lambda: self.now, log=EventLog()
        )
        self.guard.watch(self._count)

    def _count(self) -> None:
        self.again += 1

    @property
    def goes_on(self) -> list[str]:
        return sorted(key.name for key in self.guard.verdict.allowed)


def pinned(*tools: Tool, met: bool = True) -> PinnedUpstream:
    definitions = [define("tool", each.name, each) for each in tools]
    pins: Mapping[DefinitionKey, Pin] = {
        each.key: Pin(digest=each.digest, text=each.text, accepted_at=1, accepted_by="local:7")
        for each in definitions
    }
    return PinnedUpstream(source="here", met=met, pins=pins)


def test_what_is_written_is_taken_where_it_differs_and_was_ever_met() -> None:
    there = Guarded(met=True)
    there.guard.allowed(lists(a_tool()))
    for written, goes_on, again in (
        (pinned(a_tool(), met=False), [], 0),
        (pinned(), [], 0),
        (pinned(a_tool()), ["read"], 1),
        (pinned(a_tool()), ["read"], 1),
        (pinned(a_tool("write")), [], 2),
    ):
        there.guard.take(written)
        assert (there.goes_on, there.again) == (goes_on, again)


def test_one_that_others_have_met_is_met_no_more_though_nothing_of_it_was_accepted() -> None:
    there = Guarded("first-use")
    there.guard.take(pinned())
    there.guard.allowed(lists(a_tool()))
    assert there.goes_on == []


def test_what_was_never_offered_is_judged_when_it_is() -> None:
    there = Guarded()
    there.guard.accepted([define("tool", "read", a_tool())], "local:7", 1)
    assert (there.again, there.guard.seen_at) == (0, None)
    there.guard.allowed(lists(a_tool()))
    assert (there.goes_on, there.guard.seen_at) == (["read"], 1_000)


def test_where_everything_goes_on_nothing_is_judged() -> None:
    there = Guarded("always")
    there.guard.allowed(lists(a_tool()))
    assert there.guard.seen_at == 1_000
    there.guard.forgotten(None)
    assert (there.again, there.guard.trouble()) == (0, None)


def test_of_a_name_that_is_offered_twice_neither_is_taken_when_one_of_them_is_accepted() -> None:
    there = Guarded()
    there.guard.allowed(lists(a_tool(), a_tool(description="Another")))
    there.guard.accepted([define("tool", "read", a_tool())], "local:7", 1)
    assert there.goes_on == []
    # Once it is offered once, it is one.
    there.guard.allowed(lists(a_tool()))
    there.guard.forgotten([])
    assert there.goes_on == ["read"]


def test_what_is_not_offered_any_more_is_not_there_and_waits_no_more() -> None:
    there = Guarded()
    there.guard.allowed(lists(a_tool(), a_tool("write")))
    there.now += 1
    there.guard.allowed(lists(a_tool(), a_tool("late")))
    assert sorted(key.name for key in there.guard.offered) == ["late", "read"]
    assert [there.guard.since(DefinitionKey("tool", name)) for name in ("read", "late", "write")] == [
        1_000,
        1_001,
        None,
    ]


@pytest.mark.parametrize(
    ("tools", "waiting"),
    [
        ([], ""),
        (["read"], "the tool read waits to be looked at"),
        (["write", "read"], "the tool read and 1 more wait to be looked at"),
        (["write", "read", "late"], "the tool late and 2 more wait to be looked at"),
    ],
)
def test_what_waits_is_told_with_the_first_of_it(tools: list[str], waiting: str) -> None:
    there = Guarded()
    there.guard.allowed(lists(*(a_tool(name) for name in tools)))
    assert there.guard.waiting() == waiting
