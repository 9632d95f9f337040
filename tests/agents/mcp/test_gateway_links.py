"""Both kinds of connection with an upstream, message by message: what is said there, in which order, and how much."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from msgspec import Raw
from upstreams import MODERN, Caller, Log
from wires import Answer, Stream, Wire, said, stream, wire

from server.agents.base.backend import AgentRequest
from server.client.mcp_session import session_link
from server.client.mcp_session.http_wire import HttpWire, SessionGone
from server.client.mcp_session.message_channel import GARBAGE_LINES, ChannelLink, open_channel
from server.client.mcp_session.session_link import ServerNews
from server.client.mcp_session.session_messages import METHOD_NOT_FOUND, ServerGone, ServerRefusal
from server.client.mcp_session.streamable_http import HttpLink, head_of
from server.mcp.call_failures import BackendError

CALLER = AgentRequest(subject="alice", call_id="1", can=frozenset({"elicitation"}))
SUBSCRIBES = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}


class Upstream:
    """An upstream of either era, which answers what belongs to it and keeps silent to what it does not know."""

    def __init__(self, *, modern: bool, **capabilities: Any) -> None:
        self.answers: dict[str, Any] = {"echo": {}, "resources/subscribe": {}, "resources/unsubscribe": {}}
        if modern:
            self.answers["server/discover"] = {"supportedVersions": [MODERN], "capabilities": capabilities}
        else:
            began = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
            self.answers |= {"initialize": began, "logging/setLevel": {}}

    def __call__(self, message: dict[str, Any]) -> Iterable[Any]:
        method, number = message.get("method", ""), message.get("id")
        if method in self.answers:
            yield {"jsonrpc": "2.0", "id": number, "result": self.answers[method]}
        elif method in ("server/discover", "logging/setLevel"):
            yield {"jsonrpc": "2.0", "id": number, "error": {"code": METHOD_NOT_FOUND, "message": "no"}}


@asynccontextmanager
async def open_link(over: Stream, *, era: str) -> AsyncGenerator[ChannelLink]:
    tells = ServerNews(lambda: None, lambda uri: None)
    with trio.fail_after(60):
        async with open_channel(
            stream(over),
            tells,
            era=era,
            seconds=60,
            questions=frozenset({"elicitation"}),
            name="test",
            log=Log().logger,
        ) as link:
            yield link


ERAS = pytest.mark.parametrize("era", ["stateless", "handshake"])


def upstream(era: str, **capabilities: Any) -> Upstream:
    return Upstream(modern=era == "stateless", **capabilities)


@ERAS
async def test_what_is_followed_is_the_newest_so_many(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_link, "RESOURCES_FOLLOWED", 2)
    over = Stream(upstream(era, **SUBSCRIBES))
    async with open_link(over, era=era) as link:
        for uri in ("a", "b", "a", "c"):
            await link.follow_resource(uri)
    listened = [
        each["notifications"].get("resourceSubscriptions") for each in over.of("subscriptions/listen")
    ]
    cancelled = len(over.of("notifications/cancelled"))
    subscribed = [each["uri"] for each in over.of("resources/subscribe")]
    unsubscribed = [each["uri"] for each in over.of("resources/unsubscribe")]
    if era == "stateless":
        assert (listened, cancelled) == ([None, ["a"], ["a", "b"], ["b", "c"]], 3)
        assert subscribed == unsubscribed == []
    else:
        assert (subscribed, unsubscribed, listened) == (["a", "b", "c"], ["a"], [])
    assert over.closed


@ERAS
async def test_nothing_is_listened_for_where_nothing_is_told(era: str) -> None:
    over = Stream(upstream(era, tools={}, resources={}))
    async with open_link(over, era=era) as link:
        assert not link.busy
        if era == "handshake":
            await link.follow_resource("a")
    assert over.of("subscriptions/listen") == over.of("resources/subscribe") == []


@ERAS
async def test_a_link_is_busy_while_a_request_runs_and_not_for_listening(era: str) -> None:
    over = Stream(upstream(era, **SUBSCRIBES))
    async with open_link(over, era=era) as link:
        assert not link.busy
        running = await link.begin("never", {}, CALLER)
        assert link.busy
        for _ in range(2):
            await link.give_up(running)
        assert not link.busy
        assert [each["requestId"] for each in over.of("notifications/cancelled")] == [running.number]
        await link.request("echo", {})
        assert len(over.of("notifications/cancelled")) == 1


@ERAS
async def test_a_message_is_as_large_as_it_may_be(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    over = Stream(upstream(era))
    async with open_link(over, era=era) as link:
        await link.request("echo", {"word": ""})
        size = len(json.dumps(over.said[-1], separators=(",", ":")))
        monkeypatch.setattr(session_link, "MESSAGE_BYTES", size)
        assert bytes(await link.request("echo", {"word": ""})) == b"{}"
        with pytest.raises(BackendError, match="more than can be passed on"):
            await link.request("echo", {"word": "x"})
        assert not link.busy


@ERAS
async def test_where_nothing_can_be_sent_at_once_it_is_waited_for(era: str) -> None:
    over = Stream(upstream(era), full=True)
    async with open_link(over, era=era) as link:
        assert bytes(await link.request("echo", {})) == b"{}"
        await link.give_up(await link.begin("never", {}, CALLER))
        assert len(over.of("notifications/cancelled")) == 1


async def test_an_answer_is_that_to_the_number_of_a_request_alone() -> None:
    over = Stream(upstream("stateless"))
    async with open_link(over, era="stateless") as link:
        running = await link.begin("never", {}, CALLER)
        for number in (str(running.number), float(running.number), running.number + 1, None):
            over.hear({"id": number, "result": {"wrong": True}})
        over.hear({"id": running.number, "result": {"right": True}})
        assert bytes(await link.follow(running, Caller())) == b'{"right": true}'
        over.hear({"id": running.number, "result": {}})
        assert bytes(await link.request("echo", {})) == b"{}"


async def test_so_many_lines_may_be_nonsense_and_no_more() -> None:
    over = Stream(upstream("stateless"))
    async with open_link(over, era="stateless") as link:
        over.hear(*[b"nonsense"] * GARBAGE_LINES)
        assert bytes(await link.request("echo", {})) == b"{}"
        running = await link.begin("never", {}, CALLER)
        over.hear(b"nonsense")
        with pytest.raises(ServerGone, match="no message of the protocol"):
            await link.follow(running, Caller())
        with pytest.raises(ServerGone, match="no message of the protocol"):
            await link.request("echo", {})
        assert (link.ended.is_set(), link.busy) == (True, False)


@pytest.mark.parametrize("knows", [True, False])
async def test_a_session_of_the_handshake_has_the_lowest_level_that_any_caller_wants(knows: bool) -> None:
    made = upstream("handshake", **SUBSCRIBES)
    if not knows:
        del made.answers["logging/setLevel"]
    over = Stream(made)
    async with open_link(over, era="handshake") as link:
        for level in (None, "warning", "error", "warning", "debug", "info"):
            call = AgentRequest(subject="alice", call_id="1", log_level=level)  # type: ignore[arg-type]
            await link.request("echo", {}, call=call)
    assert [each["level"] for each in over.of("logging/setLevel")] == ["warning", "debug"]


@pytest.mark.parametrize(("wants", "token"), [(True, True), (False, False)])
@ERAS
async def test_progress_is_asked_for_where_somebody_wants_it(era: str, wants: bool, token: bool) -> None:
    over = Stream(upstream(era))
    async with open_link(over, era=era) as link:
        await link.request("echo", {}, call=AgentRequest(subject="a", call_id="1", wants_progress=wants))
        ((params),) = over.of("echo")
        assert ("progressToken" in params.get("_meta", {})) is token


# ── over HTTP ──


@asynccontextmanager
async def over_http(
    *answers: Answer, modern: bool, **capabilities: Any
) -> AsyncGenerator[tuple[HttpLink, HttpWire]]:
    over = wire(*answers)
    async with trio.open_nursery() as nursery:
        tells = ServerNews(lambda: None, lambda uri: None)
        link = HttpLink(over, tells, nursery, questions=frozenset(), name="test", log=Log().logger)
        link.agreement = link.agreement.__class__(version=MODERN, modern=modern, capabilities=capabilities)
        yield link, over


def result(number: int) -> Answer:
    return Answer(200, json.dumps({"id": number, "result": {}}).encode())


@pytest.mark.parametrize("modern", [True, False])
async def test_over_http_what_is_followed_is_the_newest_so_many(
    modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_link, "RESOURCES_FOLLOWED", 2)
    answers = [result(number) for number in range(1, 5)]
    async with over_http(*answers, modern=modern, resources={"subscribe": True}) as (link, over):
        for uri in ("a", "b", "a", "c"):
            await link.follow_resource(uri)
    asked = [(each["method"], each["params"]["uri"]) for each in cast("Wire", over).said]
    subscribe, unsubscribe = "resources/subscribe", "resources/unsubscribe"
    assert asked == (
        [] if modern else [(subscribe, "a"), (subscribe, "b"), (unsubscribe, "a"), (subscribe, "c")]
    )


@pytest.mark.parametrize("modern", [True, False])
async def test_over_http_a_message_is_as_large_as_it_may_be(
    modern: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with over_http(result(1), result(2), modern=modern) as (link, over):
        await link.request("echo", {"word": ""})
        size = len(json.dumps(cast("Wire", over).said[-1], separators=(",", ":")))
        monkeypatch.setattr(session_link, "MESSAGE_BYTES", size)
        assert bytes(await link.request("echo", {"word": ""})) == b"{}"
        with pytest.raises(BackendError, match="more than can be passed on"):
            await link.request("echo", {"word": "x"})
        assert not link.busy


class Forgetful(Wire):
    """A wire whose upstream forgets each session that is begun, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times
        self.asked = 0

    async def ask(self, message: bytes, headers: bytes, call: Any, read: Any) -> Raw:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.asked <= self._times:
            raise SessionGone
        return Raw(b"{}")


