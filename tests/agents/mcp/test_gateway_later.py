"""What an upstream says in a caller's session between two calls: heard while somebody hears it, bounded, and nobody else's."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from wires import Answer, wire

from server.agents.base.backend import AgentRequest
from server.client.mcp_session import session_logs
from server.client.mcp_session.http_sessions import HttpSession
from server.client.mcp_session.http_wire import EVENTS
from server.client.mcp_session.session_logs import LOGS_A_SECOND, SessionLogs
from server.mcp.call_outlet import LaterNews, LogMessage

CALLER = AgentRequest(subject="alice", call_id="1")


class Hearer:
    """A caller's session: what it has heard, and its end."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.over = trio.Event()

    async def tell(self, event: LogMessage) -> None:
        await trio.lowlevel.checkpoint()
        self.heard.append(event.data)

    @property
    def news(self) -> LaterNews:
        return LaterNews(self.tell, self.over.wait)


def session() -> HttpSession:
    return HttpSession("s-1", b"Mcp-Session-Id: s-1\r\n", call=CALLER)


def events(*messages: Any) -> Answer:
    body = "".join(f"data: {json.dumps({'jsonrpc': '2.0', **each})}\n\n" for each in messages)
    return Answer(200, body.encode(), EVENTS)


def log(data: Any) -> dict[str, Any]:
    return {"method": "notifications/message", "params": {"level": "info", "data": data}}


NOT_OFFERED = Answer(405)


async def test_log_messages_are_heard_and_nothing_else(autojump_clock: trio.testing.MockClock) -> None:
    hearer = Hearer()
    others = [
        {"method": "notifications/tools/list_changed"},
        {"id": 1, "method": "elicitation/create", "params": {}},
        {"id": 1, "result": {}},
        {"method": "notifications/message", "params": {"level": "loud"}},
    ]
    over = wire(events(log("one"), *others, log("two")), NOT_OFFERED)
    await SessionLogs(over, lambda _: True).hear(session(), hearer.news)
    assert hearer.heard == ["one", "two"]


@pytest.mark.parametrize("status", [401, 404, 405])
async def test_a_server_without_such_a_stream_is_not_asked_again(status: int) -> None:
    hearer = Hearer()
    await SessionLogs(wire(Answer(status)), lambda _: True).hear(session(), hearer.news)
    assert hearer.heard == []


async def test_a_flood_is_cut(autojump_clock: trio.testing.MockClock) -> None:
    hearer = Hearer()
    flood = events(*(log(number) for number in range(10 * LOGS_A_SECOND)))
    await SessionLogs(wire(flood, NOT_OFFERED), lambda _: True).hear(session(), hearer.news)
    assert hearer.heard == [*range(LOGS_A_SECOND)]


async def test_a_session_that_is_dropped_is_not_listened_to_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    hearer = Hearer()
    over = wire(events(log("one")), events(log("two")), NOT_OFFERED)
    await SessionLogs(over, lambda _: False).hear(session(), hearer.news)
    assert hearer.heard == ["one"]


async def test_it_ends_when_nobody_hears_it_any_more() -> None:
    hearer, open_one = Hearer(), events(log("one"))
    open_one.goes_on_until = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(SessionLogs(wire(open_one), lambda _: True).hear, session(), hearer.news)
        await trio.testing.wait_all_tasks_blocked()
        assert hearer.heard == ["one"]
        hearer.over.set()


async def test_the_session_that_was_begun_first_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_logs, "HEARD_AT_ONCE", 1)
    answers = [events(log("one")), events(log("two"))]
    for each in answers:
        each.goes_on_until = trio.Event()
    logs, first, second = SessionLogs(wire(*answers), lambda _: True), Hearer(), Hearer()
    ended: list[str] = []

    async def hear(name: str, hearer: Hearer) -> None:
        await logs.hear(session(), hearer.news)
        ended.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear, "first", first)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(hear, "second", second)
        await trio.testing.wait_all_tasks_blocked()
        assert (ended, first.heard, second.heard) == (["first"], ["one"], ["two"])
        second.over.set()


def test_who_has_no_session_hears_nothing_later() -> None:
    assert CALLER.later() is None
