"""Sessions without a wire: whose they are, how long they last, what runs in them and what is asked in them."""

from __future__ import annotations

import gc
import json
import secrets
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
import trio.testing

from auth.values.identity_model import ANONYMOUS, Principal, PrincipalKind
from server.calls.sessions.ended_sessions import EndedSessions
from server.calls.sessions.outstanding import MAX_OUTSTANDING
from server.calls.sessions.session import MAX_RUNNING, MAX_WATCHED, MAX_WATCHED_CHARACTERS, Session
from server.calls.sessions.session_ids import LIFETIME_DAYS, SessionIds
from server.calls.sessions.sessions import Sessions
from server.mcp.call_failures import BackendError, CannotAsk
from server.mcp.call_questions import Question
from server.mcp.errors import InvalidRequest, SessionNotFound, TooManySessions, TooManySubscriptions
from server.mcp.messages import Notification, ResponseMessage, decode_one
from server.mcp.method_params import InitializeParams
from server.mcp.versions import REVISIONS
from server.store.inline_store import open_inline_store
from server.store.jobs import StoreUnavailable

ALICE = Principal(kind=PrincipalKind.USER, subject="alice", client_id="c1")
BOB = Principal(kind=PrincipalKind.USER, subject="bob", client_id="c1")
ALL: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
HERE = "192.0.2.1"


def begin(
    sessions: Sessions,
    who: Principal = ALICE,
    *,
    address: str = HERE,
    capabilities: Any = ALL,
    info: Any = None,
) -> Session:
    params = InitializeParams(protocol_version="2025-11-25", capabilities=capabilities, client_info=info)
    return sessions.create(who, address, REVISIONS["2025-11-25"], params)


def note(session: Session, method: str, params: Any = None) -> None:
    message = decode_one(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())
    assert isinstance(message, Notification)
    session.note(message)


def ready(sessions: Sessions | None = None, **how: Any) -> Session:
    session = begin(sessions or Sessions(), **how)
    note(session, "notifications/initialized")
    return session


def form(message: str = "who?") -> Question:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return Question(method="elicitation/create", params={"message": message, "requestedSchema": schema})


class Client:
    """The other end: what it was sent, and its answers."""

    def __init__(self, session: Session, reply: Callable[[Any], Mapping[str, Any] | None]) -> None:
        self.session = session
        self.reply = reply  # result or error of a request's answer; None: no answer
        self.sent: list[Any] = []

    async def send(self, message: bytes) -> None:
        sent = json.loads(message)
        self.sent.append(sent)
        if "id" in sent and (reply := self.reply(sent)) is not None:
            answer(self.session, sent["id"], **reply)

    @property
    def requests(self) -> list[Any]:
        return [one for one in self.sent if "id" in one]


def answer(session: Session, request_id: Any, **what: Any) -> None:
    message = decode_one(json.dumps({"jsonrpc": "2.0", "id": request_id, **what}).encode())
    assert isinstance(message, ResponseMessage)
    session.answer(message)


def accepts(name: str = "Ann") -> dict[str, Any]:
    return {"result": {"action": "accept", "content": {"name": name}}}


# ── whose they are, and how long they last ──────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("session.given")
async def test_an_id_is_visible_ascii_and_cannot_be_guessed() -> None:
    sessions = Sessions()
    ids = {begin(sessions).id for _ in range(50)}
    assert len(ids) == 50
    assert all(one.isascii() and one.isprintable() and " " not in one and len(one) >= 22 for one in ids)


@pytest.mark.requirement("session.bound")
@pytest.mark.parametrize(
    ("owner", "other"),
    [
        (ALICE, BOB),
        (ALICE, ANONYMOUS),
        (ALICE, Principal(kind=PrincipalKind.USER, subject="alice", client_id="c2")),
        (ALICE, Principal(kind=PrincipalKind.API_KEY, subject="alice", client_id="c1")),
    ],
)
async def test_a_session_is_its_callers_alone(owner: Principal, other: Principal) -> None:
    sessions = Sessions()
    session = begin(sessions, owner)
    assert sessions.find(session.id, other, HERE) is None
    assert sessions.find(session.id, owner, "198.51.100.7") is session, "people move between networks"