@pytest.mark.parametrize("times", [0, 1, 2])
async def test_a_request_whose_session_was_lost_is_made_in_another_and_only_there(times: int) -> None:
    over = Forgetful(times)
    begun: list[object] = []
    async with over_http(modern=False) as (link, _):
        link._sessions._wire = cast("HttpWire", over)  # pyright: ignore[reportPrivateUsage]

        async def renew(*lost: object) -> bool:
            begun.append(lost)
            return False

        link._sessions.renew = renew  # pyright: ignore[reportPrivateUsage,reportAttributeAccessIssue]
        if times == 2:
            with pytest.raises(ServerGone, match="does not know this session"):
                await link.request("echo", {})
        else:
            assert bytes(await link.request("echo", {})) == b"{}"
    assert (over.asked, len(begun)) == (min(times + 1, 2), min(times, 1))
    assert link._sessions.own.requests == 0  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("knows", [True, False])
async def test_over_http_a_level_is_set_where_less_is_told_than_is_wanted(knows: bool) -> None:
    refused = Answer(200, b'{"id":2,"error":{"code":1,"message":"no"}}')
    answers = [result(1) if knows else refused, *(result(number) for number in range(1, 9))]
    said_levels: list[str] = []
    async with over_http(modern=False, logging={}) as (link, _):

        async def request(method: str, params: Any, **more: Any) -> Raw:
            said_levels.append(params["level"])
            assert (more["call"].log_level, more["call"].can) == (None, frozenset())
            if not knows:
                raise ServerRefusal(1, "no")
            return Raw(b"{}")

        link._sessions._wire = wire(*answers)  # pyright: ignore[reportPrivateUsage]
        asked = link.request
        link.request = request  # type: ignore[method-assign]
        for number, level in enumerate((None, "warning", "error", "debug"), 1):
            link._sessions._wire = wire(result(number))  # pyright: ignore[reportPrivateUsage]
            call = AgentRequest(subject="alice", call_id="1", log_level=level)  # type: ignore[arg-type]
            assert bytes(await asked("echo", {}, call=call)) == b"{}"
    assert said_levels == ["warning", "debug"]


