"""The same call again: with a key in either era and on any wire, with `dedupe`, and where the answer to the first was lost."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from msgspec.structs import replace
from pipe_client import LOCAL
from session_house import living
from task_engine import engine
from test_limited_calls import limits_of

from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source
from server.agents.base.demo_agent import DEMO_TERMS, Demo
from server.calls.sessions.sessions import Sessions
from server.calls.tasks.task_engine import Tasks
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.messages import Tool, ToolExecution
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from server.store.idempotency.idempotent_calls import IdempotentCalls
from server.store.idempotency.sealed_answers import AnswerVault
from server.store.inline_store import open_inline_store
from server.store.limits.tool_limits import BoundRules
from server.transport.stdio.stdio_conversation import PipeConversation
from tests.interaction.agents import USER, House, agent, house, says
from tests.pair import legacy, modern, talk

NOW = 1_800_000_000_000
KEY = "x402/idempotency-key"
REPLAYED = "io.ostiary/replayed"
REPEAT = "io.ostiary/repeat"
HARMLESS = CallTerms(idempotent=True)
TOKENS = {"sesame": USER, "other": replace(USER, subject="user-2")}
BEARER: dict[str, Any] = {"authorization": "Bearer sesame"}
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])


class Sender:
    """A tool that counts how often it was run, and waits where it is told to."""

    def __init__(self) -> None:
        self.runs = 0
        self.begun = trio.Event()
        self.go = trio.Event()
        self.go.set()

    def hold(self) -> None:
        self.go = trio.Event()

    async def __call__(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        self.runs += 1
        number = self.runs
        self.begun.set()
        await outlet.emit(Progress(progress=1))
        await self.go.wait()
        what = call.arguments.get("what")
        if what == "fails":
            return replace(says(f"failed {number}"), is_error=True)
        if what == "breaks":
            raise BackendError(f"broken {number}")
        return says(f"sent {number}")


@asynccontextmanager
async def keeping() -> AsyncGenerator[IdempotentCalls]:
    async with open_inline_store(clock=lambda: NOW) as store:
        yield IdempotentCalls(
            store=store,
            vault=AnswerVault(bytes(32), secrets.token_bytes),
            key=bytes(32),
            clock=lambda: NOW,
            entropy=secrets.token_bytes,
            boot_id="boot",
            log=structlog.wrap_logger(structlog.PrintLogger(StringIO())),
        )


def params(what: str = "", key: str | None = "k-1", tool: str = "send") -> dict[str, Any]:
    meta = {} if key is None else {"_meta": {KEY: key}}
    return {"name": tool, "arguments": {"what": what}, **meta}


async def ask(made: House, era: str, asked: dict[str, Any], **headers: Any) -> Any:
    headers = {**BEARER, **headers}
    answer = await getattr(made.pair, era)("tools/call", asked, **headers)
    return answer.events[-1] if "event-stream" in answer.headers["content-type"] else answer.json


def told(answer: Any) -> tuple[str, bool, bool]:
    """What it says, whether it failed, whether it was given before."""
    result = answer["result"]
    replayed = result.get("_meta", {}).get(REPLAYED, False)
    return result["content"][0]["text"], result.get("isError", False), replayed


def reason(answer: Any) -> str:
    assert answer["result"]["isError"] is True
    return answer["result"]["_meta"][REPEAT]["reason"]


# ── with a key ───────────────────────────────────────────────────────────────────────────────────────────────────────


@ERAS
@pytest.mark.parametrize("how", ["meta", "header"])
async def test_a_call_with_a_key_is_run_once_and_its_answer_is_given_again(era: str, how: str) -> None:
    sender = Sender()
    async with keeping() as keeper:
        made = house(agent(send=sender), tokens=TOKENS, keeper=keeper)
        asked = params() if how == "meta" else params(key=None)
        headers = {} if how == "meta" else {"Idempotency-Key": "k-1"}
        assert told(await ask(made, era, asked, **headers)) == ("sent 1", False, False)
        assert told(await ask(made, era, asked, **headers)) == ("sent 1", False, True)
        other = {**asked, "arguments": {"what": "else"}}
        assert reason(await ask(made, era, other, **headers)) == "idempotency_conflict"
        somebody = {**headers, "authorization": "Bearer other"}
        assert told(await ask(made, era, asked, **somebody)) == ("sent 2", False, False)
        assert told(await ask(made, era, params(key=None))) == ("sent 3", False, False)
        assert [outcome for _, outcome in made.measured] == ["ok", "replayed", "ok", "ok"]


async def test_twenty_at_once_with_one_key_are_one_call_with_twenty_answers() -> None:
    sender, heard = Sender(), list[tuple[str, bool, bool]]()
    sender.hold()
    async with keeping() as keeper:
        made = house(agent(send=sender), tokens=TOKENS, keeper=keeper)

        async def one() -> None:
            heard.append(told(await ask(made, "modern", params())))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(one)
            await trio.testing.wait_all_tasks_blocked()
            sender.go.set()
    assert sender.runs == 1
    assert sorted(heard) == [("sent 1", False, False)] + [("sent 1", False, True)] * 19


@ERAS
async def test_a_failure_is_an_answer_of_a_key_and_given_again(era: str) -> None:
    sender = Sender()
    async with keeping() as keeper:
        made = house(agent(send=sender), tokens=TOKENS, keeper=keeper)
        assert told(await ask(made, era, params("fails"))) == ("failed 1", True, False)
        assert told(await ask(made, era, params("fails"))) == ("failed 1", True, True)
        first, again = [(await ask(made, era, params("breaks", "k-2")))["error"] for _ in range(2)]
        assert first["message"] == again["message"] == "broken 2"
        assert (first["code"], again["code"]) == (-32603, -32603)
        assert again["data"][REPLAYED] is True
        assert sender.runs == 2


async def test_an_error_of_a_tool_that_may_be_run_again_frees_its_key() -> None:
    sender = Sender()
    async with keeping() as keeper:
        made = house(agent(terms=HARMLESS, send=sender), tokens=TOKENS, keeper=keeper)
        assert [(await ask(made, "modern", params("breaks")))["error"]["message"] for _ in range(2)] == [
            "broken 1",
            "broken 2",
        ]


@pytest.mark.parametrize("key", ["", "two words", "x" * 129, "umläut", 7, ["k"]])
async def test_what_is_no_key_is_refused_and_nothing_is_run(key: Any) -> None:
    sender = Sender()
    async with keeping() as keeper:
        made = house(agent(send=sender), tokens=TOKENS, keeper=keeper)
        assert reason(await ask(made, "modern", params(key=key))) == "invalid_idempotency_key"
        assert sender.runs == 0


async def test_a_call_that_was_not_made_leaves_its_key_free() -> None:
    """Wrong arguments, a limit: the next one with the key is the first."""
    sender = Sender()
    schema = {"type": "object", "properties": {"what": {"type": "string", "maxLength": 5}}}
    listed = {"send": Tool(name="send", input_schema=schema)}
    async with keeping() as keeper:
        limits = limits_of({"send": BoundRules(limit="2/min, 2 at once")})
        made = house(agent(listed=listed, send=sender), tokens=TOKENS, keeper=keeper, limits=limits)
        assert "Invalid arguments" in told(await ask(made, "modern", params("too long")))[0]
        assert told(await ask(made, "modern", params("ok"))) == ("sent 1", False, False)
        for _ in range(3):
            assert told(await ask(made, "modern", params("ok"))) == ("sent 1", False, True), "not counted"
        assert "too often" in told(await ask(made, "modern", params("ok", "k-2")))[0]
        limits.bounds._bounds.clear()  # type: ignore[union-attr]
        assert told(await ask(made, "modern", params("ok", "k-2"))) == ("sent 2", False, False)


async def test_a_quick_tool_has_keys_as_well() -> None:
    async with keeping() as keeper:
        made = house(Source(name="demo", backend=Demo(), tool_terms=DEMO_TERMS), keeper=keeper)
        asked = {"name": "echo", "arguments": {"text": "hello"}, "_meta": {KEY: "k"}}
        found = [told((await made.pair.modern("tools/call", asked)).json) for _ in range(2)]
        assert found == [("hello", False, False), ("hello", False, True)]


async def test_whoever_may_not_use_a_tool_hears_that_and_no_answer_of_before() -> None:
    sender, may = Sender(), True
    async with keeping() as keeper:
        made = house(agent(send=sender), tokens=TOKENS, keeper=keeper, policy=lambda *_: may)
        await ask(made, "modern", params())
        may = False
        assert (await ask(made, "modern", params()))["error"]["message"] == "unknown tool: send"


@pytest.mark.parametrize("harmless", [False, True])
async def test_a_call_whose_client_has_left_was_interrupted(harmless: bool) -> None:
    sender = Sender()
    sender.hold()
    async with keeping() as keeper:
        terms = HARMLESS if harmless else CallTerms()
        made = house(agent(terms=terms, send=sender), tokens=TOKENS, keeper=keeper)
        body, headers = modern("tools/call", params())
        async with made.pair.open(body=body, headers=headers | BEARER) as left:
            await sender.begun.wait()
            await trio.testing.wait_all_tasks_blocked()
            left.hang_up()
            await left.ended.wait()
        sender.go.set()
        again = await ask(made, "modern", params())
        if harmless:
            assert told(again) == ("sent 2", False, False)
        else:
            assert reason(again) == "interrupted"
            assert "use a new key" in told(again)[0]


async def test_whoever_waits_for_the_call_of_another_and_leaves_ends_nothing() -> None:
    sender, heard = Sender(), list[Any]()
    sender.hold()
    async with keeping() as keeper:
        made = house(agent(send=sender), tokens=TOKENS, keeper=keeper)

        async def first() -> None:
            heard.append(told(await ask(made, "modern", params())))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await sender.begun.wait()
            body, headers = modern("tools/call", params())
            async with made.pair.open(body=body, headers=headers | BEARER) as left:
                await trio.testing.wait_all_tasks_blocked()
                left.hang_up()
                await left.ended.wait()
            sender.go.set()
    assert (heard, sender.runs) == ([("sent 1", False, False)], 1)


async def test_a_call_that_asks_is_kept_in_the_round_that_answers() -> None:
    runs = 0

    async def asks(call: ToolCall, outlet: Outlet) -> ToolResult:
        nonlocal runs
        runs += 1
        schema = {"type": "object", "properties": {"n": {"type": "string"}}}
        question = Question(method="elicitation/create", params={"message": "n?", "requestedSchema": schema})
        answers = await outlet.ask({"n": question})
        return says(str(answers["n"]["content"]["n"]))

    can = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    async with keeping() as keeper:
        made = house(agent(asks=asks), tokens=TOKENS, keeper=keeper)
        asked = {"name": "asks", "arguments": {}, "_meta": {KEY: "k", **can}}
        open_round = (await ask(made, "modern", asked))["result"]
        given = {"n": {"action": "accept", "content": {"n": "seven"}}}
        more = {"inputResponses": given, "requestState": open_round["requestState"]}
        found = [told(await ask(made, "modern", asked | more)) for _ in range(2)]
        assert found == [("seven", False, False), ("seven", False, True)]
        assert runs == 2


async def test_a_call_that_becomes_a_task_leads_to_the_same_task() -> None:
    sender, engines = Sender(), list[Tasks]()
    listed = {
        "send": Tool(
            name="send", input_schema={"type": "object"}, execution=ToolExecution(task_support="required")
        )
    }
    endpoints: dict[str, Any] = {}
    can = {
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    }
    async with (
        keeping() as keeper,
        engine(engines, [], endpoints, wasmagent=False) as tasks,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(engines[0].run)
        made = house(agent(listed=listed, send=sender), tokens=TOKENS, keeper=keeper, tasks=tasks)
        endpoints["main"] = made.endpoint
        asked = params()
        asked["_meta"] |= can
        first, again = [(await ask(made, "modern", asked))["result"] for _ in range(2)]
        assert first["resultType"] == again["resultType"] == "task"
        assert again["taskId"] == first["taskId"]
        await trio.testing.wait_all_tasks_blocked()
        assert sender.runs == 1
        nursery.cancel_scope.cancel()


async def test_over_pipes_a_key_does_the_same() -> None:
    sender = Sender()
    async with keeping() as keeper, trio.open_nursery() as nursery:
        made = house(agent(send=sender), keeper=keeper)
        sessions = Sessions()
        conversation = PipeConversation(
            made.endpoint, sessions, LOCAL, boot_id="boot", max_line=65536, drain_seconds=1, widened=False
        )
        into, read = trio.open_memory_channel[bytes](10)
        write, out = trio.open_memory_channel[bytes](10)

        async def hears() -> bytes:
            try:
                return await read.receive()
            except trio.EndOfChannel:
                return b""

        async def run() -> None:
            await conversation.run(hears, write.send, stopping=trio.Event())

        nursery.start_soon(run)
        found: list[tuple[str, bool, bool]] = []
        for _ in range(2):
            body, _headers = modern("tools/call", params())
            await into.send(body + b"\n")
            found.append(told(json.loads(await out.receive())))
        assert found == [("sent 1", False, False), ("sent 1", False, True)]
        into.close()


# ── without one ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_two_calls_that_are_the_same_are_two_calls() -> None:
    sender = Sender()
    sender.hold()
    async with keeping() as keeper, living(agent(send=sender), tokens=TOKENS, keeper=keeper) as at:
        one = await talk(at.pair, **BEARER)
        async with (
            one.opens("tools/call", params(key=None)) as a,
            one.opens("tools/call", params(key=None)) as b,
        ):
            await trio.testing.wait_all_tasks_blocked()
            sender.go.set()
            for each in (a, b):
                await each.answer()
        assert sender.runs == 2


async def test_a_tool_with_dedupe_is_run_once_for_the_same_call() -> None:
    sender, heard = Sender(), list[tuple[str, bool, bool]]()
    sender.hold()
    async with keeping() as keeper:
        terms = CallTerms(dedupe_seconds=60)
        made = house(agent(terms=terms, send=sender), tokens=TOKENS, keeper=keeper)

        async def one(what: str) -> None:
            heard.append(told(await ask(made, "modern", params(what, key=None))))

        async with trio.open_nursery() as nursery:
            for what in ("a", "a", "b"):
                nursery.start_soon(one, what)
            await trio.testing.wait_all_tasks_blocked()
            sender.go.set()
        await one("a")
        assert sender.runs == 2
        assert sorted(replayed for _, _, replayed in heard) == [False, False, True, True]
        failures = [told(await ask(made, "modern", params("fails", key=None))) for _ in range(2)]
        assert failures == [("failed 3", True, False), ("failed 4", True, False)], "failures are not kept"


async def lost(made: House, sender: Sender, **headers: str) -> None:
    """A call whose client leaves while it runs."""
    body, head = legacy("tools/call", params(key=None))
    async with made.pair.open(body=body, headers=head | headers) as left:
        await sender.begun.wait()
        await trio.testing.wait_all_tasks_blocked()
        left.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        sender.go.set()
        await left.ended.wait()


async def test_a_call_whose_answer_was_lost_is_given_to_whoever_makes_it_again_once() -> None:
    sender = Sender()
    sender.hold()
    made = house(agent(send=sender), tokens=TOKENS)
    await lost(made, sender, **BEARER)
    other = await ask(made, "legacy", params(key=None), authorization="Bearer other")
    assert told(other) == ("sent 2", False, False)
    assert told(await ask(made, "legacy", params("else", key=None))) == ("sent 3", False, False)
    assert told(await ask(made, "legacy", params(key=None))) == ("sent 1", False, True)
    assert told(await ask(made, "legacy", params(key=None))) == ("sent 4", False, False)
    assert made.measured[-2] == ("send", "replayed")


async def test_a_call_that_still_runs_without_its_client_is_waited_for_by_one() -> None:
    sender, heard = Sender(), list[tuple[str, bool, bool]]()
    sender.hold()
    made = house(agent(send=sender), tokens=TOKENS)
    body, head = legacy("tools/call", params(key=None))

    async def again() -> None:
        heard.append(told(await ask(made, "legacy", params(key=None))))

    async with made.pair.open(body=body, headers=head | BEARER) as left, trio.open_nursery() as nursery:
        await sender.begun.wait()
        await trio.testing.wait_all_tasks_blocked()
        left.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        body, head = modern("tools/call", params(key=None))
        async with made.pair.open(body=body, headers=head | BEARER) as gave_up:
            await trio.testing.wait_all_tasks_blocked()
            gave_up.hang_up()
            await gave_up.ended.wait()
        for runs in (1, 2):
            nursery.start_soon(again)
            await trio.testing.wait_all_tasks_blocked()
            assert sender.runs == runs
        sender.go.set()
    assert sorted(heard) == [("sent 1", False, True), ("sent 2", False, False)]


async def test_an_answer_that_nobody_came_for_is_forgotten(autojump_clock: object) -> None:
    sender = Sender()
    sender.hold()
    made = house(agent(send=sender), tokens=TOKENS)
    await lost(made, sender, **BEARER)
    await trio.sleep(61)
    assert told(await ask(made, "legacy", params(key=None))) == ("sent 2", False, False)
    assert made.endpoint.adrift == {}


async def test_callers_who_cannot_be_told_apart_are_never_given_what_another_lost() -> None:
    sender = Sender()
    sender.hold()
    made = house(agent(send=sender))
    await lost(made, sender)
    assert made.endpoint.adrift == {}
    assert told(await ask(made, "legacy", params(key=None))) == ("sent 2", False, False)


async def test_calls_that_go_adrift_are_few() -> None:
    made = house(agent(send=Sender()), tokens=TOKENS)
    for number in range(20):
        sender = Sender()
        sender.hold()
        made.catalog.tools["send"].backend.work["send"] = sender  # type: ignore[attr-defined]
        body, head = legacy("tools/call", params(str(number), key=None))
        async with made.pair.open(body=body, headers=head | BEARER) as left:
            await sender.begun.wait()
            await trio.testing.wait_all_tasks_blocked()
            left.hang_up()
            await trio.testing.wait_all_tasks_blocked()
            sender.go.set()
            await left.ended.wait()
    assert len(made.endpoint.adrift) == 8


async def test_a_session_that_lost_an_answer_is_given_it() -> None:
    sender = Sender()
    sender.hold()
    async with living(agent(send=sender), tokens=TOKENS) as at:
        one = await talk(at.pair, version="2025-06-18", **BEARER)
        async with one.opens("tools/call", params(key=None)) as left:
            await sender.begun.wait()
            await trio.testing.wait_all_tasks_blocked()
            left.hang_up()
            await left.ended.wait()
        sender.go.set()
        await trio.testing.wait_all_tasks_blocked()
        answer = await one.ask("tools/call", params(key=None))
        assert told(answer.json) == ("sent 1", False, True)
        assert sender.runs == 1