async def test_callers_without_a_login_are_told_apart_by_their_addresses() -> None:
    sessions = Sessions(per_caller=1)
    session = begin(sessions, ANONYMOUS)
    assert sessions.find(session.id, ANONYMOUS, HERE) is session
    assert sessions.find(session.id, ANONYMOUS, "198.51.100.7") is None
    begin(sessions, ANONYMOUS, address="198.51.100.7")
    assert sessions.count() == 2


async def test_an_ended_session_is_found_no_more() -> None:
    sessions = Sessions()
    session = begin(sessions)
    assert await sessions.end(session.id, ALICE, HERE)
    assert not await sessions.end(session.id, ALICE, HERE)
    assert sessions.find(session.id, ALICE, HERE) is None
    assert sessions.resume(session.id, ALICE, HERE) is None
    assert sessions.count() == 0
    assert session.closed.is_set() and not session.ready


# ── those that are not here any more ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("session.resumed")
async def test_a_session_that_was_put_away_is_taken_up_again_with_what_was_agreed_and_nothing_else() -> None:
    sessions = Sessions()
    before = ready(sessions, info={"name": "inspector"})
    before.log_level = "error"
    before.watch("test://a")
    sessions.put_away(before)
    assert sessions.count() == 0 and sessions.find(before.id, ALICE, HERE) is None
    after = sessions.resume(before.id, ALICE, "198.51.100.7")
    assert after is not None and after is not before
    assert (after.id, after.caller, after.revision, after.can) == (
        before.id,
        before.caller,
        before.revision,
        before.can,
    )
    assert after.ready and (after.log_level, after.watched) == ("info", set())
    assert sessions.find(before.id, ALICE, HERE) is after
    assert sessions.resume(before.id, ALICE, HERE) is None, "it is here"


@pytest.mark.requirement("session.resumed")
async def test_what_a_session_is_taken_up_with_can_be_asked_at_once() -> None:
    sessions = Sessions()
    before = begin(sessions)  # and the process ends before `initialized` is there
    sessions.put_away(before)
    after = sessions.resume(before.id, ALICE, HERE)
    assert after is not None
    client = Client(after, lambda _: accepts())
    assert (await after.ask(client.send, {"k": form()}))["k"]["content"] == {"name": "Ann"}


@pytest.mark.requirement("session.bound")
async def test_a_session_is_taken_up_again_by_its_caller_alone() -> None:
    sessions = Sessions()
    session, anonymous = begin(sessions), begin(sessions, ANONYMOUS)
    sessions.put_away(session)
    sessions.put_away(anonymous)
    for other in (BOB, ANONYMOUS):
        assert sessions.resume(session.id, other, HERE) is None
        assert not await sessions.end(session.id, other, HERE)
    assert sessions.resume(anonymous.id, ANONYMOUS, "198.51.100.7") is None
    assert sessions.count() == 0
    assert sessions.resume(session.id, ALICE, HERE) is not None
    assert sessions.resume(anonymous.id, ANONYMOUS, HERE) is not None


async def test_one_that_is_not_here_can_be_ended_as_well() -> None:
    sessions = Sessions(per_caller=1)
    session = begin(sessions)
    with begin(sessions).stream_open():
        assert await sessions.end(session.id, ALICE, HERE), "which needs no room"
    assert sessions.resume(session.id, ALICE, HERE) is None


@pytest.mark.requirement("session.bounds")
async def test_sessions_that_are_taken_up_again_count_like_any_other() -> None:
    sessions = Sessions(per_caller=2)
    first, second, third = [begin(sessions) for _ in range(3)]
    assert first.closed.is_set()
    again = sessions.resume(first.id, ALICE, HERE)
    assert again is not None and sessions.count() == 2 and second.closed.is_set()
    with again.stream_open(), third.stream_open(), pytest.raises(TooManySessions):
        sessions.resume(second.id, ALICE, HERE)
    everybodys = Sessions(overall=1)
    away = begin(everybodys)
    with begin(everybodys, BOB).stream_open(), pytest.raises(TooManySessions):
        everybodys.resume(away.id, ALICE, HERE)