@pytest.mark.parametrize(("status", "taken"), [(202, True), (299, True), (300, False)])
async def test_over_http_what_has_no_answer_is_taken_with_a_good_status(status: int, taken: bool) -> None:
    async with over_http(Answer(status), modern=False) as (link, over):
        running = link._start(CALLER)  # pyright: ignore[reportPrivateUsage]
        if taken:
            await link._reply(running, b'{"method":"m"}')  # pyright: ignore[reportPrivateUsage]
        else:
            with pytest.raises(BackendError, match="redirects"):
                await link._reply(running, b'{"method":"m"}')  # pyright: ignore[reportPrivateUsage]
        assert said(over) == ["m"]


@pytest.mark.parametrize(
    ("headers", "lines"),
    [
        ({}, b"Mcp-Method: m\r\n"),
        ({"Mcp-Name": "n"}, b"Mcp-Method: m\r\nMcp-Name: n\r\n"),
        ({"Mcp-Name": "n", "Mcp-Param-X": "1"}, b"Mcp-Method: m\r\nMcp-Name: n\r\nMcp-Param-X: 1\r\n"),
        ({"X-Payment": "1"}, b"Mcp-Method: m\r\nX-Payment: 1\r\n"),
    ],
)
def test_the_head_of_a_request_says_what_it_is_about(headers: dict[str, str], lines: bytes) -> None:
    for _ in range(2):
        assert head_of("m", headers) == lines
