"""Callers of both eras at a server that speaks both: each call travels in the era of its caller's client, and is carried on in it."""

from __future__ import annotations

from typing import Any

import pytest
from upstreams import (
    CAN_ALL,
    Caller,
    Double,
    Gate,
    Refused,
    Turn,
    gate,
    over_http,
    over_tcp,
    soon,
    text,
    tool,
    words,
)

from server.agents.base.backend import AgentRequest, Completing, PromptGet, ResourceRead
from server.agents.mcp import upstream_keeper
from server.client.mcp_session import followed_tasks, streamable_http
from server.mcp.call_failures import BackendError, Paused

FORM = {"message": "Next?", "requestedSchema": {"type": "object", "properties": {"yes": {"type": "boolean"}}}}
EXTENSION = "io.modelcontextprotocol/tasks"
BOTH = "2026-07-28, 2025-11-25"


async def which(turn: Turn) -> Any:
    return text("stateless" if turn.modern else f"handshake in {turn.headers.get('mcp-session-id', 'none')}")


def speaks_both(**more: Any) -> Double:
    """A server whose tools, resource and prompt say in which era they are asked."""

    async def read(turn: Turn) -> Any:
        return {
            "contents": [{"uri": turn.params["uri"], "text": "stateless" if turn.modern else "handshake"}]
        }

    async def get(turn: Turn) -> Any:
        said = "stateless" if turn.modern else "handshake"
        return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}

    async def complete(turn: Turn) -> Any:
        return {"completion": {"values": ["stateless" if turn.modern else "handshake"]}}

    given: dict[str, Any] = {
        "era": "both",
        "sessions": set(),
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}, "completions": {}},
        "handlers": {
            "which": which,
            "resources/read": read,
            "prompts/get": get,
            "completion/complete": complete,
        },
        "lists": {
            "tools": [tool("which")],
            "resources": [{"uri": "x://a", "name": "a"}],
            "prompts": [{"name": "p", "arguments": [{"name": "x"}]}],
        },
        **more,
    }
    return Double(**given)


def accepting() -> Caller:
    return Caller(lambda asked: {key: {"action": "accept", "content": {}} for key in asked})


async def era_of(door: Gate, subject: str, **more: Any) -> str:
    return words(await door.call("which", subject=subject, **more))


# ── over HTTP ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_each_call_travels_in_the_era_of_its_caller_and_in_a_session_of_their_own() -> None:
    async with over_http(speaks_both()) as url, gate(url=url) as door:
        assert await era_of(door, "ada") == "stateless"
        alice = await era_of(door, "alice", handshake=True)
        bob = await era_of(door, "bob", handshake=True)
        assert alice.startswith("handshake in s-")
        assert bob.startswith("handshake in s-")
        assert alice != bob
        assert await era_of(door, "alice", handshake=True) == alice
        assert await era_of(door, "alice") == "stateless"
        assert door.backend.revision == BOTH
        (connected,) = door.log.of("upstream.connected")
        assert connected["version"] == BOTH


@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_what_is_no_tool_travels_so_as_well(era: str) -> None:
    who: dict[str, Any] = {"subject": "ada", "call_id": "c", "handshake": era == "handshake"}
    async with over_http(speaks_both()) as url, gate(url=url) as door:
        (contents,) = await door.backend.read(ResourceRead(uri="x://a", **who), Caller())
        assert contents.text == era  # type: ignore[union-attr]
        prompt = await door.backend.get_prompt(PromptGet(prompt="p", arguments={}, **who), Caller())
        assert prompt.messages[0].content.text == era  # type: ignore[union-attr]
        asked = Completing(ref="prompt", name="p", argument="x", value="", **who)
        assert (await door.backend.complete(asked)).values == [era]


async def test_all_sessions_are_ended_with_the_connection() -> None:
    double = speaks_both()
    async with over_http(double) as url:
        async with gate(url=url) as door:
            await era_of(door, "alice", handshake=True)
        assert double.sessions == set(double.ended)


@pytest.mark.parametrize(("era", "version"), [("stateless", "2026-07-28"), ("handshake", "2025-11-25")])
async def test_an_era_that_the_settings_name_is_that_of_all(era: str, version: str) -> None:
    async with over_http(speaks_both()) as url, gate(url=url, era=era) as door:
        for handshake in (False, True):
            assert (await era_of(door, "ada", handshake=handshake)).startswith(era)
        assert door.backend.revision == version


