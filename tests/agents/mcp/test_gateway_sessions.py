"""People behind one upstream: each has a session or a connection of their own, and meets nothing of anybody else's."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from msgspec.structs import replace
from upstreams import (
    CAN_ALL,
    Caller,
    Double,
    Gate,
    Handler,
    Log,
    Refused,
    Say,
    Turn,
    gate,
    over_http,
    over_tcp,
    soon,
    text,
    tool,
    with_streams,
    words,
)

from server.agents.base.backend import AgentRequest, LibraryBackend, Origin, ResourceRead, ToolCall
from server.agents.mcp import offer_lists
from server.agents.mcp.upstream_credentials import AccountNeeded, StaticCredential
from server.client.mcp_session import caller_links, http_sessions
from server.client.mcp_session.caller_links import CallerLinks
from server.client.mcp_session.session_link import UNHEARD, Link, ServerNews
from server.client.mcp_session.session_request import Credential, SessionRequest
from server.mcp.call_failures import BackendError, Busy
from server.mcp.call_questions import Question
from tests.agents.python.fake_agent import caller_of


class Personal:
    """A credential of each caller's own."""

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {'ours' if call is None else call.subject}"}

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        return False


class Memory(Double):
    """An upstream that keeps something in each session, and lists it there as a resource."""

    def __init__(self, **more: Any) -> None:
        handlers: dict[str, Handler] = {
            "keep": self.keep, "show": self.show, "hang": self.hang, "resources/list": self.listed, "resources/read": self.read,
        }  # fmt: skip
        super().__init__(
            handlers=handlers,
            lists={"tools": [tool(name) for name in ("keep", "show", "hang")]},
            capabilities={"tools": {}, "resources": {"listChanged": True}},
            **more,
        )
        self.kept: dict[str, str] = {}
        self.hanging = trio.Event()

    def where(self, turn: Turn) -> str:
        return turn.headers["connection" if self.sessions is None else "mcp-session-id"]

    async def keep(self, turn: Turn) -> Any:
        self.kept[self.where(turn)] = str(turn.arguments["word"])
        return text("kept")

    async def show(self, turn: Turn) -> Any:
        return text(self.kept.get(self.where(turn), "nothing"))

    async def hang(self, turn: Turn) -> Any:
        self.hanging.set()
        await trio.sleep_forever()

    async def listed(self, turn: Turn) -> Any:
        there = self.where(turn) in self.kept
        return {"resources": [{"uri": "memo://mine", "name": "mine"}] if there else []}

    async def read(self, turn: Turn) -> Any:
        if self.where(turn) not in self.kept:
            raise Refused(-32002, "there is none")
        return {"contents": [{"uri": "memo://mine", "text": self.kept[self.where(turn)]}]}


async def hang(turn: Turn) -> Any:
    await trio.sleep_forever()


def origin(apart: str) -> Origin:
    """The request of a client that is told from others by this, as far as it is asked."""
    return cast("Origin", SimpleNamespace(apart=apart, traceparent=None, later=lambda: None))


async def listed(door: Gate, subject: str) -> Sequence[str]:
    asked = ResourceRead(uri="", subject=subject, call_id="c")
    return [each.uri for each in await door.backend.resources_of(asked)]


async def read(door: Gate, subject: str) -> str:
    library: LibraryBackend = door.backend
    asked = ResourceRead(uri="memo://mine", subject=subject, call_id="c")
    (found,) = await library.read(asked, Caller())
    return str(cast("Any", found).text)


@asynccontextmanager
async def apart(wire: str, credential: Credential | None = None) -> AsyncGenerator[tuple[Memory, Gate]]:
    """A gate to an upstream where each caller has a session (`http`) or a connection (`tcp`) of their own."""
    if wire == "http":
        double = Memory(sessions=set())
        async with over_http(double) as url, gate(url=url, credential=credential) as door:
            yield double, door
        return
    double = Memory()
    async with over_tcp(double) as tcp, gate(tcp=tcp, share="caller") as door:
        yield double, door


