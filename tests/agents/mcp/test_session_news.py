"""The stream of a caller's session at an upstream: heard while that is of use, bounded, and nobody else's."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from upstreams import (
    CAN_ALL,
    Caller,
    Double,
    Gate,
    Handler,
    Log,
    Turn,
    gate,
    over_http,
    soon,
    text,
    tool,
    words,
)
from wires import Answer, said, wire

from server.agents.base.backend import AgentRequest, Origin
from server.client.mcp_session import session_news
from server.client.mcp_session.http_sessions import HttpSession, HttpSessions
from server.client.mcp_session.http_wire import EVENTS, HttpWire
from server.client.mcp_session.incoming_messages import UNHEARD, IncomingMessages
from server.client.mcp_session.session_news import LOGS_A_SECOND, SessionNews
from server.mcp.call_outlet import LaterNews, LogMessage


class Hearer:
    """A caller's session: what it has heard, and its end."""

    def __init__(self, *, listens: bool = False) -> None:
        self.heard: list[Any] = []
        self.over = trio.Event()
        self._listens = listens

    async def tell(self, event: LogMessage) -> None:
        await trio.lowlevel.checkpoint()
        self.heard.append(event.data)

    @property
    def call(self) -> AgentRequest:
        news = LaterNews(self.tell, self.over.wait, self._listens)
        origin = SimpleNamespace(later=lambda: news, apart="alice", traceparent=None)
        return AgentRequest(subject="alice", call_id="1", origin=cast("Origin", origin))


def session() -> HttpSession:
    return HttpSession("s-1", b"Mcp-Session-Id: s-1\r\n", apart="alice", unheard=True)


def news(over: HttpWire, nursery: trio.Nursery | None = None, *, held: bool = True) -> SessionNews:
    async def never(_: HttpSession) -> None:
        raise AssertionError

    sessions = HttpSessions(over, never)
    sessions.holds = lambda session: held
    hearing = IncomingMessages(
        {}, UNHEARD, questions=frozenset({"elicitation"}), name="test", log=Log().logger
    )
    return SessionNews(
        over,
        nursery,
        hearing=lambda _: hearing,
        running={},
        followed=(),
        sessions=lambda: sessions,
    )


async def hear(over: HttpWire, hearer: Hearer, *, held: bool = True) -> None:
    await news(over, held=held).hear(session(), hearer.call, trio.Event())


def events(*messages: Any) -> Answer:
    body = "".join(f"data: {json.dumps({'jsonrpc': '2.0', **each})}\n\n" for each in messages)
    return Answer(200, body.encode(), EVENTS)


def log(data: Any) -> dict[str, Any]:
    return {"method": "notifications/message", "params": {"level": "info", "data": data}}


NOT_OFFERED = Answer(405)


async def test_log_messages_are_heard_and_what_is_asked_while_nothing_runs_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    hearer = Hearer()
    others = [
        {"method": "notifications/tools/list_changed"},
        {"id": 1, "method": "elicitation/create", "params": {}},
        {"id": 1, "result": {}},
        {"method": "notifications/message", "params": {"level": "loud"}},
    ]
    over = wire(events(log("one"), *others, log("two")), Answer(202), NOT_OFFERED)
    await hear(over, hearer)
    assert hearer.heard == ["one", "two"]
    (refused,) = [each for each in cast("Any", over).said if "error" in each]
    assert (refused["id"], refused["error"]["code"]) == (1, -32602)


@pytest.mark.parametrize("status", [401, 404, 405])
async def test_a_server_without_such_a_stream_is_not_asked_again(status: int) -> None:
    hearer = Hearer()
    await hear(wire(Answer(status)), hearer)
    assert hearer.heard == []


async def test_a_flood_is_cut(autojump_clock: trio.testing.MockClock) -> None:
    hearer = Hearer()
    flood = events(*(log(number) for number in range(10 * LOGS_A_SECOND)))
    await hear(wire(flood, NOT_OFFERED), hearer)
    assert hearer.heard == [*range(LOGS_A_SECOND)]


async def test_a_session_that_is_dropped_is_not_listened_to_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    hearer = Hearer()
    await hear(wire(events(log("one")), events(log("two")), NOT_OFFERED), hearer, held=False)
    assert hearer.heard == ["one"]


async def test_it_ends_when_nobody_hears_it_any_more_or_the_session_is_over() -> None:
    for ending in ("hearer", "session"):
        hearer, open_one, here = Hearer(), events(log("one")), session()
        open_one.goes_on_until = trio.Event()
        async with trio.open_nursery() as nursery:
            found = news(wire(open_one))
            nursery.start_soon(found.hear, here, hearer.call, trio.Event())
            await trio.testing.wait_all_tasks_blocked()
            assert hearer.heard == ["one"]
            if ending == "hearer":
                hearer.over.set()
            else:
                found.end(here)


@pytest.mark.parametrize("in_use", [0, 1])
async def test_the_oldest_that_is_not_in_use_gives_way_and_may_come_back(
    monkeypatch: pytest.MonkeyPatch, in_use: int
) -> None:
    monkeypatch.setattr(session_news, "HEARD_AT_ONCE", 2)
    answers = [events(log(number)) for number in range(3)]
    for each in answers:
        each.goes_on_until = trio.Event()
    hearer, sessions = Hearer(), [session() for _ in range(3)]
    sessions[0].requests = in_use
    async with trio.open_nursery() as nursery:
        found = news(wire(*answers), nursery)
        for each in sessions:
            await found.attend(each, hearer.call, wanted=True)
        assert [each.unheard for each in sessions] == [not in_use, bool(in_use), False]
        hearer.over.set()