async def test_a_server_that_keeps_nothing_between_requests_is_spoken_with_in_the_stateless_era_alone() -> (
    None
):
    async with over_http(speaks_both(sessions=None)) as url, gate(url=url) as door:
        assert await era_of(door, "ada", handshake=True) == "stateless"
        assert door.backend.revision == "2026-07-28"


async def test_a_server_without_the_handshake_era_is_asked_for_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream_keeper, "RELIST_SECONDS", 0.0)
    double = speaks_both(era="stateless")
    async with over_http(double) as url, gate(url=url) as door:
        assert await era_of(door, "ada", handshake=True) == "stateless"
        lists = len(double.of("tools/list"))
        door.backend.try_again()
        await soon(lambda: len(double.of("tools/list")) > lists)
        assert len(double.of("initialize")) == 1


async def test_a_server_that_fails_at_the_handshake_is_asked_again_when_its_lists_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream_keeper, "RELIST_SECONDS", 0.0)
    double = speaks_both()

    async def hang(turn: Turn) -> Any:
        return None  # and the connection is closed without an answer

    double.handlers["initialize"] = hang
    async with over_http(double) as url:
        with monkeypatch.context() as patched:
            patched.setattr(streamable_http, "SESSIONS_SECONDS", 0.0)
            async with gate(url=url) as door:
                assert await era_of(door, "ada", handshake=True) == "stateless"
                del double.handlers["initialize"]
                patched.setattr(streamable_http, "SESSIONS_SECONDS", 60.0)
                door.backend.try_again()
                await soon(lambda: door.backend.revision == BOTH)
                assert (await era_of(door, "ada", handshake=True)).startswith("handshake")


async def test_a_caller_s_own_resources_are_those_of_their_session() -> None:
    double = speaks_both()

    async def listed(turn: Turn) -> Any:
        own = not turn.modern and len(double.of("tools/call")) > 0
        return {"resources": [{"uri": "memo://mine", "name": "mine"}] if own else []}

    double.handlers["resources/list"] = listed
    async with over_http(double) as url, gate(url=url) as door:
        await era_of(door, "alice", handshake=True)
        asked = ResourceRead(uri="", subject="alice", call_id="c", handshake=True)
        assert [each.uri for each in await door.backend.resources_of(asked)] == ["memo://mine"]
        asked = ResourceRead(uri="", subject="alice", call_id="c")
        assert [*await door.backend.resources_of(asked)] == []


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def asks_twelve_times(era: str) -> tuple[Double, list[str]]:
    """A server whose tool asks so often, and how often it was begun."""
    begun: list[str] = []

    async def ask(turn: Turn) -> Any:
        if not turn.modern:
            begun.append("handshake")
            answers = [(await turn.ask("elicitation/create", **FORM))["result"]["action"] for _ in range(12)]
            return text(" ".join(answers))
        begun.append("stateless")
        state = int(turn.params.get("requestState", "0")) + ("inputResponses" in turn.params)
        if state == 12:
            return text("asked enough")
        question = {"method": "elicitation/create", "params": FORM}
        return {
            "resultType": "input_required",
            "inputRequests": {f"q{state}": question},
            "requestState": str(state),
        }

    return speaks_both(era=era, handlers={"ask": ask}, lists={"tools": [tool("ask")]}), begun


async def test_twelve_questions_get_twelve_answers_and_the_tool_runs_once() -> None:
    double, begun = asks_twelve_times("both")
    async with over_http(double) as url, gate(url=url) as door:
        caller = accepting()
        answer = words(await door.call("ask", caller, handshake=True, can=CAN_ALL))
        assert answer.split() == ["accept"] * 12
        assert begun == ["handshake"]


@pytest.mark.parametrize("handshake", [False, True])
async def test_twelve_questions_are_answered_in_the_stateless_era_too(handshake: bool) -> None:
    double, _ = asks_twelve_times("stateless")
    async with over_http(double) as url, gate(url=url) as door:
        caller = accepting()
        assert words(await door.call("ask", caller, handshake=handshake, can=CAN_ALL)) == "asked enough"
        assert len(caller.asked) == 12


