"""What each status of an upstream over HTTP means, where it is a bound, and what its body has to say before."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from msgspec import Raw
from upstreams import MODERN, Log
from wires import Answer, said, wire

from server.agents.base.backend import AgentRequest
from server.agents.mcp.upstream_credentials import StaticCredential
from server.client.mcp_session import credential_wire, http_answers, http_sessions
from server.client.mcp_session.agreement import Agreement
from server.client.mcp_session.credential_wire import (
    MASKED_CHARACTERS,
    CredentialWire,
    HttpServerPlace,
    status_problem,
    without_credentials,
)
from server.client.mcp_session.http_answers import RESUME_TRIES, RESUMED_AT_MOST
from server.client.mcp_session.http_sessions import SESSION_ID_CHARACTERS, Greet, HttpSessions
from server.client.mcp_session.http_sse_2024 import ENDPOINT_CHARACTERS, SseStream
from server.client.mcp_session.http_wire import (
    EVENTS,
    JSON,
    CredentialRefused,
    HttpWire,
    NotReached,
    SessionGone,
)
from server.client.mcp_session.session_link import ServerNews
from server.client.mcp_session.session_messages import (
    METHOD_NOT_FOUND,
    Answered,
    PaymentAsked,
    ServerAway,
    ServerFailure,
    ServerGone,
    ServerRefusal,
    read_message,
)
from server.client.mcp_session.streamable_http import HttpLink
from server.lib.http_client.failures import BrokenOff, FetchFailed, NotConnected, TooManyConnections
from server.mcp.call_failures import BackendError
from server.payments.x402.payment_headers import NOTHING_YET, PAYMENT_SIGNATURE

CALLER = AgentRequest(subject="alice", call_id="1")
REFUSED = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "error": {"code": METHOD_NOT_FOUND, "message": "no"}}
).encode()
DISCOVERED = {"supportedVersions": [MODERN], "capabilities": {}}
INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {}}


def result(value: Any, number: int = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": value}).encode()


async def take(data: bytes) -> Raw | None:
    message = read_message(data)
    return message.result if isinstance(message, Answered) else None


async def answer_of(answer: Any, take: Any, go_on: Any = None, *, in_session: bool = False) -> Raw:
    return await http_answers.answer_of(answer, wire(), take, go_on, in_session=in_session)


@asynccontextmanager
async def link(*answers: Answer) -> AsyncGenerator[HttpLink]:
    async with trio.open_nursery() as nursery:
        tells = ServerNews(lambda: None, lambda uri: None)
        yield HttpLink(wire(*answers), tells, nursery, questions=frozenset(), name="test", log=Log().logger)


async def outcome(work: Awaitable[object]) -> str:
    """Return what has come of it: the kind of the error, and what it says."""
    try:
        await work
    except (BackendError, ServerRefusal, SessionGone) as error:
        return f"{type(error).__name__} {error}"
    return "done"


@pytest.mark.parametrize(
    ("status", "kind", "word"),
    [
        (300, ServerFailure, "redirects"),
        (399, ServerFailure, "redirects"),
        (400, ServerFailure, "status 400"),
        (402, ServerFailure, "status 402"),
        (403, CredentialRefused, "status 403"),
        (404, ServerFailure, "status 404"),
        (428, ServerFailure, "answered with status 428"),
        (429, ServerFailure, "busy (status 429)"),
        (430, ServerFailure, "answered with status 430"),
        (502, ServerFailure, "answered with status 502"),
        (503, ServerFailure, "busy (status 503)"),
        (504, ServerFailure, "answered with status 504"),
    ],
)
def test_each_status_says_what_is_wrong(status: int, kind: type[Exception], word: str) -> None:
    problem = status_problem(status)
    assert type(problem) is kind
    assert word in str(problem)


@pytest.mark.parametrize(
    ("status", "body", "in_session", "comes"),
    [
        (200, result({}), False, "done"),
        (299, result({}), True, "done"),
        (300, result({}), False, "ServerFailure redirects"),
        (300, REFUSED, False, "ServerRefusal no"),
        (401, b"", False, "ServerFailure answered with status 401"),
        (402, REFUSED, True, "PaymentAsked"),
        (403, b"", False, "CredentialRefused"),
        (403, REFUSED, True, "ServerRefusal no"),
        (404, b"", False, "ServerFailure answered with status 404"),
        (404, REFUSED, False, "ServerRefusal no"),
        (404, b"", True, "SessionGone"),
        (404, REFUSED, True, "ServerRefusal no"),
        (404, REFUSED.replace(b"-32601", b"-32001"), True, "SessionGone"),
        (405, b"", True, "ServerFailure answered with status 405"),
        (400, b"[]", True, "ServerFailure answered with status 400"),
        (400, result({}), True, "ServerFailure answered with status 400"),
        (400, b"{", True, "ServerFailure answered with status 400"),
    ],
)
async def test_an_answer_is_that_of_a_good_status_and_of_a_bad_one_what_its_body_says(
    status: int, body: bytes, in_session: bool, comes: str
) -> None:
    answer = cast("Any", Answer(status, body))
    assert (await outcome(answer_of(answer, take, in_session=in_session))).startswith(comes)


async def test_who_wants_to_be_paid_says_so_in_headers_and_body() -> None:
    answer = cast("Any", Answer(402, b"pay", x_price="1"))
    with pytest.raises(PaymentAsked) as asked:
        await answer_of(answer, take)
    assert (asked.value.header("X-Price"), asked.value.body) == ("1", b"pay")


@pytest.mark.parametrize(
    ("answer", "comes"),
    [
        (Answer(200, result(DISCOVERED)), "done"),
        (Answer(299, result(DISCOVERED)), "done"),
        (Answer(200, REFUSED), "NoMcpServer does not speak the stateless"),
        (Answer(200, b"hello"), "NoMcpServer does not speak the stateless"),
        (Answer(300, result(DISCOVERED)), "NoMcpServer does not speak the stateless"),
        (Answer(402), "NoMcpServer does not speak the stateless"),
        (Answer(403), "CredentialRefused"),
        (Answer(404), "NoMcpServer does not speak the stateless"),
        (Answer(404, REFUSED), "done"),
        (Answer(403, REFUSED), "CredentialRefused"),
        (Answer(405, REFUSED), "NoMcpServer does not speak the stateless"),
        (Answer(428), "NoMcpServer does not speak the stateless"),
        (Answer(429), "ServerFailure is busy"),
        (Answer(430), "NoMcpServer does not speak the stateless"),
        (Answer(499), "NoMcpServer does not speak the stateless"),
        (Answer(500), "ServerFailure answered with status 500"),
        (Answer(503), "ServerFailure is busy"),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Answer) else None,
)
async def test_which_era_an_upstream_is_of_is_told_by_how_it_answers(answer: Answer, comes: str) -> None:
    async with link(answer) as found:
        assert (await outcome(found.agree("stateless"))).startswith(comes)


def greeting(over: HttpWire) -> Greet[Agreement]:
    """Return how a link over this wire begins a session."""
    tells = ServerNews(lambda: None, lambda uri: None)
    link = HttpLink(over, tells, None, questions=frozenset(), name="test", log=Log().logger)
    return link._greet  # pyright: ignore[reportPrivateUsage]


def sessions(*answers: Answer) -> tuple[HttpWire, HttpSessions]:
    over = wire(*answers)
    return over, HttpSessions(over, greeting(over))


@pytest.mark.parametrize(
    ("status", "body", "comes"),
    [
        (299, result(INITIALIZED), "done"),
        (200, b"hello", "NoMcpServer answers with status 200 and no result"),
        (300, b"", "ServerFailure redirects"),
        (300, REFUSED, "NoMcpServer refused to begin: no"),
        (401, b"", "ServerFailure answered with status 401"),
        *[(status, b"", "NoMcpServer has no MCP endpoint") for status in (400, 404, 405, 406)],
        (399, b"", "ServerFailure redirects"),
        (403, b"", "CredentialRefused"),
        (407, b"", "ServerFailure answered with status 407"),
        (500, b"", "ServerFailure answered with status 500"),
    ],
)
async def test_a_session_is_begun_with_a_good_status(status: int, body: bytes, comes: str) -> None:
    over, found = sessions(Answer(status, body), Answer(202))
    assert (await outcome(found.begin(greeting(over)))).startswith(comes)
    assert said(over)[1:] == (["notifications/initialized"] if comes == "done" else [])


@pytest.mark.parametrize(
    ("status", "comes"), [(202, "done"), (299, "done"), (300, "ServerFailure redirects")]
)
async def test_a_session_whose_beginning_is_not_taken_is_ended(status: int, comes: str) -> None:
    over, found = sessions(Answer(200, result(INITIALIZED), mcp_session_id="s"), Answer(status))
    assert (await outcome(found.begin(greeting(over)))).startswith(comes)
    assert said(over)[2:] == ([] if comes == "done" else ["DELETE"])
    assert found.own.id == ("s" if comes == "done" else None)


@pytest.mark.parametrize(
    ("session_id", "usable"),
    [
        ("!~", True),
        ("s" * SESSION_ID_CHARACTERS, True),
        ("s" * (SESSION_ID_CHARACTERS + 1), False),
        ("a b", False),
        ("a\x7f", False),
    ],
)
async def test_a_session_id_is_of_plain_characters_and_not_too_many(session_id: str, usable: bool) -> None:
    over, found = sessions(Answer(200, result(INITIALIZED), mcp_session_id=session_id), Answer(202))
    comes = await outcome(found.begin(greeting(over)))
    assert (comes, found.own.id) == (("done", session_id) if usable else (comes, None))
    assert usable or "session id" in comes
    assert said(over)[1:] == (["notifications/initialized"] if usable else [])


def event(data: bytes, last_id: str = "") -> bytes:
    return (f"id: {last_id}\n".encode() if last_id else b"") + b"data: " + data + b"\n\n"


@pytest.mark.parametrize(
    ("heard", "comes"),
    [
        (result({}, 7) + b"", "ServerGone"),
        (b'{"id":null,"result":{}}', "ServerGone"),
        (b'{"id":null,"error":{"code":1,"message":"no"}}', "ServerRefusal no"),
        (result({}), "done"),
    ],
)
async def test_on_a_stream_an_answer_is_that_to_the_request_or_an_error_to_nobody(
    heard: bytes, comes: str
) -> None:
    async with link(Answer(200, event(heard), EVENTS)) as found:
        assert (await outcome(found.request("ping", {}))).startswith(comes)


@pytest.mark.parametrize(
    ("status", "kind", "comes"),
    [
        (200, EVENTS, "done"),
        (299, EVENTS, "done"),
        (300, EVENTS, "ServerGone"),
        (200, JSON, "ServerGone"),
    ],
)
async def test_the_rest_of_a_stream_comes_with_a_good_status(
    status: int, kind: str, comes: str, autojump_clock: object
) -> None:
    over = wire(Answer(status, event(result({})), kind))
    first = cast("Any", Answer(200, event(b"{}", "e-1"), EVENTS))
    asked: list[bytes] = []

    def go_on(lines: bytes) -> Any:
        asked.append(lines)
        return over.stream(None, b"", None)

    assert (await outcome(answer_of(first, take, go_on))).startswith(comes)
    assert asked == [b"Last-Event-ID: e-1\r\n"]


@pytest.mark.parametrize(
    ("busy", "comes"), [(RESUME_TRIES - 1, "done"), (RESUME_TRIES, "ServerGone ended the answer before")]
)
async def test_the_rest_of_a_stream_is_asked_for_again_while_its_server_is_busy(
    busy: int, comes: str, autojump_clock: object
) -> None:
    over = wire(*[Answer(503)] * busy, Answer(200, event(result({})), EVENTS))
    first = cast("Any", Answer(200, event(b"{}", "e-1"), EVENTS))
    found = answer_of(first, take, lambda lines: over.stream(None, lines, None))
    assert (await outcome(found)).startswith(comes)


async def test_a_request_that_was_sent_is_never_called_unsent_whatever_keeps_its_rest_away(
    autojump_clock: object,
) -> None:
    tried: list[bytes] = []

    def go_on(lines: bytes) -> Any:
        tried.append(lines)
        raise NotReached("cannot be reached: connection refused")

    first = cast("Any", Answer(200, event(b"{}", "e-1"), EVENTS))
    with pytest.raises(ServerGone, match="ended the answer before the result, and then cannot be") as gone:
        await answer_of(first, take, go_on)
    assert not isinstance(gone.value, ServerAway), "whoever hears of that makes the call again"
    assert len(tried) == RESUME_TRIES


async def test_a_place_that_is_said_twice_is_nothing_new(autojump_clock: object) -> None:
    asked: list[bytes] = []

    def go_on(lines: bytes) -> Any:
        asked.append(lines)
        return wire(Answer(200, event(b"{}", "e-1"), EVENTS)).stream(None, b"", None)

    first = cast("Any", Answer(200, event(b"{}", "e-1"), EVENTS))
    assert (await outcome(answer_of(first, take, go_on))).startswith("ServerGone")
    assert len(asked) == RESUMED_AT_MOST


class Broken(Answer):
    """An answer whose connection breaks off behind what was said."""

    async def part(self) -> bytes:
        if not self._parts:
            raise BrokenOff
        return await super().part()


@pytest.mark.parametrize("last_id", ["", "e-1"])
async def test_a_stream_that_broke_is_come_back_to_where_it_said_how(
    last_id: str, autojump_clock: object
) -> None:
    over = wire(Answer(200, event(result({})), EVENTS))
    first = cast("Any", Broken(200, event(b"{}", last_id), EVENTS))
    found = answer_of(first, take, lambda lines: over.stream(None, lines, None))
    if last_id:
        assert await outcome(found) == "done"
    else:
        with pytest.raises(BrokenOff):
            await found


@pytest.mark.parametrize("last_id", ["", "é", "a\tb"])
async def test_a_stream_that_says_no_usable_id_is_not_come_back_to(last_id: str) -> None:
    first = cast("Any", Answer(200, event(b"{}", last_id), EVENTS))

    def go_on(lines: bytes) -> Any:
        raise AssertionError(lines)

    assert (await outcome(answer_of(first, take, go_on))).startswith("ServerGone")


async def test_a_stream_is_come_back_to_so_often(autojump_clock: object) -> None:
    asked: list[bytes] = []

    def go_on(lines: bytes) -> Any:
        asked.append(lines)
        return wire(Answer(200, event(b"{}"), EVENTS)).stream(None, b"", None)

    first = cast("Any", Answer(200, event(b"{}", "e-1"), EVENTS))
    assert (await outcome(answer_of(first, take, go_on))).startswith("ServerGone")
    assert asked == [b"Last-Event-ID: e-1\r\n"] * RESUMED_AT_MOST


@pytest.mark.parametrize(
    ("wished", "waited"), [("0", 0.1), ("100", 0.1), ("1500", 1.5), ("30000", 30.0), ("40000", 30.0)]
)
async def test_a_stream_is_come_back_to_when_it_said_within_bounds(
    wished: str, waited: float, autojump_clock: object
) -> None:
    begun = trio.current_time()
    at: list[float] = []

    def go_on(lines: bytes) -> Any:
        at.append(trio.current_time() - begun)
        return wire(Answer(200, event(result({})), EVENTS)).stream(None, b"", None)

    first = cast("Any", Answer(200, f"retry: {wished}\n".encode() + event(b"{}", "e-1"), EVENTS))
    assert await outcome(answer_of(first, take, go_on)) == "done"
    assert at == [pytest.approx(waited)]


@pytest.mark.parametrize(
    ("get", "post", "comes"),
    [
        (Answer(299, b"event: endpoint\ndata: /m\n\n", EVENTS), Answer(299), "ServerGone ended the stream"),
        (Answer(299, b"event: endpoint\ndata: /m\n\n", EVENTS), Answer(300), "ServerFailure redirects"),
        (
            Answer(300, b"event: endpoint\ndata: /m\n\n", EVENTS),
            Answer(202),
            "NoMcpServer has no MCP endpoint",
        ),
        (
            Answer(200, b"event: endpoint\ndata: /m\n\n", JSON),
            Answer(202),
            "NoMcpServer has no MCP endpoint",
        ),
        (
            Answer(200, b"event: endpoint\ndata: " + b"m" * ENDPOINT_CHARACTERS + b"\n\n", EVENTS),
            Answer(300),
            "ServerFailure redirects",
        ),
        (
            Answer(200, b"event: endpoint\ndata: m" + b"m" * ENDPOINT_CHARACTERS + b"\n\n", EVENTS),
            Answer(202),
            "NoMcpServer names an address",
        ),
    ],
)
async def test_the_transport_of_2024_ends_with_either_of_its_halves(
    get: Answer, post: Answer, comes: str
) -> None:
    get.goes_on_until = post.finished
    stream = SseStream(wire(get, post), None)
    await stream.send(b"{}")
    await stream.run()
    assert (await outcome(stream.receive())).startswith(comes)


@pytest.mark.parametrize("length", [MASKED_CHARACTERS - 1, MASKED_CHARACTERS])
def test_what_was_shown_is_not_repeated_unless_it_is_but_a_word(length: int) -> None:
    credential = "c" * length
    data = {"shown": f"<{credential}>"}
    refusal = without_credentials(ServerRefusal(7, f"not {credential}!", data), [f"Bearer {credential}"])
    masked = length >= MASKED_CHARACTERS
    assert refusal.code == 7
    assert str(refusal) == ("not ***!" if masked else f"not {credential}!")
    assert refusal.data == (None if masked else data)


def test_the_whole_of_what_was_shown_is_masked_before_its_end() -> None:
    refusal = ServerRefusal(7, "Bearer 12345678, 12345678", {"other": 1})
    found = without_credentials(refusal, ["Bearer 12345678", "second-credential"])
    assert (str(found), found.data) == ("***, ***", {"other": 1})


def reached(url: str, ca_file: str = "") -> CredentialWire:
    where = HttpServerPlace(url=url, connections=1, ca_file=ca_file)
    return CredentialWire(where, StaticCredential({}), Log().logger, "test")


def test_a_file_of_authorities_is_read_where_one_is_named(tmp_path: Path) -> None:
    assert reached("https://a.example/mcp").url == "https://a.example/mcp"
    with pytest.raises(ValueError, match="nowhere"):
        reached("https://a.example/mcp", str(tmp_path / "nowhere.pem"))


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("/m?s=1", "https://a.example/m?s=1"),
        ("m", "https://a.example/m"),
        ("https://a.example/m", "https://a.example/m"),
        ("http://a.example/m", None),
        ("https://a.example:444/m", None),
        ("//b.example/m", None),
    ],
)
def test_an_address_that_an_upstream_names_is_of_its_own_origin(target: str, url: str | None) -> None:
    over = reached("https://a.example/mcp")
    if url is None:
        with pytest.raises(ValueError, match="another place"):
            over.elsewhere(target)
    else:
        assert over.elsewhere(target).url == url


class Connections:
    """Connections with an upstream, as far as they are used."""

    def __init__(self, made: list[Connections], connections: int) -> None:
        made.append(self)
        self.most = connections
        self.closed = False
        self.sent: list[tuple[bytes, bytes]] = []

    def prepare(self, method: str, headers: Any) -> bytes:
        return f"{method} {dict(headers).get('Accept')}\r\n".encode()

    @asynccontextmanager
    async def open(self, head: bytes, body: bytes, **_: Any) -> AsyncGenerator[Answer]:
        await trio.lowlevel.checkpoint()
        self.sent.append((head, body))
        yield Answer(200)

    async def aclose(self) -> None:
        self.closed = True


async def test_what_lasts_has_connections_of_its_own_and_all_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Connections] = []
    monkeypatch.setattr(
        credential_wire, "Fetcher", lambda url, *, connections, ca_file: Connections(made, connections)
    )
    over = CredentialWire(
        HttpServerPlace(url="https://a.example/mcp", connections=7),
        StaticCredential({}),
        Log().logger,
        "test",
    )
    calls, streams, rests, logs = made
    for message, caller in ((None, None), (b"{}", CALLER), (None, CALLER)):
        async with over.stream(message, b"", caller):
            pass
    for caller in (None, CALLER):
        async with over.attend(b"", caller):
            pass
    async with over.post(b"{}", b"", CALLER):
        pass
    await over.delete(b"", CALLER)
    both = f"{JSON}, {EVENTS}"
    get = (f"GET {EVENTS}\r\n".encode(), b"")
    assert streams.sent == [get, (f"POST {both}\r\n".encode(), b"{}"), get]
    assert rests.sent == logs.sent == [get]
    assert calls.sent == [(f"POST {both}\r\n".encode(), b"{}"), (f"DELETE {JSON}\r\n".encode(), b"")]
    assert [each.most for each in made] == [7, credential_wire.STREAMS, 7, credential_wire.HEARD_AT_ONCE]
    await over.aclose()
    assert all(each.closed for each in made)


@pytest.mark.parametrize(
    ("error", "kind", "busy"),
    [
        (NotConnected("is away"), NotReached, False),
        (TooManyConnections("is away"), NotReached, True),
        (FetchFailed("is away"), ServerGone, None),
    ],
)
async def test_where_no_answer_comes_it_is_known_whether_anything_was_sent(
    error: Exception, kind: type[ServerGone], busy: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away(Connections):
        @asynccontextmanager
        async def open(self, head: bytes, body: bytes, **_: Any) -> AsyncGenerator[Answer]:
            await trio.lowlevel.checkpoint()
            if True:  # a generator all the same
                raise error
            yield Answer(200)

        async def begin(self, *_: Any, **__: Any) -> Answer:
            await trio.lowlevel.checkpoint()
            raise error

    monkeypatch.setattr(
        credential_wire, "Fetcher", lambda url, *, connections, ca_file: Away([], connections)
    )
    over = reached("https://a.example/mcp")
    for asking in (
        over.ask(b"{}", b"", CALLER, lambda _: trio.lowlevel.checkpoint()),
        over.delete(b"", CALLER),
    ):
        with pytest.raises(kind) as caught:
            await asking
        assert type(caught.value) is kind
        assert (str(caught.value), caught.value.more) == ("is away", "")
        assert getattr(caught.value, "busy", None) is busy


PAID = f"{PAYMENT_SIGNATURE}: p\r\n".encode()


@pytest.mark.parametrize(
    ("shown", "headers", "told"),
    [
        ({PAYMENT_SIGNATURE: NOTHING_YET, "X": "1"}, b"", {PAYMENT_SIGNATURE, "X"}),
        ({PAYMENT_SIGNATURE: NOTHING_YET, "X": "1"}, PAID, {"X"}),
        ({PAYMENT_SIGNATURE: NOTHING_YET, "X": "1"}, b"A: 1\r\nX-PAYMENT: p\r\n", {"X"}),
        ({PAYMENT_SIGNATURE: NOTHING_YET, "X": "1"}, b"A: X-PAYMENT: p\r\n", {PAYMENT_SIGNATURE, "X"}),
        ({"X": "1"}, PAID, {"X"}),
        ({}, PAID, set()),
    ],
)
async def test_who_pays_with_a_request_does_not_say_besides_that_they_could(
    shown: dict[str, str], headers: bytes, told: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []

    class Taking(Connections):
        async def begin(self, head: bytes, body: bytes, **_: Any) -> Answer:
            await trio.lowlevel.checkpoint()
            heads.append(head)
            return Answer(200)

        def end(self, answer: Answer) -> None: ...

    monkeypatch.setattr(
        credential_wire, "Fetcher", lambda url, *, connections, ca_file: Taking([], connections)
    )
    credential = StaticCredential({})

    async def headers_of(call: Any) -> dict[str, str]:
        return dict(shown)

    monkeypatch.setattr(credential, "headers", headers_of, raising=False)
    where = HttpServerPlace(url="https://a.example/mcp", connections=1)
    over = CredentialWire(where, credential, Log().logger, "test")
    for _ in range(2):
        await over.ask(b"{}", headers, CALLER, lambda _: trio.lowlevel.checkpoint())
    for head in heads:
        added = head.split(b"\r\n", 1)[1].removeprefix(headers).decode()
        assert {line.partition(":")[0] for line in added.splitlines()} == told
    assert len(heads) == 2


def caller(name: int | str) -> AgentRequest:
    return AgentRequest(subject=str(name), call_id="1")


@asynccontextmanager
async def begun(count: int, clock: list[float]) -> AsyncGenerator[tuple[HttpWire, HttpSessions]]:
    """Sessions of so many callers, and our own, at one upstream that has places for two more."""
    answers = [
        answer
        for number in range(count + 3)
        for answer in (Answer(200, result(INITIALIZED, number + 1), mcp_session_id=f"s{number}"), Answer(202))
    ]
    over = wire(*answers)
    greet = greeting(over)
    found = HttpSessions(over, greet, clock=lambda: clock[0])
    await found.begin(greet)
    for number in range(count):
        await found.of(caller(number))
    yield over, found


async def test_sessions_that_nobody_used_for_long_are_ended_a_few_with_each_that_is_begun() -> None:
    clock, few = [0.0], http_sessions.FAREWELLS
    async with begun(few + 2, clock) as (over, found):
        (await found.of(caller(1))).requests += 1
        clock[0] = http_sessions.IDLE_SECONDS
        await found.of(caller("in time"))
        assert said(over).count("DELETE") == 0
        clock[0] += 1.0
        await found.of(caller("later"))
        assert said(over).count("DELETE") == few
        left = [number for number in range(few + 2) if found.known(caller(number)) is not None]
        assert left == [1, few + 1]  # it is in use, and one too many for now


async def test_at_the_end_so_many_sessions_are_ended_and_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_sessions, "LAST_FAREWELLS", 3)
    async with begun(5, [0.0]) as (over, found):
        await found.end()
        assert said(over).count("DELETE") == 4
        assert found.own.id is None
        assert [found.known(caller(number)) for number in range(5)] == [None] * 5


@pytest.mark.parametrize(("heard", "is_finished"), [(result({}), True), (b"{}", False)])
async def test_behind_its_answer_a_stream_is_read_to_its_end(heard: bytes, is_finished: bool) -> None:
    answer = Answer(200, event(heard), EVENTS)
    await outcome(answer_of(cast("Any", answer), take))
    assert answer.finished.is_set() is is_finished