async def test_an_end_that_cannot_be_remembered_is_none() -> None:
    async with open_inline_store(clock=lambda: 0) as store:
        sessions = Sessions(ended=EndedSessions(store))
    session = begin(sessions)
    with pytest.raises(StoreUnavailable):
        await sessions.end(session.id, ALICE, HERE)
    assert sessions.find(session.id, ALICE, HERE) is session


async def test_a_session_that_is_older_than_its_id_can_still_be_ended() -> None:
    now = 0
    ids = SessionIds(bytes(32), "main", clock=lambda: now, entropy=secrets.token_bytes)
    sessions = Sessions(ids)
    session = begin(sessions)
    now = LIFETIME_DAYS * 86_400_000
    assert await sessions.end(session.id, ALICE, HERE)
    assert session.closed.is_set() and sessions.resume(session.id, ALICE, HERE) is None


# ── room, and idleness ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_caller_with_too_many_loses_the_one_unused_for_longest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sessions = Sessions(per_caller=3)
    first, second, third = [begin(sessions) for _ in range(3)]
    bobs = begin(sessions, BOB)
    await trio.sleep(1)
    sessions.find(first.id, ALICE, HERE)
    await trio.sleep(1)
    with second.stream_open():
        begin(sessions)
    assert [session.closed.is_set() for session in (first, second, third, bobs)] == [
        False,
        False,
        True,
        False,
    ]


async def test_sessions_in_use_never_give_way() -> None:
    sessions = Sessions(per_caller=2)
    streaming, calling = begin(sessions), begin(sessions)
    with streaming.stream_open(), calling.running(1):
        with pytest.raises(TooManySessions):
            begin(sessions)
        assert sessions.count() == 2
    begin(sessions)


@pytest.mark.requirement("session.bounds")
async def test_a_full_server_takes_from_the_newcomer_first_and_then_from_whoever_is_away_for_longest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sessions = Sessions(overall=2)
    bobs = begin(sessions, BOB)
    await trio.sleep(1)
    alices = begin(sessions)
    newer = begin(sessions)
    assert alices.closed.is_set() and not bobs.closed.is_set()
    carols = begin(sessions, ANONYMOUS)
    assert bobs.closed.is_set() and not newer.closed.is_set()
    with newer.stream_open(), carols.stream_open(), pytest.raises(TooManySessions):
        begin(sessions, BOB)


@pytest.mark.requirement("session.bounds")
async def test_a_session_nobody_uses_ends_and_one_in_use_does_not(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sessions = Sessions(idle_seconds=600)
    idle, streaming, calling, used = [begin(sessions) for _ in range(4)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sessions.run)
        with streaming.stream_open(), calling.running(1):
            for _ in range(10):
                await trio.sleep(110)
                assert sessions.find(used.id, ALICE, HERE) is used
            assert idle.closed.is_set()
            assert sessions.count() == 3
        await trio.sleep(599)
        assert not streaming.closed.is_set(), "a session is idle from its last use on"
        await trio.sleep(200)
        assert sessions.count() == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("info", "shown"),
    [
        ({"name": "inspector", "version": "1.2"}, "inspector/1.2"),
        ({"name": "a\nb\x1b[31m", "version": 3}, "ab[31m/3"),
        ({"name": "x" * 500}, "x" * 100),
        (["junk"], ""),
        (None, ""),
    ],
)
async def test_what_a_client_calls_itself_is_kept_fit_to_be_printed(info: Any, shown: str) -> None:
    assert begin(Sessions(), info=info).client == shown


@pytest.mark.parametrize("capabilities", [None, [], "all", 3])
async def test_a_client_that_declares_nonsense_declares_nothing(capabilities: Any) -> None:
    session = ready(capabilities=capabilities)
    assert session.can == frozenset()
    with pytest.raises(CannotAsk):
        await session.ask(session.send, {"k": form()})