async def test_a_call_whose_round_is_open_is_not_begun_anew_in_the_other_era() -> None:
    double, begun = asks_twelve_times("both")

    def pause(_: object) -> Any:
        raise Paused

    async with over_http(double) as url, gate(url=url) as door:
        first = Caller(pause)
        with pytest.raises(Paused):
            await door.call("ask", first, can=CAN_ALL)
        resumed = first.kept[-1]
        assert (
            words(await door.call("ask", accepting(), can=CAN_ALL, handshake=True, resumed=resumed))
            == "asked enough"
        )
        assert set(begun) == {"stateless"}


async def test_a_call_that_waits_in_a_session_is_gone_on_with_there() -> None:
    double, begun = asks_twelve_times("both")

    def pause(_: object) -> Any:
        raise Paused

    async with over_http(double) as url, gate(url=url) as door:
        first = Caller(pause)
        with pytest.raises(Paused):  # as a task is left that waits for an answer
            await door.call("ask", first, can=CAN_ALL, handshake=True)
        answer = words(await door.call("ask", accepting(), can=CAN_ALL, resumed=first.kept[-1]))
        assert answer.split() == ["accept"] * 12
        assert begun == ["handshake"]


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_a_session_declares_what_its_client_can_be_asked(wire: str) -> None:
    double = speaks_both(sessions=set() if wire == "http" else None)

    def declared() -> dict[str, Any]:
        found = dict(double.of("initialize")[-1]["params"]["capabilities"])
        # Where nothing can be asked, no question has a key.
        assert ("extensions" in found) == bool(found)
        found.pop("extensions", None)
        return found

    async def called(door: Gate, subject: str, can: frozenset[str] | None) -> dict[str, Any]:
        await era_of(door, subject, handshake=True, session_can=can)
        return declared()

    over = over_http if wire == "http" else over_tcp
    async with over(double) as where:
        settings: dict[str, Any] = {"url": where} if wire == "http" else {"tcp": where, "share": "caller"}
        async with gate(**settings) as door:
            assert await called(door, "alice", frozenset({"elicitation.url"})) == {"elicitation": {"url": {}}}
            assert await called(door, "bob", frozenset({"sampling", "roots"})) == {"sampling": {}}
            assert await called(door, "carol", frozenset()) == {}
            assert set(await called(door, "dave", None)) == {"elicitation", "sampling"}


async def test_each_session_has_the_log_level_of_its_caller() -> None:
    double = speaks_both()
    double.capabilities["logging"] = {}

    def levels() -> list[tuple[str, str]]:
        heard = zip(double.heard, double.heads, strict=True)
        return [
            (message["params"]["level"], head["mcp-session-id"])
            for message, head in heard
            if message.get("method") == "logging/setLevel"
        ]

    async with over_http(double) as url, gate(url=url) as door:
        for subject, level in (("alice", "debug"), ("bob", "error"), ("alice", "error"), ("ada", None)):
            await era_of(door, subject, handshake=True, log_level=level)
        (debug, of_alice), (error, of_bob) = levels()
        assert (debug, error) == ("debug", "error")
        assert of_alice != of_bob


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def digs() -> tuple[Double, list[tuple[str, str]]]:
    """A server with tasks in both eras, and which of its methods was used in which."""
    used: list[tuple[str, str]] = []

    def note(turn: Turn, method: str) -> None:
        used.append((method, "stateless" if turn.modern else "handshake"))

    async def begin(turn: Turn) -> Any:
        note(turn, "tools/call")
        if turn.modern:
            return {"resultType": "task", "taskId": "t-1", "status": "working", "pollIntervalMs": 1}
        assert "task" in turn.params
        return {"task": {"taskId": "t-1", "status": "working", "pollInterval": 1}}

    async def get(turn: Turn) -> Any:
        note(turn, "tasks/get")
        return {"taskId": "t-1", "status": "completed", "result": text("gold", resultType="complete")}

    async def result(turn: Turn) -> Any:
        note(turn, "tasks/result")
        return text("gold")

    task_call = {"requests": {"tools": {"call": {}}}}
    double = speaks_both(
        capabilities={"tools": {}, "extensions": {EXTENSION: {}}, "tasks": task_call},
        handlers={"dig": begin, "tasks/get": get, "tasks/result": result},
        lists={"tools": [tool("dig", execution={"taskSupport": "required"})]},
    )
    return double, used


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_tasks, "SHORTEST_POLL_SECONDS", 0.005)
    monkeypatch.setattr(followed_tasks, "AWAY_SECONDS", 0.01)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    ("handshake", "kept", "methods"),
    [
        (False, {"task": "t-1"}, ["tools/call", "tasks/get"]),
        (True, {"task": "t-1", "handshake": True}, ["tools/call", "tasks/get", "tasks/result"]),
    ],
)
async def test_a_task_is_followed_in_the_era_that_it_was_begun_in(
    handshake: bool, kept: dict[str, Any], methods: list[str]
) -> None:
    double, used = digs()
    era = "handshake" if handshake else "stateless"
    async with over_http(double) as url, gate(url=url) as door:
        caller = Caller(becomes_task=True)
        assert words(await door.call("dig", caller, handshake=handshake)) == "gold"
        assert caller.kept == [kept]
        assert used == [(method, era) for method in methods]
        used.clear()
        # Whoever asks for it after a restart.
        assert words(await door.call("dig", resumed=kept, unhurried=True)) == "gold"
        assert used == [(method, era) for method in methods[1:]]