@asynccontextmanager
async def crowded(
    wire: str, places: int, monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, Any] | None = None
) -> AsyncGenerator[tuple[Memory, Gate]]:
    """A gate with so many places, for which nobody waits."""
    monkeypatch.setattr(http_sessions, "SESSIONS", places)
    monkeypatch.setattr(caller_links, "WAIT_SECONDS", 0.0)
    double = Memory(sessions=set() if wire == "http" else None)
    tasks = {"tasks": {"requests": {"tools": {"call": {}}}}}
    double.capabilities = {**double.capabilities, **tasks} if capabilities is None else capabilities
    if wire == "http":
        async with over_http(double) as url, gate(url=url) as door:
            yield double, door
        return
    async with over_tcp(double) as tcp, gate(tcp=tcp, share="caller", callers_at_once=places) as door:
        yield double, door


@pytest.mark.parametrize(
    ("wire", "credential"),
    [("http", None), ("http", StaticCredential({})), ("http", Personal()), ("tcp", None)],
)
async def test_what_one_caller_leaves_is_met_by_that_caller_alone(wire: str, credential: Any) -> None:
    async with apart(wire, credential) as (_, door):
        for subject in ("alice", "bob"):
            await door.call("keep", subject=subject, arguments={"word": f"of {subject}"})
        assert words(await door.call("show", subject="carol")) == "nothing"
        for subject in ("alice", "bob"):
            assert words(await door.call("show", subject=subject)) == f"of {subject}"
            assert await listed(door, subject) == ["memo://mine"]
            assert await read(door, subject) == f"of {subject}"
        assert await listed(door, "carol") == []
        assert await listed(door, "dave") == []  # who made no call yet
        with pytest.raises(BackendError):
            await read(door, "carol")
        assert door.backend.resources() == []


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_strangers_with_sessions_or_addresses_of_their_own_are_kept_apart(wire: str) -> None:
    nobody: dict[str, Any] = {"subject": "anonymous"}
    async with apart(wire) as (_, door):
        who: list[dict[str, Any]] = [
            {"sharer": "192.0.2.1", "origin": origin("one")},
            {"sharer": "192.0.2.1", "origin": origin("two")},
            {"sharer": "192.0.2.2"},
            {"sharer": "192.0.2.1"},
        ]
        for number, each in enumerate(who):
            await door.call("keep", **nobody, **each, arguments={"word": str(number)})
        shown = [words(await door.call("show", **nobody, **each)) for each in who]
        assert shown == ["0", "1", "2", "3"]