class _Large(dict[str, Any]):
    """A dictionary that can be watched."""


async def test_a_session_does_not_keep_what_its_client_declared() -> None:
    declared = _Large(elicitation={}, much=[[]])
    watched = weakref.ref(declared)
    sessions = Sessions()
    session = begin(sessions, ANONYMOUS, capabilities=declared)
    del declared
    gc.collect()
    assert watched() is None
    assert session.can == {"elicitation"}


# ── what runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("request_id", [7, "seven", "", 0])
async def test_a_cancelled_request_is_ended_and_not_answered(request_id: Any) -> None:
    session = ready()
    with trio.fail_after(60), session.running("another") as other, session.running(request_id) as running:
        note(session, "notifications/cancelled", {"requestId": request_id, "reason": "bored"})
        await trio.sleep_forever()
    assert running.cancelled and running.scope.cancelled_caught
    assert not other.cancelled
    note(session, "notifications/cancelled", {"requestId": request_id})  # too late: ignored


@pytest.mark.parametrize(
    "params", [None, {}, {"requestId": None}, {"requestId": [1]}, {"requestId": "1"}, []]
)
async def test_junk_cancels_nothing(params: Any) -> None:
    session = ready()
    with session.running(1) as running:
        note(session, "notifications/cancelled", params)
        note(session, "notifications/whatever", params)
        note(session, "notifications/progress", {"progressToken": 1, "progress": 1})
    assert not running.cancelled


async def test_two_requests_with_one_id_do_not_run_side_by_side() -> None:
    session = ready()
    with session.running(1):
        with pytest.raises(InvalidRequest), session.running(1):
            pass
        with session.running("1"):
            pass
    with session.running(1):
        pass


async def test_a_session_runs_only_so_many_requests() -> None:
    session = ready()
    blocks = [session.running(number) for number in range(MAX_RUNNING)]
    for block in blocks:
        block.__enter__()
    with pytest.raises(TooManySessions), session.running("one more"):
        pass
    for block in reversed(blocks):
        block.__exit__(None, None, None)
    with session.running("one more"):
        pass


async def test_what_runs_is_bounded_for_a_caller_not_only_for_each_of_its_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.calls.sessions.session.MAX_RUNNING_OF_CALLER", 3)
    sessions, params = (
        Sessions(),
        InitializeParams(protocol_version="2025-11-25", capabilities={}, client_info=None),
    )

    def begin(address: str) -> Session:
        return sessions.create(ANONYMOUS, address, REVISIONS["2025-11-25"], params)

    one, other, stranger = begin("192.0.2.1"), begin("192.0.2.1"), begin("192.0.2.2")
    with one.running(1), one.running(2), other.running(1):
        for own in (one, other):
            with pytest.raises(TooManySessions), own.running(9):
                raise AssertionError
        with stranger.running(1):
            pass
        sessions.put_away(one)  # what ran in it was cancelled
        with other.running(2):
            pass


async def test_the_end_of_a_session_cancels_what_runs_and_nothing_more_begins() -> None:
    sessions = Sessions()
    session = ready(sessions)
    with trio.fail_after(60), session.running(1) as running:
        sessions.put_away(session)
        await trio.sleep_forever()
    assert running.cancelled
    with pytest.raises(SessionNotFound), session.running(2):
        pass


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_questions_go_out_at_once_and_each_gets_its_answer() -> None:
    session = ready()
    client = Client(session, lambda _sent: None)
    answers: dict[str, Any] = {}

    async def ask() -> None:
        answers.update(await session.ask(client.send, {"one": form("1?"), "two": form("2?")}))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            first, second = client.requests
            assert first["id"] != second["id"]
            assert (first["method"], first["params"]["message"]) == ("elicitation/create", "1?")
            answer(session, second["id"], **accepts("Two"))
            answer(session, second["id"], **accepts("Late"))
            answer(session, "nobody asked this", **accepts())
            answer(session, 1, error={"code": 1, "message": "?"})
            answer(session, first["id"], **accepts("One"))
    assert {key: one["content"]["name"] for key, one in answers.items()} == {"one": "One", "two": "Two"}
    assert client.sent == [first, second], "nothing is withdrawn that was answered"