@pytest.mark.usefixtures("_quick")
async def test_a_task_of_a_session_is_not_asked_about_in_the_other_era(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followed_tasks, "AWAY_AT_MOST_SECONDS", 0.0)
    double, used = digs()
    double.era = "stateless"
    async with over_http(double) as url, gate(url=url) as door:
        with pytest.raises(BackendError, match="begins no session now"):
            await door.call("dig", resumed={"task": "t-1", "handshake": True}, unhurried=True)
        assert used == []


async def test_a_tool_that_is_a_task_in_sessions_only_can_be_one_here() -> None:
    double, _ = digs()
    double.capabilities = {"tools": {}, "tasks": double.capabilities["tasks"]}
    async with over_http(double) as url, gate(url=url) as door:
        (offered,) = door.backend.tools()
        assert offered.execution.task_support == "optional"  # type: ignore[union-attr]


# ── children and connections of one caller each ──────────────────────────────────────────────────────────────────────


async def test_a_connection_of_one_caller_is_of_its_caller_s_era() -> None:
    double = speaks_both(sessions=None)
    async with over_tcp(double) as tcp, gate(tcp=tcp, share="caller") as door:
        assert (await era_of(door, "alice", handshake=True)).startswith("handshake")
        assert await era_of(door, "bob") == "stateless"
        assert double.connections == 3
        (greeting,) = double.of("initialize")
        assert "_meta" not in greeting["params"]  # which belongs to the other era


@pytest.mark.parametrize("wire", ["http", "tcp"])
async def test_where_the_era_of_a_caller_tells_of_no_changes_the_other_is_listened_in(wire: str) -> None:
    double = speaks_both(sessions=set() if wire == "http" else None)

    def watched() -> list[Any]:
        asked = (each["params"]["notifications"] for each in double.of("subscriptions/listen"))
        return [each["resourceSubscriptions"] for each in asked if "resourceSubscriptions" in each]

    over = over_http if wire == "http" else over_tcp
    async with over(double) as where:
        settings: dict[str, Any] = {"url" if wire == "http" else "tcp": where}
        async with gate(**settings) as door:
            assert (await era_of(door, "alice", handshake=True)).startswith("handshake")
            assert watched() == []
            door.backend.follow("x://a", AgentRequest(subject="alice", call_id="c", handshake=True))
            await soon(lambda: watched() == [["x://a"]])
            assert double.of("resources/subscribe") == []


async def test_one_connection_of_all_is_of_one_era() -> None:
    async with over_tcp(speaks_both(sessions=None)) as tcp, gate(tcp=tcp, share="all") as door:
        for handshake in (False, True):
            assert await era_of(door, "ada", handshake=handshake) == "stateless"


async def test_a_program_without_the_handshake_era_serves_its_callers_in_the_other() -> None:
    async with over_tcp(speaks_both(era="stateless")) as tcp, gate(tcp=tcp, share="caller") as door:
        assert await era_of(door, "ada", handshake=True) == "stateless"


async def test_a_program_that_ends_at_a_handshake_is_not_greeted_for_ever() -> None:
    double = speaks_both(sessions=None)

    async def leave(turn: Turn) -> Any:
        double.hang_up[-1]()
        raise Refused(-32601, "method not found: initialize")

    double.handlers["initialize"] = leave
    async with over_tcp(double) as tcp, gate(tcp=tcp, share="caller") as door:
        for _ in range(upstream_keeper.UNGREETED):
            with pytest.raises(BackendError):
                await era_of(door, "ada", handshake=True)
        assert await era_of(door, "ada", handshake=True) == "stateless"