async def test_what_all_share_is_not_asked_what_it_has_for_each_who_lists_it() -> None:
    double = Memory()
    async with over_tcp(double) as tcp, gate(tcp=tcp, share="all") as door:
        await door.call("show", subject="alice")
        before = len(double.of("resources/list"))
        assert await listed(door, "alice") == []
        assert len(double.of("resources/list")) == before


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_one_that_has_no_resources_is_never_asked_for_a_callers_own(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crowded(wire, 4, monkeypatch, capabilities={"tools": {}}) as (double, door):
        await door.call("keep", subject="alice", arguments={"word": "x"})
        assert await listed(door, "alice") == []
        assert double.of("resources/list") == []


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_one_that_does_not_say_what_a_caller_has_holds_up_no_list(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offer_lists, "OWN_SECONDS", 0.05)
    async with crowded(wire, 4, monkeypatch) as (double, door):
        await door.call("keep", subject="alice", arguments={"word": "x"})
        double.handlers["resources/list"] = hang
        assert await listed(door, "alice") == []


async def test_a_callers_list_is_read_again_after_each_of_their_requests_and_not_before() -> None:
    async with apart("http") as (double, door):
        await door.call("keep", subject="alice", arguments={"word": "x"})
        before = len(double.of("resources/list"))
        for _ in range(3):
            await listed(door, "alice")
        assert len(double.of("resources/list")) == before + 1
        await door.call("show", subject="alice")
        await listed(door, "alice")
        assert len(double.of("resources/list")) == before + 2


async def test_over_the_transport_of_2024_each_caller_comes_with_a_credential_and_a_session_of_their_own() -> (
    None
):
    double = Memory(version="2024-11-05")

    async def who(turn: Turn) -> Any:
        return text(turn.headers["authorization"])

    double.handlers["who"] = who
    double.lists["tools"].append(tool("who"))
    double.sessions = set()  # one for each stream
    async with with_streams(double, old=True) as (url, _), gate(url=url, credential=Personal()) as door:
        for subject in ("alice", "bob"):
            assert words(await door.call("who", subject=subject)) == f"Bearer {subject}"
            await door.call("keep", subject=subject, arguments={"word": f"of {subject}"})
        assert words(await door.call("show", subject="alice")) == "of alice"
    begun = [
        head["authorization"]
        for message, head in zip(double.heard, double.heads, strict=True)
        if message.get("method") == "initialize"
    ]
    assert begun == ["Bearer ours", "Bearer alice", "Bearer bob"]


async def test_over_the_transport_of_2024_each_program_of_a_person_comes_as_itself() -> None:
    class Program(Personal):
        async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
            return {
                "Authorization": str(None if call is None or call.caller is None else call.caller.client_id)
            }

    async def who(turn: Turn) -> Any:
        return text(turn.headers["authorization"])

    double = Double(version="2024-11-05", handlers={"who": who}, lists={"tools": [tool("who")]})
    async with with_streams(double, old=True) as (url, _), gate(url=url, credential=Program()) as door:
        for program in ("one", "two", "one"):
            caller = replace(caller_of("alice"), client_id=program)
            asked = ToolCall(tool="who", arguments={}, subject="alice", call_id="c", caller=caller)
            assert words(await door.backend.call(asked, Caller())) == program
    assert len(double.of("initialize")) == 1 + 2


async def test_over_the_transport_of_2024_who_has_no_account_is_told_where_to_connect_one() -> None:
    class Unconnected(Personal):
        async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
            if call is not None:
                raise AccountNeeded("the shop", "https://gate.example/connect", never)
            return await super().headers(call)

    async def never() -> bool:
        return False

    double = Double(version="2024-11-05")
    async with with_streams(double, old=True) as (url, _), gate(url=url, credential=Unconnected()) as door:
        with pytest.raises(AccountNeeded):
            await door.say("x")
        assert len(double.of("initialize")) == 1
        assert double.of("tools/call") == []


async def test_over_the_transport_of_2024_a_message_that_is_turned_away_ends_the_call_that_it_was_for() -> (
    None
):
    double = Double(version="2024-11-05", turned_away=["tools/call"])
    double.handlers["say"] = hang
    async with with_streams(double, old=True) as (url, _), gate(url=url) as door:
        with pytest.raises(BackendError, match="403"):
            await door.say("x")


async def test_a_question_that_is_withdrawn_in_one_callers_session_stays_open_in_anothers() -> None:
    asked, withdrawn = trio.Event(), trio.Event()
    sure = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}

    async def form(turn: Turn) -> Any:
        turn.double.numbers = itertools.count(0)  # as each session numbers its own
        return text((await turn.ask("elicitation/create", **sure))["result"]["action"])

    async def withdraw(turn: Turn) -> Any:
        await turn.tell("notifications/cancelled", requestId="ask-0")
        return text("withdrawn")

    class Slow(Caller):
        async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
            asked.set()
            await withdrawn.wait()
            return {key: {"action": "accept", "content": {}} for key in questions}

    handlers: dict[str, Handler] = {"form": form, "withdraw": withdraw}
    double = Double(handlers=handlers, lists={"tools": [tool(each) for each in handlers]}, sessions=set())
    said: list[str] = []
    async with over_http(double) as url, gate(url=url) as door, trio.open_nursery() as nursery:

        async def of_alice() -> None:
            said.append(words(await door.call("form", Slow(), subject="alice", can=CAN_ALL)))

        nursery.start_soon(of_alice)
        await asked.wait()
        assert words(await door.call("withdraw", subject="bob")) == "withdrawn"
        withdrawn.set()
    assert said == ["accept"]


async def test_requests_of_one_caller_that_come_together_begin_one_session() -> None:
    async with apart("http") as (double, door):
        begun = len(double.of("initialize"))
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(door.call, "show")
        assert len(double.of("initialize")) == begun + 1


