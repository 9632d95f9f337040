"""Calls that come too often: what they are told in either era, what takes nothing of a quota, and an agent that has no place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import trio
from task_engine import engine

from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.backend import ToolCall
from server.lib.rates.rates import rate
from server.lib.rates.usage_table import RateTable
from server.mcp.call_failures import Busy
from server.mcp.call_outlet import Outlet
from server.mcp.call_questions import Question
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult
from server.store.inline_store import open_inline_store
from server.store.jobs import StoreUnavailable
from server.store.limits.daily_quotas import Quotas
from server.store.limits.endpoint_gate import Gate, GateRules, ServerLimits
from server.store.limits.restraint_counts import Restraint
from server.store.limits.tool_limits import BoundRules, ToolBounds
from tests.interaction.agents import USER, agent, house, says

NOON = 1_800_014_400_000
OTHER = Principal(
    kind=PrincipalKind.USER, subject="user-2", client_id="c", grant_id="g", scopes=frozenset({"mcp:tools"})
)
LIMIT = "io.ostiary/limit"
WANTS_A_NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOKENS = {"sesame": USER, "simsim": OTHER}
BEARER: dict[str, Any] = {"authorization": "Bearer sesame"}


def clock() -> int:
    return 10**15


def limits_of(
    tools: Mapping[str, BoundRules] | None = None,
    *,
    quotas: Quotas | None = None,
    quota: str = "",
    address: int | None = None,
    caller: int | None = None,
    at_once: int = 0,
) -> ServerLimits:
    restraint = Restraint()
    gate = Gate(
        GateRules(calls_at_once=at_once, loopback=True),
        restraint,
        addresses=None if address is None else RateTable(rate(60, 60, address), clock=clock),
        callers=None if caller is None else RateTable(rate(60, 60, caller), clock=clock),
    )
    bounds = ToolBounds("main", tools or {}, quota=quota, quotas=quotas, restraint=restraint)
    return ServerLimits(gate=gate, restraint=restraint, bounds=bounds)


async def echo(call: ToolCall, outlet: Outlet) -> ToolResult:
    return says("done")


async def asks(call: ToolCall, outlet: Outlet) -> ToolResult:
    schema = {"type": "object", "properties": {"n": {"type": "string"}}}
    params = {"message": "n?", "requestedSchema": schema}
    answers = await outlet.ask({"n": Question(method="elicitation/create", params=params)})
    return says(str(answers["n"]["content"]["n"]))


async def busy(call: ToolCall, outlet: Outlet) -> ToolResult:
    raise Busy("it has its hands full")


# ── one tool too often ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "2025-03-26"])
async def test_a_tool_called_too_often_answers_with_what_a_model_can_act_on(version: str) -> None:
    made = house(agent(echo=echo), tokens=TOKENS, limits=limits_of({"echo": BoundRules(limit="1/min")}))

    async def call(**headers: Any) -> Any:
        params = {"name": "echo", "arguments": {}}
        if version == "2026-07-28":
            return (await made.pair.modern("tools/call", params, **headers)).json["result"]
        return (await made.pair.legacy("tools/call", params, version=version, **headers)).json["result"]

    assert not (await call(**BEARER)).get("isError", False)
    result = await call(**BEARER)
    assert result["isError"] is True
    told = result["content"][0]["text"]
    assert all(fact in told for fact in ("you ", " echo ", " 1/min ", " 60 seconds"))
    assert result["_meta"][LIMIT] == {"limit": "tool", "retryAfter": 60, "allowed": "1/min"}
    assert not (await call(authorization="Bearer simsim")).get("isError", False)
    assert [outcome for _, outcome in made.measured] == ["ok", "ok"]  # the agent was not asked
    (line,) = [line for line in made.lines if line["event"] == "tool.limited"]
    assert (line["tool"], line["limit"], line["grant"]) == ("echo", "tool", "grant-1")


async def test_who_may_not_call_a_tool_hears_that_and_is_not_counted() -> None:
    limits = limits_of({"echo": BoundRules(limit="1/min")})
    made = house(agent(echo=echo), tokens=TOKENS, limits=limits, policy=lambda *_: False)
    for _ in range(3):
        answer = await made.pair.modern("tools/call", {"name": "echo", "arguments": {}}, **BEARER)
        assert answer.json["error"]["message"] == "unknown tool: echo"
    assert limits.restraint.counts["tool"] == 0


async def test_what_all_callers_of_a_tool_share_is_used_up_by_any_of_them() -> None:
    limits = limits_of({"echo": BoundRules(limit="60/min", limit_all="3/min")})
    made = house(agent(echo=echo), tokens=TOKENS, limits=limits)
    params = {"name": "echo", "arguments": {}}
    answers = [
        (await made.pair.modern("tools/call", params, authorization=f"Bearer {who}")).json["result"]
        for who in ("sesame", "simsim", "sesame", "simsim")
    ]
    assert [answer["isError"] for answer in answers] == [False, False, False, True]
    assert answers[3]["_meta"][LIMIT] == {"limit": "tool", "retryAfter": 20, "allowed": "3/min"}
    told = answers[3]["content"][0]["text"]
    assert all(fact in told for fact in (" echo ", " 3/min ", " all ", " 20 seconds")) and " you " not in told


# ── quotas ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_arguments_that_do_not_fit_take_nothing_of_a_quota() -> None:
    listed = {"echo": Tool(name="echo", input_schema=WANTS_A_NUMBER)}
    for refuses_invalid in (False, True):
        async with open_inline_store(clock=lambda: NOON) as store:
            limits = limits_of({"echo": BoundRules(quota="2/day")}, quotas=Quotas(store, clock=lambda: NOON))
            made = house(
                agent(listed=listed, echo=echo), tokens=TOKENS, limits=limits, refuses_invalid=refuses_invalid
            )
            for arguments, right in (({}, False), ({"n": 1}, True), ({"n": ""}, False), ({"n": 2}, True)):
                answer = await made.pair.modern(
                    "tools/call", {"name": "echo", "arguments": arguments}, **BEARER
                )
                assert ("result" in answer.json and not answer.json["result"]["isError"]) is right
            answer = await made.pair.modern("tools/call", {"name": "echo", "arguments": {"n": 3}}, **BEARER)
            result = answer.json["result"]
            assert result["_meta"][LIMIT] == {"limit": "quota", "retryAfter": 12 * 3600, "allowed": "2/day"}
            assert " 00:00 UTC, in 12 hours" in result["content"][0]["text"]


async def test_a_call_that_asks_first_is_counted_once_when_it_is_answered() -> None:
    async with open_inline_store(clock=lambda: NOON) as store:
        limits = limits_of(quota="1/day", quotas=Quotas(store, clock=lambda: NOON))
        made = house(agent(asks=asks), tokens=TOKENS, limits=limits)
        able = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        params: dict[str, Any] = {"name": "asks", "arguments": {}, "_meta": able}
        paused = (await made.pair.modern("tools/call", params, **BEARER)).json["result"]
        assert paused["resultType"] == "input_required"
        again = {
            **params,
            "requestState": paused["requestState"],
            "inputResponses": {"n": {"action": "accept", "content": {"n": "7"}}},
        }
        answered = (await made.pair.modern("tools/call", again, **BEARER)).json["result"]
        assert answered["content"][0]["text"] == "7"
        refused = (await made.pair.modern("tools/call", again, **BEARER)).json["result"]
        assert refused["_meta"][LIMIT]["limit"] == "quota"


async def test_where_one_of_two_quotas_is_used_up_the_other_is_left_as_it_was() -> None:
    async with open_inline_store(clock=lambda: NOON) as store:
        quotas = Quotas(store, clock=lambda: NOON)
        limits = limits_of({"echo": BoundRules(quota="3/day")}, quota="1/day", quotas=quotas)
        made = house(agent(echo=echo), tokens=TOKENS, limits=limits)
        for _ in range(4):
            await made.pair.modern("tools/call", {"name": "echo", "arguments": {}}, **BEARER)
        assert [await quotas.take("quota:main/echo user:user-1", 3) for _ in range(3)] == [0, 0, 12 * 3600]


async def test_what_cannot_be_counted_is_not_done() -> None:
    class Broken:
        async def write(self, job: Any) -> Any:
            raise StoreUnavailable("the disk is full")

    limits = limits_of({"echo": BoundRules(quota="3/day")}, quotas=Quotas(Broken(), clock=lambda: NOON))  # type: ignore[arg-type]
    made = house(agent(echo=echo, free=echo), tokens=TOKENS, limits=limits)
    answer = await made.pair.modern("tools/call", {"name": "echo", "arguments": {}}, **BEARER)
    assert answer.json["result"]["_meta"][LIMIT] == {"limit": "quota", "retryAfter": 5}
    answer = await made.pair.modern("tools/call", {"name": "free", "arguments": {}}, **BEARER)
    assert answer.json["result"]["isError"] is False


# ── an agent without a place, and too much at once ───────────────────────────────────────────────────────────────────


async def test_an_agent_that_has_no_place_says_when_to_call_again() -> None:
    limits = limits_of()
    made = house(agent(busy=busy), tokens=TOKENS, limits=limits)
    result = (await made.pair.modern("tools/call", {"name": "busy", "arguments": {}}, **BEARER)).json[
        "result"
    ]
    assert result["isError"] is True
    told = result["content"][0]["text"]
    assert "it has its hands full" in told and " 5 seconds" in told
    assert result["_meta"][LIMIT] == {"limit": "busy", "retryAfter": 5}
    assert made.measured == [("busy", "busy")]
    assert limits.restraint.counts["busy"] == 1


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_so_many_of_a_caller_run_at_once_and_a_cancelled_one_makes_room(era: str) -> None:
    begun, go = trio.Event(), trio.Event()

    async def waits(call: ToolCall, outlet: Outlet) -> ToolResult:
        begun.set()
        await go.wait()
        return says("done")

    made = house(agent(waits=waits), tokens=TOKENS, limits=limits_of(at_once=1))
    send = getattr(made.pair, era)
    params = {"name": "waits", "arguments": {}}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: send("tools/call", params, **BEARER))
        with trio.fail_after(60):
            await begun.wait()
        refused = await send("tools/call", params, **BEARER)
        assert (refused.status, refused.json["error"]["code"]) == (429, 1434)
        assert refused.headers["retry-after"] == "1"
        go.set()
    assert (await send("tools/call", params, **BEARER)).status == 200


# ── before anything is read ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_message_of_a_caller_who_comes_too_often_is_not_read() -> None:
    made = house(agent(echo=echo), tokens=TOKENS, limits=limits_of(caller=1))
    await made.pair.modern("tools/list", **BEARER)
    refused = await made.pair.request(
        body=b"{ no json", headers={"content-type": "application/json", **BEARER}
    )
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert refused.json.keys() == {"jsonrpc", "error"}
    assert (refused.json["error"]["code"], refused.json["error"]["data"]) == (1433, {"retryAfter": 1})
    assert (await made.pair.modern("tools/list", authorization="Bearer simsim")).status == 200


async def test_a_batch_is_as_many_requests_as_there_are_in_it() -> None:
    made = house(agent(echo=echo), tokens=TOKENS, limits=limits_of(caller=6))
    ping = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}'

    async def batch(count: int) -> int:
        headers = {"content-type": "application/json", "mcp-protocol-version": "2025-03-26", **BEARER}
        body = b"[%s]" % b",".join(ping % number for number in range(count))
        return (await made.pair.request(body=body, headers=headers)).status

    assert [await batch(4), await batch(3)] == [200, 429]


async def test_preflights_are_not_counted() -> None:
    made = house(agent(echo=echo), limits=limits_of(address=1))
    for _ in range(5):
        answer = await made.pair.request("OPTIONS", headers={"origin": "http://127.0.0.1:8420"})
        assert answer.status == 204


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_task_is_counted_when_it_is_made_and_one_that_cannot_be_made_is_not() -> None:
    endpoints: dict[str, Any] = {}
    engines: list[Any] = []
    async with (
        open_inline_store(clock=lambda: NOON) as store,
        engine(engines, [], endpoints, wasmagent=True) as rules,
        trio.open_nursery() as nursery,
    ):
        quotas = Quotas(store, clock=lambda: NOON)
        limits = limits_of({"echo": BoundRules(quota="3/day")}, quotas=quotas)
        made = house(agent(echo=echo), tokens=TOKENS, limits=limits, tasks=rules)
        endpoints["main"] = made.endpoint
        await nursery.start(engines[0].run)

        async def create() -> dict[str, Any]:
            params = {"name": "echo", "arguments": {}}
            return (await made.pair.legacy("tasks/create", params, **BEARER)).json

        assert ["result" in await create() for _ in range(2)] == [True, True]
        await engines[0].stop()
        assert (await create())["error"]["message"] == "the server is stopping"
        assert (
            await quotas.take("quota:main/echo user:user-1", 3) == 0
        )  # the third is there still, and the last
        refused = (await create())["error"]
        assert refused["code"] == -32602 and " 3 calls a day of echo " in refused["message"]
        nursery.cancel_scope.cancel()
