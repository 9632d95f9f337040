"""Calls that become tasks at an upstream: in both forms that tasks have, and through our own interruptions."""

from __future__ import annotations

from types import SimpleNamespace
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
    over_tcp,
    soon,
    text,
    tool,
    words,
)

from server.agents.mcp import upstream_agent
from server.client.mcp_session import followed_tasks
from server.mcp.call_failures import BackendError, CannotAsk, Paused
from server.mcp.call_outlet import Progress

FORM = {
    "message": "Sure?",
    "requestedSchema": {"type": "object", "properties": {"yes": {"type": "boolean"}}},
}
EXTENSION = "io.modelcontextprotocol/tasks"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_tasks, "SHORTEST_POLL_SECONDS", 0.005)
    monkeypatch.setattr(upstream_agent, "LET_GO_SECONDS", 0.01)
    monkeypatch.setattr(followed_tasks, "AWAY_SECONDS", 0.01)


def state(status: str, **more: Any) -> dict[str, Any]:
    return {"taskId": "t-1", "status": status, "pollIntervalMs": 1, "pollInterval": 1, **more}


def origin(*, without_tasks: bool) -> Any:
    return SimpleNamespace(apart="ada", traceparent=None, without_tasks=without_tasks)


def takes_tasks(params: Any) -> bool:
    declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    return EXTENSION in declared.get("extensions", {})


def stateless(*states: dict[str, Any], optional: bool = False) -> Double:
    """A server whose call is a task that stands so, one after the other; the last stays. `optional`: where its client takes tasks."""
    left = list(states)

    async def begin(turn: Turn) -> Any:
        if takes_tasks(turn.params):
            return {"resultType": "task", **state("working")}
        if optional:
            return text("copper")
        required = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise Refused(-32021, "only as a task", required)

    async def get(turn: Turn) -> Any:
        assert turn.params["taskId"] == "t-1"
        return left.pop(0) if len(left) > 1 else left[0]

    async def done(turn: Turn) -> Any:
        return {}

    return Double(
        era="stateless",
        capabilities={"tools": {}, "extensions": {EXTENSION: {}}},
        handlers={"dig": begin, "tasks/get": get, "tasks/update": done, "tasks/cancel": done},
        lists={"tools": [tool("dig")]},
    )


async def test_a_task_is_followed_until_it_is_done() -> None:
    double = stateless(
        state("working", statusMessage="half"), state("completed", result=text("gold", resultType="complete"))
    )
    async with over_http(double) as url, gate(url=url) as door:
        caller = Caller(becomes_task=True)
        assert words(await door.call("dig", caller, wants_progress=True)) == "gold"
        assert caller.events == [Progress(progress=1, message="half")]
        assert caller.kept == [{"task": "t-1"}]


async def test_a_tool_that_is_always_a_task_is_refused_to_a_client_that_takes_none() -> None:
    double = stateless(state("completed", result=text("gold", resultType="complete")))
    async with over_http(double) as url, gate(url=url) as door:
        for _ in range(2):
            with pytest.raises(CannotAsk, match="dig runs as a task") as refused:
                await door.call("dig", origin=origin(without_tasks=True))
            assert refused.value.required == {"extensions": {EXTENSION: {}}}
            # As a call inside of another.
            assert words(await door.call("dig", origin=origin(without_tasks=False))) == "gold"
        double.handlers["dig"] = stateless(optional=True).handlers["dig"]
        assert words(await door.call("dig", origin=origin(without_tasks=True))) == "copper"


async def test_its_tools_can_be_tasks_here() -> None:
    async with over_http(stateless(state("working"))) as url, gate(url=url) as door:
        (offered,) = door.backend.tools()
        assert offered.execution.task_support == "optional"  # type: ignore[union-attr]


async def test_a_call_that_is_run_again_goes_on_with_the_task_that_it_had() -> None:
    double = stateless(state("completed", result=text("gold")))
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        assert words(await door.call("dig", resumed={"task": "t-1"}, unhurried=True)) == "gold"
        assert double.of("tools/call") == []


async def test_what_a_task_asks_is_put_to_the_caller_once() -> None:
    requests = {"sure": {"method": "elicitation/create", "params": FORM}}
    asking = state("input_required", inputRequests=requests)
    double = stateless(asking, asking, state("completed", result=text("gold")))
    async with over_http(double) as url, gate(url=url) as door:
        caller = Caller(lambda asked: {key: {"action": "decline"} for key in asked})
        assert words(await door.call("dig", caller, can=CAN_ALL)) == "gold"
        assert [list(asked) for asked in caller.asked] == [["task-sure"]]
        (asked,) = caller.asked[0].values()
        assert "the server behind this one at 127.0.0.1" in str(asked.params["message"])
        (update,) = double.of("tasks/update")
        assert update["params"]["inputResponses"] == {"sure": {"action": "decline"}}


async def test_a_caller_who_comes_back_to_a_task_that_asks_finds_it() -> None:
    def pause(_: object) -> Any:
        raise Paused

    requests = {"sure": {"method": "elicitation/create", "params": FORM}}
    double = stateless(
        state("input_required", inputRequests=requests),
        state("input_required", inputRequests=requests),
        state("completed", result=text("gold")),
    )
    async with over_http(double) as url, gate(url=url) as door:
        first = Caller(pause)
        with pytest.raises(Paused):
            await door.call("dig", first, can=CAN_ALL)
        second = Caller(lambda asked: {key: {"action": "cancel"} for key in asked})
        assert words(await door.call("dig", second, can=CAN_ALL, resumed=first.kept[-1])) == "gold"
        assert len([each for each in double.of("tools/call") if takes_tasks(each["params"])]) == 1


