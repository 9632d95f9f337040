"""Large requests: each takes what it weighs of one budget, and gives it back when the last that holds its arguments has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
import trio.testing

from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.backend import ToolCall
from server.calls.sessions.sessions import Sessions
from server.mcp.call_outlet import Outlet
from server.mcp.call_questions import Question
from server.mcp.errors import TooMuchOverall
from server.mcp.loads import BODIES, BODIES_OF_CALLER, BODIES_OF_STRANGERS, SMALL_BYTES, Load, Loads
from server.mcp.result_encoding import ToolResult
from tests.interaction.agents import House, agent, house, says
from tests.interaction.session_house import ASKED, Living, living
from tests.interaction.test_sse_2024 import hello, old, request
from tests.pair import Answer, Exchange, encode, legacy, modern, next_message, talk

LARGEST = 64 * 1024
LARGE = "x" * (LARGEST - 1024)
CALLERS = {name: Principal(kind=PrincipalKind.USER, subject=name, client_id="c") for name in "abc"}
WHO = {"message": "who?", "requestedSchema": ASKED}
INTRODUCED = {"capabilities": {}, "clientInfo": {"name": "pair", "version": "1"}}


class Held:
    """A tool that works until it is let go, or fails as it is told to."""

    def __init__(self) -> None:
        self.go = trio.Event()
        self.problem: Exception | None = None

    async def __call__(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        await self.go.wait()
        if self.problem is not None:
            raise self.problem
        return says("done")


def loads(made: House) -> Loads:
    return made.mcp.threshold.loads


def call(text: str = LARGE) -> dict[str, Any]:
    return {"name": "work", "arguments": {"text": text}}


def by(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


async def take(stack: AsyncExitStack, made: House, count: int, **headers: str) -> list[Exchange]:
    """So many large calls that go on."""
    opened: list[Exchange] = []
    for _ in range(count):
        body, own = modern("tools/call", call())
        opened.append(await stack.enter_async_context(made.pair.open(body=body, headers=own | headers)))
    await trio.testing.wait_all_tasks_blocked()
    assert not any(each.started.is_set() for each in opened), "one of them was answered"
    return opened


async def large(made: House, **headers: str) -> Answer:
    body, own = modern("tools/call", call())
    return await made.pair.request(body=body, headers=own | headers)


def refused(answer: Answer, status: int) -> None:
    assert (answer.status, answer.headers.get("retry-after")) == (status, None if status == 413 else "5")
    error = answer.json["error"]
    assert error["code"] == (-32600 if status == 413 else 1432)
    assert {429: "of yours", 503: "on this server", 413: "too many values"}[status] in error["message"]


# ── what finds room ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_who_has_taken_its_share_is_told_so_and_others_get_in() -> None:
    work = Held()
    made = house(agent(work=work), tokens=CALLERS, max_body_bytes=LARGEST)
    async with AsyncExitStack() as stack:
        await take(stack, made, BODIES_OF_CALLER, **by("a"))
        refused(await large(made, **by("a")), 429)
        small = await made.pair.modern("tools/list", authorization="Bearer a")
        assert small.status == 200, "what is small needs no room"
        await take(stack, made, BODIES_OF_CALLER, **by("b"))
        refused(await large(made, **by("c")), 503)
        assert loads(made).refused == 2
        assert loads(made).weight <= loads(made).limit == BODIES * LARGEST
        work.go.set()
        await trio.testing.wait_all_tasks_blocked()
        assert loads(made).weight == 0
        assert (await large(made, **by("c"))).status == 200


def test_callers_without_a_login_leave_room_for_those_who_have_one() -> None:
    budget = Loads(LARGEST)
    Load(budget, "anonymous:192.0.2.1", known=False).weigh(BODIES_OF_CALLER * LARGEST)
    other, user = Load(budget, "anonymous:192.0.2.2", known=False), Load(budget, "user:a", known=True)
    with pytest.raises(TooMuchOverall):
        other.weigh((BODIES_OF_STRANGERS - BODIES_OF_CALLER) * LARGEST + 1)
    assert other.weight == 0, "what was refused takes nothing"
    other.weigh((BODIES_OF_STRANGERS - BODIES_OF_CALLER) * LARGEST)
    user.weigh((BODIES - BODIES_OF_STRANGERS) * LARGEST)
    assert budget.weight == budget.limit
    other.let_go()
    Load(budget, "anonymous:192.0.2.3", known=False).weigh(LARGEST)


async def test_a_body_that_is_announced_is_refused_before_it_is_read() -> None:
    made = house(agent(work=Held()), tokens=CALLERS, max_body_bytes=LARGEST)
    async with AsyncExitStack() as stack:
        await take(stack, made, BODIES_OF_CALLER, **by("a"))
        body, headers = modern("tools/call", call())
        announced = {"content-length": str(len(body))}
        # Nothing of the body ever comes.
        refused(await made.pair.request(body=[], headers=headers | announced | by("a")), 429)


@pytest.mark.parametrize("values", ["[]", "{}", '{"":0}', "0"])
async def test_many_small_values_weigh_more_than_their_text(values: str) -> None:
    seen: list[int] = []

    async def work(call: ToolCall, outlet: Outlet) -> ToolResult:
        seen.append(loads(made).weight)
        return says("seen")

    made = house(agent(work=work), max_body_bytes=LARGEST)
    several = "[" + ",".join([values] * (2 * SMALL_BYTES // len(values))) + "]"
    text, headers = modern("tools/call", {"name": "work", "arguments": {"what": "HERE"}})
    body = text.replace(b'"HERE"', several.encode())
    assert (await made.pair.request(body=body, headers=headers)).status == 200
    assert seen[0] > 4 * len(body)
    assert loads(made).weight == 0


async def test_what_no_caller_may_have_is_refused_for_good() -> None:
    made = house(agent(work=Held()), max_body_bytes=LARGEST)
    text, headers = modern("tools/call", {"name": "work", "arguments": {"what": "HERE"}})
    # Whether that is JSON, nobody looks.
    body = text.replace(b'"HERE"', b"[" * (LARGEST - len(text)))
    answer = await made.pair.request(body=body, headers=headers)
    refused(answer, 413)
    assert loads(made).weight == 0


# ── what gives it back ───────────────────────────────────────────────────────────────────────────────────────────────

Way = Callable[[Living, Held], Awaitable[None]]


async def answered(made: Living, work: Held) -> None:
    work.go.set()
    assert (await made.pair.modern("tools/call", call())).status == 200


async def crashed(made: Living, work: Held) -> None:
    work.problem = RuntimeError("a bug")
    work.go.set()
    assert "error" in (await made.pair.modern("tools/call", call())).json


async def unknown(made: Living, work: Held) -> None:
    assert "error" in (await made.pair.modern("tools/call", {**call(), "name": "nothing"})).json


async def not_json(made: Living, work: Held) -> None:
    body, headers = modern("tools/call", call())
    assert (await made.pair.request(body=body[:-1], headers=headers)).status == 400


async def too_large(made: Living, work: Held) -> None:
    body, headers = modern("tools/call", call(LARGE * 2))
    assert (await made.pair.request(body=body, headers=headers)).status == 413


async def notified(made: Living, work: Held) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/whatever", "params": {"text": LARGE}}
    _, headers = legacy("ping")
    assert (await made.pair.request(body=encode(note), headers=headers)).status == 202


async def left(made: Living, work: Held) -> None:
    """Its client goes, and it is cancelled."""
    body, headers = modern("tools/call", call())
    async with made.pair.open(body=body, headers=headers) as opened:
        await trio.testing.wait_all_tasks_blocked()
        assert loads(made.house).weight > len(LARGE)
        opened.hang_up()
        await opened.ended.wait()


async def left_alone(made: Living, work: Held) -> None:
    """Its client goes, and it runs on."""
    body, headers = legacy("tools/call", call())
    async with made.pair.open(body=body, headers=headers) as opened:
        await trio.testing.wait_all_tasks_blocked()
        opened.hang_up()
        await trio.testing.wait_all_tasks_blocked()
        assert loads(made.house).weight > len(LARGE), "it runs on"
        work.go.set()
        await opened.ended.wait()


async def batched(made: Living, work: Held) -> None:
    work.go.set()
    array = [
        {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call(LARGE[: LARGEST // 4])}
        for number in range(2)
    ]
    _, headers = legacy("ping", version="2025-03-26")
    assert (await made.pair.request(body=encode(array), headers=headers)).status == 200


async def in_session(made: Living, work: Held) -> None:
    client = await talk(made.pair)
    work.go.set()
    assert "result" in (await client.ask("tools/call", call())).json


async def left_in_session(made: Living, work: Held) -> None:
    client = await talk(made.pair)
    async with client.opens("tools/call", call()) as opened:
        await trio.testing.wait_all_tasks_blocked()
        opened.hang_up()
        await opened.ended.wait()
        assert loads(made.house).weight > len(LARGE), "it runs on"
        work.go.set()


async def cancelled_in_session(made: Living, work: Held) -> None:
    client = await talk(made.pair)
    async with client.opens("tools/call", call(), request_id=7):
        await trio.testing.wait_all_tasks_blocked()
        assert loads(made.house).weight > len(LARGE)
        await client.note("notifications/cancelled", {"requestId": 7})
        await trio.testing.wait_all_tasks_blocked()


async def with_its_session(made: Living, work: Held) -> None:
    client = await talk(made.pair)
    async with client.opens("tools/call", call()) as opened:
        await trio.testing.wait_all_tasks_blocked()
        opened.hang_up()
        await opened.ended.wait()
        assert loads(made.house).weight > len(LARGE), "it runs on"
        await client.end()


async def asked_in_session(made: Living, work: Held) -> None:
    """A small call that was given a large answer."""
    client = await talk(made.pair, capabilities={"elicitation": {}})
    async with client.opens("tools/call", {"name": "asks", "arguments": {}}) as opened:
        question = await next_message(opened)
        content = {"action": "accept", "content": {"name": LARGE}}
        assert (await client.reply(question, result=content)).status == 202
        await trio.testing.wait_all_tasks_blocked()
        assert loads(made.house).weight > len(LARGE), "it has the answer"
        late = await client.reply(question, result=content)
        assert late.status == 202
        work.go.set()
        assert (await next_message(opened))["result"]["content"][0]["text"] == "done"


async def asked_and_left(made: Living, work: Held) -> None:
    client = await talk(made.pair, capabilities={"elicitation": {}})
    async with client.opens("tools/call", {"name": "asks", "arguments": {}}) as opened:
        question = await next_message(opened)
        assert (await client.reply(question, result={"action": "nonsense", "content": LARGE})).status == 202
        await client.end()


async def greeted(made: Living, work: Held) -> None:
    params = {"protocolVersion": "2025-11-25", **INTRODUCED, "clientInfo": {"name": LARGE}}
    assert (await made.pair.legacy("initialize", params)).status == 200


@pytest.mark.parametrize(
    "way",
    [
        answered, crashed, unknown, not_json, too_large, notified, left, left_alone, batched, in_session, left_in_session,
        cancelled_in_session, with_its_session, asked_in_session, asked_and_left, greeted,
    ],
    ids=lambda way: way.__name__,
)  # fmt: skip
async def test_room_is_given_back_however_a_request_ends(way: Way) -> None:
    work = Held()

    async def ask_and_work(call: ToolCall, outlet: Outlet) -> ToolResult:
        answers = await outlet.ask({"who": Question(method="elicitation/create", params=WHO)})
        done = await work(call, outlet)
        assert answers["who"]["content"]["name"] == LARGE
        return done

    tools = agent(work=work, asks=ask_and_work)
    async with living(tools, sessions=Sessions(), max_body_bytes=LARGEST) as made:
        with trio.fail_after(60):
            await way(made, work)
            await trio.testing.wait_all_tasks_blocked()
        assert loads(made.house).weight == 0
        assert loads(made.house)._by_caller == {}, "nor is it remembered who had it"


async def test_a_call_of_the_two_endpoints_holds_its_room_until_it_has_ended() -> None:
    work = Held()
    async with old(agent(work=work), max_body_bytes=LARGEST) as made:
        with trio.fail_after(60):
            async with made.stream() as stream:
                address = await hello(made, stream)
                assert (await made.post(address, request("tools/call", call(), 2))).status == 202
                await trio.testing.wait_all_tasks_blocked()
                assert loads(made.living.house).weight > len(LARGE)
                work.go.set()
                await trio.testing.wait_all_tasks_blocked()
                assert loads(made.living.house).weight == 0