async def test_nobody_listens_where_it_is_of_no_use() -> None:
    over, listening = wire(NOT_OFFERED, NOT_OFFERED), Hearer(listens=True)
    async with trio.open_nursery() as nursery:
        found = news(over, nursery)
        await found.attend(session(), Hearer().call)
        await news(over).attend(session(), listening.call)  # who has no place for it
        assert said(over) == []
        await found.attend(session(), listening.call)
        assert said(over) == [""]


def test_who_has_no_session_hears_nothing_later() -> None:
    assert AgentRequest(subject="alice", call_id="1").later() is None


# Behind the gate.


class Teller(Double):
    """An upstream that says things on the streams of its sessions."""

    def __init__(self) -> None:
        handlers: dict[str, Handler] = {
            "roots": self.roots, "leave": self.leave, "change": self.change, "hang": self.hang,
            "resources/list": self.listed,
        }  # fmt: skip
        super().__init__(
            handlers=handlers,
            lists={"tools": [tool(name) for name in ("roots", "leave", "change", "hang")]},
            capabilities={"tools": {}, "resources": {"subscribe": True, "listChanged": True}},
            sessions=set(),
            news={},
        )
        self.mine: list[Any] = []
        self.hanging = 0
        self.left_open = trio.Event()

    def on_stream(self, turn: Turn) -> Turn:
        assert self.news is not None
        return Turn(self, turn.id, turn.params, self.news[turn.headers["mcp-session-id"]], turn.headers)

    async def roots(self, turn: Turn) -> Any:
        answer = await self.on_stream(turn).ask("roots/list")
        return text(json.dumps(answer.get("result") or answer["error"]["message"]))

    async def leave(self, turn: Turn) -> Any:
        """Ask, and end the call before there is an answer."""
        number = "left"
        self.answers[number] = cast("Any", SimpleNamespace(message={}, came=trio.Event()))
        await self.on_stream(turn).say({"jsonrpc": "2.0", "id": number, "method": "roots/list"})
        await self.left_open.wait()
        return text("left")

    async def change(self, turn: Turn) -> Any:
        await self.on_stream(turn).tell("notifications/resources/updated", uri="note://1")
        self.mine.append({"uri": "note://new", "name": "new"})
        await self.on_stream(turn).tell("notifications/resources/list_changed")
        return text("done")

    async def hang(self, turn: Turn) -> Any:
        self.hanging += 1
        await trio.sleep_forever()

    async def listed(self, turn: Turn) -> Any:
        return {"resources": self.mine}

    def sessions_of(self, method: str) -> list[str]:
        heard = zip(self.heard, self.heads, strict=True)
        return [head.get("mcp-session-id", "") for each, head in heard if each.get("method") == method]


@asynccontextmanager
async def told() -> AsyncGenerator[tuple[Teller, Gate]]:
    double = Teller()
    async with (
        over_http(double) as url,
        gate(url=url, era="handshake", questions=["elicitation", "roots"]) as door,
    ):
        yield double, door


def rooted(_: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    return {key: {"roots": [{"uri": "file:///home"}]} for key in _}


async def test_what_is_asked_on_the_stream_of_a_session_is_put_to_its_caller_whose_call_runs() -> None:
    async with told() as (double, door):
        for _ in range(2):
            caller = Caller(rooted)
            assert "file:///home" in words(await door.call("roots", caller, can=CAN_ALL))
            assert len(caller.asked) == 1
        assert double.news is not None
        assert set(double.news) - {double.sessions_of("tools/list")[0]} == {
            double.sessions_of("tools/call")[0]
        }


async def test_where_it_cannot_be_told_of_which_call_it_is_it_is_refused() -> None:
    async with told() as (double, door), trio.open_nursery() as nursery:
        nursery.start_soon(lambda: door.call("hang", can=CAN_ALL))
        await soon(lambda: double.hanging)
        assert "whose request" in words(await door.call("roots", can=CAN_ALL))
        nursery.cancel_scope.cancel()


async def test_what_is_open_when_its_call_ends_is_refused() -> None:
    class Silent(Caller):
        async def ask(self, questions: Any) -> Any:
            double.left_open.set()
            await trio.sleep_forever()

    async with told() as (double, door):
        assert words(await door.call("leave", Silent(), can=CAN_ALL)) == "left"
        await double.answers["left"].came.wait()
        assert "is over" in double.answers["left"].message["error"]["message"]


async def test_who_subscribes_is_told_of_what_changes_in_their_own_session_and_after_it_was_lost() -> None:
    people: dict[str, dict[str, Any]] = {
        name: {
            "subject": name,
            "origin": cast("Origin", SimpleNamespace(apart=name, traceparent=None, later=lambda: None)),
        }
        for name in ("alice", "bob")
    }
    async with told() as (double, door):
        for each in people.values():
            door.backend.follow("note://1", AgentRequest(call_id="c", **each))
        await soon(lambda: len(double.of("resources/subscribe")) == 2)
        assert len(set(double.sessions_of("resources/subscribe"))) == 2
        before = len(double.of("resources/list"))
        await door.call("change", **people["alice"])
        await soon(lambda: door.updated_for)
        await soon(lambda: len(double.of("resources/list")) > before)
        assert (door.updated, door.updated_for) == ([], [("note://1", "alice")])

        lost = double.sessions_of("tools/call")[-1]
        assert double.sessions is not None
        double.sessions.discard(lost)
        await door.call("change", **people["bob"])
        await soon(lambda: len(door.updated_for) == 2)
        await door.backend.resources_of(AgentRequest(call_id="c", **people["alice"]))
        await soon(lambda: len(double.of("resources/subscribe")) == 3)
        assert double.sessions_of("resources/subscribe")[-1] not in {lost, ""}