async def test_only_what_the_client_declared_is_asked() -> None:
    session = ready(capabilities={"roots": {}})
    client = Client(session, lambda _sent: accepts())
    with pytest.raises(CannotAsk) as refused:
        await session.ask(client.send, {"k": form()})
    assert "elicitation" in refused.value.required
    assert client.sent == []


async def test_a_question_waits_for_the_end_of_the_handshake_a_moment_and_not_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    session = begin(Sessions())
    client = Client(session, lambda _sent: accepts())
    with pytest.raises(CannotAsk):
        await session.ask(client.send, {"k": form()})
    assert client.sent == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.ask, client.send, {"k": form()})
        await trio.sleep(1)
        assert client.sent == []
        note(session, "notifications/initialized")
    assert len(client.requests) == 1


async def test_an_answer_that_does_not_fit_is_asked_for_once_more_with_the_reason() -> None:
    session = ready()
    replies = iter([{"result": {"action": "accept", "content": {"name": 7}}}, accepts("Ann")])
    client = Client(session, lambda _sent: next(replies))
    answers = await session.ask(client.send, {"k": form("who are you?")})
    assert answers["k"]["content"] == {"name": "Ann"}
    again = client.requests[1]["params"]["message"]
    assert again.startswith("who are you?\n(") and "name" in again


@pytest.mark.parametrize(
    "reply",
    [
        {"result": {"action": "accept", "content": {"name": 7}}},
        {"result": {}},
        {"result": [1]},
        {"result": None},
        {"error": {"code": -32603, "message": "no"}},
        {"error": {"code": -1, "message": "rejected"}},
    ],
)
async def test_an_answer_that_is_none_fails_the_call(reply: Any) -> None:
    session = ready()
    client = Client(session, lambda _sent: reply)
    with trio.fail_after(60), pytest.raises(BackendError):
        await session.ask(client.send, {"k": form()})
    assert len(client.requests) <= 2


async def test_the_caller_is_told_that_the_user_said_no() -> None:
    session = ready()
    client = Client(session, lambda _sent: {"error": {"code": -1, "message": "rejected"}})
    with pytest.raises(BackendError, match="the user rejected"):
        await session.ask(client.send, {"k": form()})


async def test_an_answer_that_never_comes_is_not_waited_for_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    session = ready()
    client = Client(session, lambda _sent: None)
    with pytest.raises(BackendError, match="in time"):
        await session.ask(client.send, {"k": form()})
    request, withdrawn = client.sent
    assert withdrawn["method"] == "notifications/cancelled"
    assert withdrawn["params"]["requestId"] == request["id"]


async def test_a_cancelled_call_withdraws_its_questions() -> None:
    session = ready()
    client = Client(session, lambda sent: accepts() if "1" in sent["params"]["message"] else None)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.ask, client.send, {"a": form("1"), "b": form("2")})
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    *_, open_one, withdrawn = client.sent
    assert withdrawn["params"]["requestId"] == open_one["id"]
    answer(session, open_one["id"], **accepts())  # too late: ignored


async def test_a_client_that_does_not_read_holds_no_cancelled_call_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    session = ready()

    async def stuck(message: bytes) -> None:
        await trio.sleep_forever()

    with trio.move_on_after(1):
        await session.ask(stuck, {"a": form()})
    assert trio.current_time() < 10


async def test_the_end_of_the_session_is_the_end_of_every_question() -> None:
    sessions = Sessions()
    session = ready(sessions)
    client = Client(session, lambda _sent: None)
    failures: list[str] = []

    async def ask() -> None:
        with pytest.raises(BackendError) as caught:
            await session.ask(client.send, {"k": form()})
        failures.append(str(caught.value))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            sessions.put_away(session)
        await ask()
    assert failures == ["the session has ended"] * 2
    assert len(client.sent) == 1