@pytest.mark.parametrize(("unhurried", "found"), [(False, "copper"), (True, "gold")])
async def test_in_the_stateless_era_a_call_is_a_task_where_its_caller_wants_one(
    unhurried: bool, found: str
) -> None:
    double = stateless(state("completed", result=text("gold")), optional=True)
    async with over_http(double) as url, gate(url=url) as door:
        assert words(await door.call("dig", unhurried=unhurried)) == found
        assert [takes_tasks(each["params"]) for each in double.of("tools/call")] == [unhurried]


async def test_a_tool_that_its_server_calls_as_nothing_but_a_task_is_known_from_then_on() -> None:
    double = stateless(state("completed", result=text("gold")))
    async with over_http(double) as url, gate(url=url) as door:
        for _ in range(2):
            assert words(await door.call("dig")) == "gold"
        assert [takes_tasks(each["params"]) for each in double.of("tools/call")] == [False, True, True]


async def test_another_refusal_makes_no_task_of_a_call() -> None:
    async def refuse(turn: Turn) -> Any:
        raise Refused(-32021, "cannot ask", {"requiredCapabilities": {"elicitation": {}}})

    double = stateless(state("working"))
    double.handlers["dig"] = refuse
    async with over_http(double) as url, gate(url=url) as door:
        with pytest.raises(BackendError, match="cannot ask"):
            await door.call("dig")
        assert len(double.of("tools/call")) == 1


@pytest.mark.parametrize(
    ("last", "words_of_it"),
    [
        (state("failed", error={"code": -32603, "message": "the pit fell in"}), "the pit fell in"),
        (state("cancelled"), "the upstream cancelled the task"),
    ],
)
async def test_a_task_that_comes_to_nothing_says_so(last: dict[str, Any], words_of_it: str) -> None:
    async with over_http(stateless(last)) as url, gate(url=url) as door:
        with pytest.raises(BackendError, match=words_of_it):
            await door.call("dig")


async def test_a_task_of_a_call_that_is_given_up_is_cancelled_there() -> None:
    double = stateless(state("working"))
    async with over_http(double) as url, gate(url=url) as door:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(door.call, "dig")
            await soon(lambda: double.of("tasks/get"))
            nursery.cancel_scope.cancel()
        await soon(lambda: double.of("tasks/cancel"))


async def test_a_task_of_a_server_that_stops_is_left_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_agent, "LET_GO_SECONDS", 3600.0)
    double = stateless(state("working"))
    async with over_http(double) as url:
        async with gate(url=url) as door, trio.open_nursery() as nursery:
            nursery.start_soon(door.call, "dig")
            await soon(lambda: double.of("tasks/get"))
            nursery.cancel_scope.cancel()
        assert double.of("tasks/cancel") == []


def handshake(support: str, *, asks: bool = False) -> Double:
    polls = 0

    async def begin(turn: Turn) -> Any:
        if "task" not in turn.params:
            if support == "required":
                raise Refused(-32601, "only as a task")
            return text("copper")
        return {"task": state("working")}

    async def get(turn: Turn) -> Any:
        nonlocal polls
        polls += 1
        return state("working" if polls == 1 else "input_required" if asks else "completed")

    async def result(turn: Turn) -> Any:
        if asks:
            answer = await turn.ask("elicitation/create", **FORM)
            return text(answer["result"]["action"])
        related = {"io.modelcontextprotocol/related-task": {"taskId": "t-1"}}
        return text("silver", _meta=related)

    return Double(
        capabilities={"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}},
        handlers={"dig": begin, "tasks/get": get, "tasks/result": result},
        lists={"tools": [tool("dig", execution={"taskSupport": support})]},
    )


@pytest.mark.parametrize(
    ("support", "unhurried", "found"),
    [("required", False, "silver"), ("optional", False, "copper"), ("optional", True, "silver")],
)
async def test_in_the_handshake_era_a_call_is_a_task_where_it_must_or_may_be(
    support: str, unhurried: bool, found: str
) -> None:
    async with over_tcp(handshake(support)) as tcp, gate(tcp=tcp) as door:
        result = await door.call("dig", unhurried=unhurried)
        assert words(result) == found
        assert result.meta is None


async def test_a_session_is_not_asked_for_a_task_for_a_client_that_takes_none() -> None:
    double = handshake("required")
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        with pytest.raises(CannotAsk, match="dig runs as a task"):
            await door.call("dig", origin=origin(without_tasks=True))
        assert double.of("tools/call") == []


async def test_what_a_task_of_the_handshake_era_asks_reaches_its_caller() -> None:
    async with over_http(handshake("required", asks=True)) as url, gate(url=url) as door:
        caller = Caller(lambda asked: {key: {"action": "decline"} for key in asked})
        assert words(await door.call("dig", caller, can=CAN_ALL)) == "decline"


async def test_a_task_waits_for_an_upstream_that_is_away_for_a_while() -> None:
    double = stateless(state("completed", result=text("gold")))

    async def away(turn: Turn) -> Any:
        del double.handlers["tasks/get"]
        double.handlers["tasks/get"] = back
        raise trio.BrokenResourceError

    back, double.handlers["tasks/get"] = double.handlers["tasks/get"], away
    async with over_http(double) as url, gate(url=url) as door:
        assert words(await door.call("dig", resumed={"task": "t-1"})) == "gold"