async def test_a_callers_session_that_the_upstream_has_lost_is_begun_anew_for_that_caller() -> None:
    async with apart("http") as (double, door):
        await door.call("keep", subject="alice", arguments={"word": "x"})
        assert double.sessions is not None
        (lost,) = double.kept
        double.sessions.discard(lost)
        assert words(await door.call("show", subject="alice")) == "nothing"
        assert lost not in double.ended


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_what_a_client_has_there_ends_with_its_own_session(wire: str) -> None:
    async with apart(wire) as (double, door):
        one, two = origin("one"), origin("two")
        for each in (one, two):
            await door.call("keep", origin=each, arguments={"word": each.apart})
        door.backend.session_ended(one.apart)
        await soon(lambda: double.ended if wire == "http" else len(door.backend._upstream.callers or ()) == 1)
        assert words(await door.call("show", origin=two)) == "two"
        assert words(await door.call("show", origin=one)) == "nothing"


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_what_changes_for_one_caller_is_told_to_that_one_and_a_changed_list_is_read_again(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def change(turn: Turn) -> Any:
        await turn.tell("notifications/resources/updated", uri="note://1")
        await turn.tell("notifications/tools/list_changed")
        return text("done")

    can = {"tools": {}, "resources": {"subscribe": True}}
    async with crowded(wire, 9, monkeypatch, capabilities=can) as (double, door):
        double.handlers["change"] = change
        double.lists["tools"].append(tool("change"))
        door.backend.try_again()
        await soon(lambda: any(each.name == "change" for each in door.backend.tools()))
        for subject in ("alice", "bob"):
            asked = AgentRequest(subject=subject, call_id="c", origin=origin(subject))
            door.backend.follow("note://1", asked)
        await soon(lambda: len(double.of("resources/subscribe")) == 2)
        before = len(double.of("tools/list"))
        await door.call("change", subject="alice", origin=origin("alice"))
        await soon(lambda: len(double.of("tools/list")) > before)
        assert (door.updated, door.updated_for) == ([], [("note://1", "alice")])
        begun = len(door.backend._upstream.callers or ()) if wire == "tcp" else len(double.sessions or ()) - 1
        assert begun == 2


async def test_one_caller_too_many_takes_the_place_of_whoever_was_not_heard_of_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_sessions, "SESSIONS", 2)
    async with apart("http") as (double, door):
        for subject in ("alice", "bob"):
            await door.call("keep", subject=subject, arguments={"word": subject})
        await door.call("show", subject="alice")
        await door.call("show", subject="carol")
        of_bob = next(session for session, word in double.kept.items() if word == "bob")
        assert double.ended == [of_bob]
        assert words(await door.call("show", subject="alice")) == "alice"
    assert double.sessions is not None
    assert set(double.ended) == double.sessions


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_nobody_takes_the_place_of_a_caller_whose_request_is_under_way(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crowded(wire, 1, monkeypatch) as (double, door), trio.open_nursery() as nursery:
        nursery.start_soon(door.call, "hang")
        await double.hanging.wait()
        with pytest.raises(Busy):
            await door.call("show", subject="bob")
        nursery.cancel_scope.cancel()


async def test_a_connection_that_a_caller_leaves_idle_gives_way_to_another_callers() -> None:
    double = Memory()
    async with over_tcp(double) as tcp, gate(tcp=tcp, share="caller", callers_at_once=1) as door:
        for _ in range(2):
            for subject in ("alice", "bob"):
                await door.call("keep", subject=subject, arguments={"word": subject})
                assert words(await door.call("show", subject=subject)) == subject
        assert double.connections == 1 + 4


async def test_a_callers_connection_that_breaks_is_opened_again_with_their_next_call() -> None:
    double = Memory()
    async with over_tcp(double) as tcp, gate(tcp=tcp, share="caller") as door:
        await door.call("keep", arguments={"word": "x"})
        double.hang_up[-1]()
        links = door.backend._upstream.callers
        assert links is not None
        await soon(lambda: len(links) == 0)
        assert words(await door.call("show")) == "nothing"


class Opened:
    """A connection that nobody uses, as far as `CallerLinks` looks at it."""

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.busy = False
        self.follows = False


class Opening:
    """What `CallerLinks` opens, and what it has closed. Closing takes `seconds`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.opened: list[Opened] = []
        self.closed: list[Opened] = []

    @asynccontextmanager
    async def link(self, _: ServerNews, __: SessionRequest) -> AsyncGenerator[Link]:
        link = Opened()
        self.opened.append(link)
        try:
            yield cast("Link", link)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.seconds)
            self.closed.append(link)

    def links(self, nursery: trio.Nursery, **more: Any) -> CallerLinks:
        given: dict[str, Any] = {"most": 9, "name": "test", "log": Log().logger, "idle_seconds": 60, **more}
        return CallerLinks(
            self.link, nursery, news=lambda _: UNHEARD, there=trio.lowlevel.checkpoint, **given
        )


def asker(subject: str, session: str = "") -> AgentRequest:
    return AgentRequest(subject=subject, call_id="c", origin=origin(f"{subject} {session}"))


async def test_a_connection_is_closed_when_its_caller_was_not_heard_of_for_a_while(
    autojump_clock: Any,
) -> None:
    opening = Opening()
    async with trio.open_nursery() as nursery:
        links = opening.links(nursery)
        alice, bob = await links.of(asker("alice")), await links.of(asker("bob"))
        await trio.sleep(40)
        assert await links.of(asker("alice")) is alice
        cast("Any", bob).busy = True
        await trio.sleep(40)
        assert (len(links), opening.closed) == (2, [])
        cast("Any", bob).busy = False
        await trio.sleep(90)
        assert (len(links), len(opening.closed)) == (0, 2)


async def test_a_connection_is_closed_when_its_clients_session_ends_and_nothing_of_it_is_under_way(
    autojump_clock: Any,
) -> None:
    opening = Opening()
    async with trio.open_nursery() as nursery:
        links = opening.links(nursery)
        ending, another = asker("alice", "one"), asker("alice", "two")
        first, second = await links.of(ending), await links.of(another)
        cast("Any", first).busy = True
        links.part(ending.apart)
        await trio.sleep(10)
        assert opening.closed == []
        cast("Any", first).busy = False
        await trio.sleep(2)
        assert opening.closed == [first]
        assert await links.of(another) is second
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("why", ["idle", "ended", "somebody else"])
async def test_a_caller_whose_connection_is_being_closed_gets_another_when_it_is(
    why: str, autojump_clock: Any
) -> None:
    opening = Opening(seconds=2)
    async with trio.open_nursery() as nursery:
        links = opening.links(nursery, most=1)
        first = await links.of(asker("alice"))
        if why == "idle":
            await trio.sleep(61)
        elif why == "ended":
            first.ended.set()
        else:
            nursery.start_soon(links.of, asker("bob"))
            await trio.testing.wait_all_tasks_blocked()
        assert opening.closed == []
        second = await links.of(asker("alice"))
        assert second is not first
        assert cast("Any", first) in opening.closed
        assert not second.ended.is_set()
        nursery.cancel_scope.cancel()


async def test_a_connection_that_is_not_closed_in_time_is_not_waited_for_for_ever(
    autojump_clock: Any,
) -> None:
    opening = Opening(seconds=100)
    async with trio.open_nursery() as nursery:
        links = opening.links(nursery)
        (await links.of(asker("alice"))).ended.set()
        with pytest.raises(Busy):
            await links.of(asker("alice"))
        assert len(opening.opened) == 1


async def test_who_begins_one_after_the_other_is_slowed_down_and_nobody_else_is(autojump_clock: Any) -> None:
    opening = Opening()
    async with trio.open_nursery() as nursery:
        links = opening.links(nursery)
        for _ in range(caller_links.STARTS):
            (await links.of(asker("alice"))).ended.set()
        with pytest.raises(Busy, match="too often"):
            await links.of(asker("alice"))
        assert not (await links.of(asker("bob"))).ended.is_set()
        await trio.sleep(caller_links.STARTS_SECONDS)
        assert not (await links.of(asker("alice"))).ended.is_set()
        nursery.cancel_scope.cancel()


async def test_whoever_waits_for_a_place_gets_one_as_soon_as_somebody_is_done(autojump_clock: Any) -> None:
    opening = Opening()
    async with trio.open_nursery() as nursery:
        links = opening.links(nursery, most=1)
        cast("Any", await links.of(asker("alice"))).busy = True

        async def done() -> None:
            await trio.sleep(2)
            opening.opened[0].busy = False

        nursery.start_soon(done)
        await links.of(asker("bob"))
        assert opening.closed == opening.opened[:1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_one_caller_with_many_sessions_takes_only_their_own_places(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crowded(wire, 4, monkeypatch) as (_, door):
        for subject in ("alice", "bob"):
            await door.call("keep", subject=subject, origin=origin(subject), arguments={"word": subject})
        for number in range(8):
            await door.call("show", subject="mallory", origin=origin(f"m{number}"))
        for subject in ("alice", "bob"):
            assert words(await door.call("show", subject=subject, origin=origin(subject))) == subject


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_one_caller_who_uses_many_sessions_at_once_makes_only_themselves_wait(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crowded(wire, 4, monkeypatch) as (double, door), trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(partial(door.call, "hang", subject="mallory", origin=origin(f"m{number}")))
        await soon(
            lambda: len([each for each in double.of("tools/call") if each["params"]["name"] == "hang"]) == 2
        )
        with pytest.raises(Busy):
            await door.call("show", subject="mallory", origin=origin("one more"))
        for subject in ("alice", "bob", "carol"):
            await door.call("show", subject=subject, origin=origin(subject))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_sessions_that_one_caller_begins_together_are_counted_from_the_beginning(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[Busy] = []
    async with crowded(wire, 4, monkeypatch) as (_, door), trio.open_nursery() as nursery:

        async def hang_in(session: str) -> None:
            try:
                await door.call("hang", subject="mallory", origin=origin(session))
            except Busy as busy:
                refused.append(busy)

        for number in range(6):
            nursery.start_soon(hang_in, f"m{number}")
        await soon(lambda: len(refused) == 4)
        await door.call("show", subject="alice")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_a_place_whose_caller_has_a_task_there_is_in_use_between_two_looks_at_it(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, done = trio.Event(), trio.Event()

    async def work(turn: Turn) -> Any:
        return {"task": {"taskId": "t-1", "status": "working", "pollInterval": 100}}

    async def state(turn: Turn) -> Any:
        looked.set()
        return {"taskId": "t-1", "status": "completed" if done.is_set() else "working", "pollInterval": 100}

    async def result(turn: Turn) -> Any:
        return text("worked")

    async with crowded(wire, 1, monkeypatch) as (double, door), trio.open_nursery() as nursery:
        double.handlers |= {"work": work, "tasks/get": state, "tasks/result": result}
        double.lists["tools"].append(tool("work", execution={"taskSupport": "required"}))
        everything = door.backend._turns.free
        door.backend.try_again()
        await soon(lambda: len(door.backend.tools()) == 4)
        said: list[str] = []

        async def of_alice() -> None:
            said.append(words(await door.call("work", Caller(becomes_task=True), subject="alice")))

        nursery.start_soon(of_alice)
        await looked.wait()
        await soon(lambda: door.backend._turns.free == everything)  # nothing is asked right now
        with pytest.raises(Busy):
            await door.call("show", subject="bob")
        done.set()
        await soon(lambda: said)
        assert said == ["worked"]
        await door.call("show", subject="bob")


async def test_a_session_whose_caller_leaves_while_it_is_begun_is_ended_like_the_one_that_made_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, asked = False, trio.Event()

    class Slow(Memory):
        async def take(self, message: dict[str, Any], say: Say, headers: Mapping[str, str]) -> None:
            if slow and message.get("method") == "notifications/initialized":
                asked.set()
                await trio.sleep_forever()
            await super().take(message, say, headers)

    monkeypatch.setattr(http_sessions, "SESSIONS", 1)
    double = Slow(sessions=set())
    async with over_http(double) as url, gate(url=url) as door:
        await door.call("keep", subject="alice", arguments={"word": "x"})
        (of_alice,) = double.kept
        slow = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(door.call, "show", subject="bob"))
            await asked.wait()
            nursery.cancel_scope.cancel()
        slow = False
        assert len(double.ended) == 2
        assert of_alice in double.ended
    assert double.sessions == set(double.ended)


async def test_a_session_that_nobody_used_for_long_is_ended_also_where_there_is_no_place_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_sessions, "IDLE_SECONDS", -1.0)
    async with crowded("http", 2, monkeypatch) as (double, door), trio.open_nursery() as nursery:
        nursery.start_soon(partial(door.call, "hang", subject="bob"))
        await double.hanging.wait()
        await door.call("keep", subject="alice", arguments={"word": "x"})
        (of_alice,) = double.kept
        with pytest.raises(Busy):
            await door.call("show", subject="bob", origin=origin("another"))
        assert double.ended == [of_alice]
        nursery.cancel_scope.cancel()