async def test_a_server_that_is_about_to_stop_waits_for_no_answer_and_asks_nothing_more() -> None:
    sessions = Sessions()
    session = ready(sessions)
    client = Client(session, lambda _sent: None)
    failures: list[str] = []

    async def ask() -> None:
        with pytest.raises(BackendError) as caught:
            await session.ask(client.send, {"k": form()})
        failures.append(str(caught.value))

    with trio.fail_after(60), session.running(1) as running:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            sessions.begin_draining()
        await ask()
    assert ["stopping" in failure for failure in failures] == [True] * 2
    assert [sent["method"] for sent in client.sent] == ["elicitation/create"]
    assert not running.cancelled  # what asked may go on without an answer


async def test_a_client_is_asked_only_so_much_at_a_time() -> None:
    session = ready()
    client = Client(session, lambda _sent: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(session.ask, client.send, {str(n): form() for n in range(MAX_OUTSTANDING)})
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(BackendError):
            await session.ask(client.send, {"k": form()})
        nursery.cancel_scope.cancel()
    client.reply = lambda _sent: accepts()
    with trio.fail_after(60):
        assert await session.ask(client.send, {"k": form()})


async def test_what_belongs_to_a_task_says_so() -> None:
    session = ready()
    client = Client(session, lambda _sent: accepts())
    meta = {"io.modelcontextprotocol/related-task": {"taskId": "t"}}
    await session.ask(client.send, {"k": form()}, meta=meta)
    assert client.requests[0]["params"]["_meta"] == meta


async def test_a_client_can_be_pinged_at_any_time() -> None:
    session = begin(Sessions())
    client = Client(session, lambda _sent: {"result": {}})
    with trio.fail_after(60):
        assert await session.ask_plain(client.send, "ping", {}) == {}
        with pytest.raises(BackendError):
            await session.ask_plain(client.send, "roots/list", {})


async def test_a_ping_is_not_waited_for_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    session = ready()
    client = Client(session, lambda _sent: None)
    with trio.fail_after(60), pytest.raises(BackendError):
        await session.ask_plain(client.send, "ping", {})


# ── what is told ──────────────────────────────────────────────────────────────────────────────────────────────────


async def unsolicited(session: Session) -> list[Any]:
    got: list[Any] = []
    with session.unsolicited.read() as reader, session.attended_here():
        with trio.move_on_after(0.1):
            while (event := await reader.next()) is not None:
                got.append(json.loads(event.message))
    return got


async def test_changes_wait_for_a_reader_once_each(autojump_clock: trio.testing.MockClock) -> None:
    sessions = Sessions()
    session, deaf = ready(sessions), begin(sessions)
    session.watched.add("test://a")
    for _ in range(1000):
        sessions.publish("tools")
        sessions.updated("test://a")
        sessions.updated("test://b")
    assert await unsolicited(session) == [
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "test://a"}},
    ]
    assert await unsolicited(deaf) == [], "it has not said that it is ready"


async def test_a_session_watches_only_so_many_resources() -> None:
    session = ready()
    for number in range(MAX_WATCHED):
        session.watch(f"test://{number}")
    session.watch("test://0")
    with pytest.raises(TooManySubscriptions):
        session.watch("test://one-more")
    session.watched.discard("test://0")
    session.watch("test://one-more")


async def test_what_a_session_watches_is_bounded_in_its_length_too() -> None:
    session = ready()
    address = "test://" + "x" * (MAX_WATCHED_CHARACTERS // 2)
    session.watch(address)
    with pytest.raises(TooManySubscriptions):
        session.watch(address + "y")
    session.watch(address)  # which it does already
    assert session.watched == {address}


async def test_changes_are_told_at_once_to_who_listens(autojump_clock: trio.testing.MockClock) -> None:
    sessions = Sessions()
    session = ready(sessions)
    with trio.fail_after(5), session.unsolicited.read() as reader:
        for kind in ("tools", "prompts", "resources"):
            sessions.publish(kind)
            event = await reader.next()
            assert event is not None
            assert json.loads(event.message)["method"] == f"notifications/{kind}/list_changed"
        sessions.put_away(session)
        assert await reader.next() is None
