"""Upstreams over Streamable HTTP, in both eras: what they are sent, what comes back, and by which credential."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
from upstreams import (
    CAN_ALL,
    Caller,
    Double,
    Refused,
    Turn,
    gate,
    over_http,
    parrot,
    soon,
    text,
    tool,
    words,
)

from server.agents.base.backend import AgentRequest, NoSuchResource, ProtocolFailure, ResourceRead, Trouble
from server.agents.mcp.upstream_credentials import StaticCredential
from server.client.mcp_session import following
from server.client.mcp_session.session_request import Credential
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError, CannotAsk, Paused
from server.mcp.call_outlet import Progress
from server.mcp.call_questions import Question, missing

ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])
FORM = {
    "message": "Sure?",
    "requestedSchema": {"type": "object", "properties": {"yes": {"type": "boolean"}}},
}


@ERAS
@pytest.mark.parametrize("sse", [False, True])
async def test_a_call_is_answered_with_json_or_with_events(era: str, sse: bool) -> None:
    async with over_http(Double(era=era), sse=sse) as url, gate(url=url) as door:
        assert [each.name for each in door.backend.tools()] == ["say"]
        assert await door.say("hello") == "hello"
        assert await door.say("again") == "again"


async def test_a_stateless_request_says_in_its_head_what_it_is_about() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}
    double = Double(
        era="stateless", handlers={"say": parrot}, lists={"tools": [{"name": "say", "inputSchema": schema}]}
    )
    async with over_http(double) as url, gate(url=url) as door:
        await door.call("say", arguments={"city": "Köln"})
        head = double.heads[-1]
        assert head["mcp-protocol-version"] == "2026-07-28"
        assert head["mcp-method"] == "tools/call"
        assert head["mcp-name"] == "say"
        assert head["mcp-param-city"] == "=?base64?S8O2bG4=?="


async def test_a_session_is_named_in_every_request_and_ended() -> None:
    double = Double(session="s-1")
    async with over_http(double) as url:
        async with gate(url=url) as door:
            assert await door.say("hello") == "hello"
        named = [
            head
            for said, head in zip(double.heard, double.heads, strict=True)
            if said["method"] not in ("server/discover", "initialize")
        ]
        assert len(named) > 2
        for head in named:
            assert (head["mcp-session-id"], head["mcp-protocol-version"]) == ("s-1", "2025-11-25")


async def test_a_session_that_is_lost_is_begun_anew_and_the_call_made_in_it() -> None:
    double = Double(session="s-1")
    async with over_http(double) as url, gate(url=url) as door:
        double.session = "s-2"
        assert await door.say("hello") == "hello"
        assert len(double.of("initialize")) == 2
        assert len(double.of("tools/call")) == 1


@ERAS
async def test_progress_arrives_before_the_answer(era: str) -> None:
    async def work(turn: Turn) -> Any:
        await turn.progress(1, "begun")
        return text("done")

    double = Double(era=era, handlers={"work": work}, lists={"tools": [tool("work")]})
    async with over_http(double) as url, gate(url=url) as door:
        caller = Caller()
        assert words(await door.call("work", caller, wants_progress=True)) == "done"
        assert caller.events == [Progress(progress=1, total=3, message="begun")]


async def test_leaving_cancels_in_the_stateless_era() -> None:
    begun = trio.Event()

    async def hang(turn: Turn) -> Any:
        begun.set()
        await trio.sleep_forever()

    double = Double(era="stateless", handlers={"hang": hang}, lists={"tools": [tool("hang")]})
    async with over_http(double) as url, gate(url=url) as door:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door.call, "hang")
            await begun.wait()
            nursery.cancel_scope.cancel()
        await soon(lambda: double.left)
        assert double.cancelled == []


@pytest.mark.parametrize("can", [frozenset[str](), CAN_ALL])
async def test_in_the_handshake_era_cancelling_is_said(can: frozenset[str]) -> None:
    begun = trio.Event()

    async def hang(turn: Turn) -> Any:
        begun.set()
        await trio.sleep_forever()

    async def call() -> None:
        await door.call("hang", can=can)

    double = Double(handlers={"hang": hang}, lists={"tools": [tool("hang")]})
    async with over_http(double) as url, gate(url=url) as door:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await begun.wait()
            nursery.cancel_scope.cancel()
        await soon(lambda: double.cancelled)
        assert double.cancelled == [double.of("tools/call")[0]["id"]]


async def test_each_of_two_callers_is_asked_on_their_own_stream() -> None:
    async def ask(turn: Turn) -> Any:
        answer = await turn.ask("elicitation/create", **FORM)
        return text(answer["result"]["action"])

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_http(double) as url, gate(url=url) as door:
        said: dict[str, str] = {}

        async def call(subject: str, action: str) -> None:
            caller = Caller(lambda asked: {key: {"action": action} for key in asked})
            said[subject] = words(await door.call("ask", caller, can=CAN_ALL, subject=subject))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, "ada", "decline")
            nursery.start_soon(call, "bob", "cancel")
        assert said == {"ada": "decline", "bob": "cancel"}


async def test_what_is_asked_at_once_is_put_to_a_caller_who_comes_back_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "TOGETHER_SECONDS", 1.0)  # also where this process waits for its turn

    async def ask(turn: Turn) -> Any:
        said: list[str] = []

        async def one() -> None:
            said.append((await turn.ask("elicitation/create", **FORM))["result"]["action"])

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one)
        return text(" ".join(said))

    def pause(_: object) -> Any:
        raise Paused

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_http(double) as url, gate(url=url) as door:
        first = Caller(pause)
        with pytest.raises(Paused):
            await door.call("ask", first, can=CAN_ALL)
        assert [len(asked) for asked in first.asked] == [3]
        second = Caller(lambda asked: {key: {"action": "decline"} for key in asked})
        result = await door.call("ask", second, can=CAN_ALL, resumed=first.kept[-1])
        assert words(result) == "decline decline decline"
        assert [set(asked) for asked in second.asked] == [set(asked) for asked in first.asked]


@pytest.mark.parametrize("can", [frozenset[str](), frozenset({"roots"})])
async def test_a_caller_who_cannot_be_asked_is_told_what_it_would_have_to_offer(can: frozenset[str]) -> None:
    async def ask(turn: Turn) -> Any:
        answer = await turn.ask("elicitation/create", **FORM)
        raise Refused(-32603, answer["error"]["message"])

    def cannot(asked: Mapping[str, Question]) -> Any:
        raise CannotAsk("not offered", missing(asked, can))

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_http(double) as url, gate(url=url) as door:
        with pytest.raises(CannotAsk) as caught:
            await door.call("ask", Caller(cannot), can=can)
        assert caught.value.required == {"elicitation": {"form": {}}}


async def test_a_call_over_http_waits_for_a_caller_who_comes_back() -> None:
    runs = 0

    async def ask(turn: Turn) -> Any:
        nonlocal runs
        runs += 1
        return text((await turn.ask("elicitation/create", **FORM))["result"]["action"])

    def pause(_: object) -> Any:
        raise Paused

    double = Double(handlers={"ask": ask}, lists={"tools": [tool("ask")]})
    async with over_http(double) as url, gate(url=url) as door:
        first = Caller(pause)
        with pytest.raises(Paused):
            await door.call("ask", first, can=CAN_ALL)
        second = Caller(lambda asked: {key: {"action": "decline"} for key in asked})
        assert words(await door.call("ask", second, can=CAN_ALL, resumed=first.kept[-1])) == "decline"
        assert runs == 1


async def test_a_credential_is_sent_and_never_shown() -> None:
    async def leak(turn: Turn) -> Any:
        keys = " ".join(turn.headers[name] for name in ("authorization", "x-key", "x-pin", "x-mode"))
        raise Refused(4711, f"bad key {keys}", {"keys": keys})

    double = Double(handlers={"leak": leak}, lists={"tools": [tool("leak")]}, let_in="Bearer hush-hush-hush")
    short, word = "8letters", "letters"  # what is as short as a word of every text is no credential
    others = {"X-Key": Secret("another-secret"), "X-Pin": Secret(short), "X-Mode": Secret(word)}
    credential = StaticCredential(others, Secret("hush-hush-hush"))
    async with over_http(double) as url, gate(url=url, credential=credential) as door:
        with pytest.raises(BackendError) as caught:
            await door.call("leak")
        assert str(caught.value) == f"bad key *** *** *** {word}"
        assert isinstance(caught.value, ProtocolFailure)
        assert caught.value.data is None
        assert "hush" not in str(door.log.events) + repr(credential)


class Renewed:
    """A credential that is another once the first was refused."""

    shared = False

    def __init__(self) -> None:
        self.challenges: list[str] = []
        self.callers: list[str | None] = []

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        self.callers.append(None if call is None else call.subject)
        return {"Authorization": "Bearer new" if self.challenges else "Bearer old"}

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        self.challenges.append(challenge)
        return len(self.challenges) == 1


class Unreadable:
    """A credential that cannot be read for a moment, after so many times."""

    shared = False

    def __init__(self, after: int) -> None:
        self.left = after

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        self.left -= 1
        if self.left == 0:
            raise BackendError("not right now")
        return {}

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        return False


@pytest.mark.parametrize("after", range(1, 5))
async def test_a_credential_that_cannot_be_read_for_a_moment_is_asked_for_again(after: int) -> None:
    async with over_http(Double()) as url, gate(url=url, credential=Unreadable(after)) as door:
        await soon(lambda: door.log.of("upstream.connected"))
        assert await door.say("hello") == "hello"
        assert not door.log.of("upstream.crashed")


async def test_a_credential_that_was_refused_may_be_renewed_once() -> None:
    credential = Renewed()
    async with over_http(Double(let_in="Bearer new")) as url, gate(url=url, credential=credential) as door:
        assert await door.say("hello") == "hello"
        assert credential.challenges == ['Bearer error="invalid_token"']
        assert credential.callers[-1] == "ada"


class Ending:
    """A credential of which there is another each time that one was refused, if there is any."""

    shared = False

    def __init__(self, *, another: bool) -> None:
        self.refusals = 0
        self._another = another

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.refusals}"}

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        self.refusals += 1
        return self._another


@pytest.mark.parametrize(
    ("another", "let_in", "comes"), [(True, 1, "hello"), (True, 2, None), (False, 1, None)]
)
async def test_a_credential_that_ends_is_renewed_for_the_call_that_notices_and_once(
    another: bool, let_in: int, comes: str | None
) -> None:
    double, credential = Double(era="stateless", let_in="Bearer 0"), Ending(another=another)
    async with over_http(double) as url, gate(url=url, credential=credential) as door:
        double.let_in = f"Bearer {let_in}"
        before = len(double.heads)
        if comes is None:
            with pytest.raises(BackendError, match="does not accept the credential"):
                await door.say("hello")
        else:
            assert await door.say("hello") == comes
        shown = [head["authorization"] for head in double.heads[before:] if "mcp-name" in head]
        assert shown == (["Bearer 0", "Bearer 1"] if another else ["Bearer 0"])
        assert credential.refusals == 1


class EachTheirOwn:
    """Who calls is who the upstream sees; nobody else is told from the owner."""

    shared = False

    async def headers(self, call: AgentRequest | None) -> Mapping[str, str]:
        return {"X-User": "owner" if call is None else call.subject}

    async def refused(self, call: AgentRequest | None, challenge: str) -> bool:
        return False


async def test_who_is_shown_as_somebody_else_has_a_session_of_their_own() -> None:
    double = Double(session="s-1")
    async with over_http(double) as url, gate(url=url, credential=EachTheirOwn()) as door:
        for subject in ("ada", "bob", "ada"):
            assert await door.say("hello", subject=subject) == "hello"
        begun = [
            head["x-user"]
            for head, message in zip(double.heads, double.heard, strict=True)
            if message.get("method") == "initialize"
        ]
        assert begun == ["owner", "ada", "bob"]


async def test_a_credential_that_is_not_accepted_is_said_without_it() -> None:
    credential = StaticCredential({}, Secret("wrong-wrong-wrong"))
    async with over_http(Double(let_in="Bearer right")) as url, gate(url=url, credential=credential) as door:
        trouble = door.backend.trouble()
        assert trouble is not None
        assert "does not accept the credential" in trouble.words
        assert "wrong-" not in str(door.log.events) + trouble.words


class LoginOfTheOwner(StaticCredential):
    def __init__(self, trouble: Trouble | None) -> None:
        super().__init__({})
        self._trouble = trouble

    def trouble(self) -> Trouble | None:
        return self._trouble


@pytest.mark.parametrize(
    ("credential", "connect", "absent"),
    [
        (StaticCredential({}), "start", True),
        (StaticCredential({}), "lazy", False),
        (LoginOfTheOwner(None), "start", True),
        (LoginOfTheOwner(Trouble("logged out", 0)), "start", False),
    ],
)
async def test_a_start_misses_an_upstream_in_trouble_unless_its_owner_is_to_log_in_or_it_may_come_later(
    credential: Credential, connect: str, absent: bool
) -> None:
    async with (
        over_http(Double(let_in="Bearer right")) as url,
        gate(url=url, credential=credential, connect=connect) as door,
    ):
        await soon(lambda: door.backend.trouble() is not None)
        assert (door.backend.absent() is not None) == absent


async def test_a_start_misses_no_upstream_that_is_there() -> None:
    async with over_http(Double()) as url, gate(url=url) as door:
        assert door.backend.absent() is None


@ERAS
async def test_a_resource_is_read_and_one_that_is_not_there_is_said_so(era: str) -> None:
    async def read(turn: Turn) -> Any:
        if turn.params["uri"] != "note://1":
            raise Refused(-32002, "no such note")
        return {"contents": [{"uri": "note://1", "text": "milk"}]}

    double = Double(
        era=era,
        capabilities={"resources": {}, "tools": {}},
        handlers={"resources/read": read},
        lists={"resources": [{"uri": "note://1", "name": "one"}]},
    )
    async with over_http(double) as url, gate(url=url) as door:
        assert [each.uri for each in door.backend.resources()] == ["note://1"]
        asked = ResourceRead(uri="note://1", subject="ada", call_id="c")
        (contents,) = await door.backend.read(asked, Caller())
        assert contents.text == "milk"
        with pytest.raises(NoSuchResource):
            await door.backend.read(ResourceRead(uri="note://2", subject="ada", call_id="c"), Caller())


async def test_a_server_that_hangs_up_before_its_answer_is_not_asked_twice() -> None:
    async def vanish(turn: Turn) -> Any:
        await turn.say({"jsonrpc": "2.0", "method": "notifications/nothing"})
        raise trio.BrokenResourceError

    double = Double(era="stateless", handlers={"vanish": vanish}, lists={"tools": [tool("vanish")]})
    async with over_http(double) as url, gate(url=url, id="shop") as door:
        with pytest.raises(BackendError, match=r"^the upstream shop closed the connection"):
            await door.call("shop__vanish")
        assert len(double.of("tools/call")) == 1
