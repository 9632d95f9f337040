"""What is written down of a call, and the line in the log of one that failed: whoever called it, and why it failed, in words."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from msgspec.structs import replace
from test_own_tools import Library

from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source
from server.calls import agent_use
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from server.store.call_records.call_book import MOST_WAITING, CallBook
from server.store.call_records.call_record import CallRecord
from tests.interaction.agents import USER, House, agent, house, says

ADA = replace(USER, person="Ada", program="Editor")


async def works(call: ToolCall, outlet: Outlet) -> ToolResult:
    return says("a long answer that nobody keeps")


async def fails(call: ToolCall, outlet: Outlet) -> ToolResult:
    return ToolResult(content=(TextContent(text="no such city:\x1b[31m\nOz"),), is_error=True)


async def is_gone(call: ToolCall, outlet: Outlet) -> ToolResult:
    raise BackendError(
        "agent endpoint 502: token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl " + "x" * 900
    )


async def breaks(call: ToolCall, outlet: Outlet) -> ToolResult:
    raise KeyError("hunter2")


async def hangs(call: ToolCall, outlet: Outlet) -> ToolResult:
    await trio.sleep_forever()
    raise AssertionError


def watched() -> tuple[House, CallBook]:
    book = CallBook()
    served = agent(
        terms=CallTerms(deadline_seconds=2),
        works=works,
        fails=fails,
        is_gone=is_gone,
        breaks=breaks,
        hangs=hangs,
    )
    return house(served, tokens={"ada": ADA}, calls=book), book


async def record_of(made: House, book: CallBook, tool: str, arguments: dict[str, Any]) -> CallRecord:
    await made.pair.modern("tools/call", {"name": tool, "arguments": arguments}, authorization="Bearer ada")
    return book.waiting.pop()


def line_of(made: House) -> dict[str, Any]:
    return next(line for line in reversed(made.lines) if line["event"] == "tool.called")


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> int:
    """Stop the clock of calls; return its time in milliseconds."""
    monkeypatch.setattr(agent_use, "time_ns", lambda: 1_800_000_000_123_999_999)
    return 1_800_000_000_123


async def test_a_call_that_went_well_leaves_who_when_and_how_much_and_an_ordinary_line(moment: int) -> None:
    made, book = watched()
    found = await record_of(made, book, "works", {"text": "hunter2"})
    assert (found.server, found.tool, found.outcome, found.reason) == ("main", "works", "ok", "")
    assert found.at == moment
    assert (found.who.person, found.who.program, found.who.grant_id) == ("Ada", "Editor", "grant-1")
    assert (found.revision, found.is_task, found.call_id) == ("2026-07-28", False, "request-1")
    assert found.asked > len('{"name":"works","arguments":{"text":"hunter2"}}')
    assert found.answered > len("a long answer that nobody keeps")
    assert "hunter2" not in repr(found)
    assert "long answer" not in repr(found)
    line = line_of(made)
    assert line["level"] == "info"
    assert "reason" not in line


@pytest.mark.parametrize(
    ("tool", "outcome", "reason"),
    [
        ("fails", "error", "no such city:\N{REPLACEMENT CHARACTER}[31m Oz"),
        ("breaks", "crashed", "internal error"),
        ("hangs", "timeout", "hangs did not answer within 2"),
    ],
)
async def test_a_call_that_failed_is_a_warning_that_says_why_and_for_whom(
    tool: str, outcome: str, reason: str, autojump_clock: trio.testing.MockClock
) -> None:
    made, book = watched()
    found = await record_of(made, book, tool, {})
    assert found.outcome == outcome
    assert found.reason.startswith(reason)
    line = line_of(made)
    assert (line["level"], line["person"], line["program"]) == ("warning", "Ada", "Editor")
    assert line["reason"] == found.reason != ""
    assert "hunter2" not in found.reason


async def test_a_reason_is_one_bounded_line_without_what_looks_like_a_credential() -> None:
    made, book = watched()
    found = await record_of(made, book, "is_gone", {})
    assert found.reason.startswith("agent endpoint 502: token *** xxx")
    assert len(found.reason) == 300
    assert found.reason.endswith("…")


async def test_a_call_whose_client_left_was_cancelled_and_is_no_warning() -> None:
    made, book = watched()
    with trio.fail_after(60):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                call = lambda: made.pair.modern("tools/call", {"name": "hangs"}, authorization="Bearer ada")  # noqa: E731
                nursery.start_soon(call)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
    found = book.waiting.pop()
    assert (found.outcome, found.reason) == ("cancelled", "")
    assert line_of(made)["level"] == "info"


async def test_whoever_writes_is_woken_with_the_first_call_and_a_full_book_counts_what_it_misses() -> None:
    made, book = watched()
    await made.pair.modern("tools/call", {"name": "works"}, authorization="Bearer ada")
    with trio.fail_after(60):
        await book.wait()
    one = book.waiting[0]
    book.waiting.extend([one] * (MOST_WAITING - 1))
    await made.pair.modern("tools/call", {"name": "works"}, authorization="Bearer ada")
    assert (len(book.waiting), book.missed) == (MOST_WAITING, 1)


async def test_a_login_that_reads_is_in_use_and_its_reading_is_no_call(moment: int) -> None:
    book = CallBook()
    reader = replace(ADA, scopes=frozenset({"mcp:resources"}))
    source = Source(name="library", backend=Library({"works": works}))
    made = house(source, tokens={"ada": reader}, calls=book)
    reply = await made.pair.modern("resources/read", {"uri": "data://words"}, authorization="Bearer ada")
    assert "some words" in str(reply)
    assert not book.waiting
    batch = book.take()
    assert batch is not None
    assert batch.logins == {"grant-1": moment} and not (batch.rows or batch.sums or batch.tools)
