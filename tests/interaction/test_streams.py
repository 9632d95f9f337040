"""Answers that take a while: the stream opens with the first event, a client that leaves cancels (or not, in the handshake
era), and a deadline ends what nobody else does."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import ToolCall
from server.calls.progress_updates import PROGRESS_AT_ONCE
from server.mcp.call_failures import CannotAsk
from server.mcp.call_outlet import LogMessage, Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms
from tests.interaction.agents import agent, house, says
from tests.pair import Pair, legacy, modern

PROGRESS: dict[str, Any] = {"_meta": {"progressToken": "p-1"}}
COUNTDOWN = {"name": "countdown", "arguments": {"from": 3, "seconds": 0.5}, **PROGRESS}


@pytest.mark.requirement("http.stream-headers", era="modern")
@pytest.mark.requirement("http.stream-headers", era="legacy")
@pytest.mark.requirement("http.json-or-stream", era="modern")
@pytest.mark.requirement("http.json-or-stream", era="legacy")
@pytest.mark.parametrize("make", [modern, legacy])
async def test_the_stream_opens_with_the_first_event_and_ends_with_the_answer(
    make: Any, autojump_clock: trio.testing.MockClock
) -> None:
    body, headers = make("tools/call", COUNTDOWN, request_id="c")
    answer = await house().pair.request(body=body, headers=headers)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-length" not in answer.headers
    *events, result = answer.events
    assert [event["params"]["progress"] for event in events] == [0, 1, 2, 3]
    assert {event["method"] for event in events} == {"notifications/progress"}
    assert {event["params"]["progressToken"] for event in events} == {"p-1"}
    assert not any("id" in event for event in events)
    assert ("resultType" in result["result"]) is (make is modern)
    assert result["id"] == "c" and result["result"]["content"][0]["text"] == "Counted down from 3."


@pytest.mark.requirement("http.json-or-stream", era="modern")
async def test_without_a_progress_token_the_answer_is_json(autojump_clock: trio.testing.MockClock) -> None:
    call = {"name": "countdown", "arguments": {"from": 3, "seconds": 0.5}}
    assert (await house().pair.modern("tools/call", call)).json["result"]["isError"] is False


@pytest.mark.requirement("http.accept", era="modern")
async def test_a_client_that_takes_only_json_gets_no_events(autojump_clock: trio.testing.MockClock) -> None:
    answer = await house().pair.modern("tools/call", COUNTDOWN, accept="application/json")
    assert answer.json["result"]["isError"] is False


async def test_a_progress_token_of_zero_is_a_token(autojump_clock: trio.testing.MockClock) -> None:
    call = {"name": "countdown", "arguments": {"from": 1}, "_meta": {"progressToken": 0}}
    answer = await house().pair.modern("tools/call", call)
    assert [event["params"]["progressToken"] for event in answer.events[:-1]] == [0, 0]


async def test_the_oldest_revision_gets_progress_without_a_message(
    autojump_clock: trio.testing.MockClock,
) -> None:
    older = await house().pair.legacy("tools/call", COUNTDOWN, version="2024-11-05")
    assert not any("message" in event["params"] for event in older.events[:-1])
    newer = await house().pair.legacy("tools/call", COUNTDOWN, version="2025-03-26")
    assert all("message" in event["params"] for event in newer.events[:-1])


@pytest.mark.requirement("progress.rises", era="modern", transport="http")
async def test_progress_that_does_not_rise_or_comes_too_fast_is_not_sent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def jumpy(call: ToolCall, outlet: Outlet) -> ToolResult:
        for value in (1, 1, 0.5, float("nan"), 2):
            await trio.sleep(1)
            await outlet.emit(Progress(progress=value))
        for value in range(3, PROGRESS_AT_ONCE + 500):
            await outlet.emit(Progress(progress=value, total=9))
        await outlet.emit(LogMessage(level="info", data="goes nowhere: logging is not declared"))
        return says("done")

    answer = await house(agent(jumpy=jumpy)).pair.modern(
        "tools/call", {"name": "jumpy", **PROGRESS}, seconds=20
    )
    values = [event["params"]["progress"] for event in answer.events[:-1]]
    assert values == [*range(1, PROGRESS_AT_ONCE + 2), PROGRESS_AT_ONCE + 499]


async def test_a_back_end_that_asks_learns_that_nobody_can_be_asked() -> None:
    async def curious(call: ToolCall, outlet: Outlet) -> ToolResult:
        with pytest.raises(CannotAsk):
            await outlet.ask({"k": Question(method="roots/list", params={})})
        return says("did without")

    pair = house(agent(curious=curious)).pair
    for params in ({"name": "curious"}, {"name": "curious", **PROGRESS}):
        assert (await pair.modern("tools/call", params)).json["result"]["isError"] is False


@pytest.mark.requirement("http.keep-alive", era="modern")
@pytest.mark.requirement("http.keep-alive", era="legacy")
async def test_a_silent_call_shows_a_sign_of_life_before_any_proxy_gives_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def silent(call: ToolCall, outlet: Outlet) -> ToolResult:
        await trio.sleep(80)
        return says("at last")

    for make in (modern, legacy):
        body, headers = make("tools/call", {"name": "silent"})
        pair = house(agent(silent=silent)).pair
        answer = await pair.request(body=body, headers=headers, seconds=100)
        assert answer.body.count(b": keep-alive\n\n") == 3
        assert answer.events[0]["result"]["content"][0]["text"] == "at last"
        plain = await pair.request(body=body, headers=headers | {"accept": "application/json"}, seconds=100)
        assert plain.json["result"]["content"][0]["text"] == "at last"


class Work:
    """A tool that tells when it began and how it ended."""

    def __init__(self) -> None:
        self.begun = trio.Event()
        self.go_on = trio.Event()
        self.ended = trio.Event()
        self.how = ""

    async def __call__(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        self.begun.set()
        try:
            await outlet.emit(Progress(progress=1))
            await self.go_on.wait()
            for step in (2, 3):
                await outlet.emit(Progress(progress=step, total=step))
            self.how = "finished"
            return says("finished")
        except trio.Cancelled:
            self.how = "cancelled"
            raise
        finally:
            self.ended.set()


def working() -> tuple[Work, Pair, list[tuple[str, str]]]:
    work = Work()
    made = house(agent(work=work))
    return work, made.pair, made.measured


@pytest.mark.requirement("http.disconnect-cancels")
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_modern_client_that_leaves_stops_the_work(streaming: bool) -> None:
    work, pair, measured = working()
    body, headers = modern("tools/call", {"name": "work", **(PROGRESS if streaming else {})})
    with trio.fail_after(60):
        async with pair.open(body=body, headers=headers) as exchange:
            await work.begun.wait()
            if streaming:
                await exchange.event()
            sent = exchange.raw
            exchange.hang_up()
            await exchange.ended.wait()
            assert work.how == "cancelled"
            assert exchange.raw == sent, "nothing more may be sent for a cancelled request"
            assert exchange.started.is_set() is streaming
    assert measured == [("work", "cancelled")]


@pytest.mark.requirement("http.disconnect-continues")
@pytest.mark.parametrize("streaming", [True, False])
async def test_a_legacy_client_that_leaves_does_not_stop_the_work(streaming: bool) -> None:
    work, pair, measured = working()
    body, headers = legacy(
        "tools/call", {"name": "work", **(PROGRESS if streaming else {})}, version="2025-06-18"
    )
    with trio.fail_after(60):
        async with pair.open(body=body, headers=headers) as exchange:
            await work.begun.wait()
            if streaming:
                await exchange.event()
            exchange.hang_up()
            await trio.testing.wait_all_tasks_blocked()
            assert not work.ended.is_set()
            work.go_on.set()
            await exchange.ended.wait()
    assert work.how == "finished"
    assert measured == [("work", "ok")]


@pytest.mark.requirement("http.disconnect-cancels")
async def test_a_modern_client_that_is_found_gone_while_writing_stops_the_work() -> None:
    work, pair, _ = working()
    body, headers = modern("tools/call", {"name": "work", **PROGRESS})
    inner = pair.app

    async def deaf(scope: Any, receive: Any, send: Any) -> None:
        """A connection that learns of a hang-up only by writing."""
        first = True

        async def only_the_body() -> Any:
            nonlocal first
            if first:
                first = False
                return await receive()
            return await trio.sleep_forever()

        await inner(scope, only_the_body, send)

    pair.app = deaf
    with trio.fail_after(60):
        async with pair.open(body=body, headers=headers) as exchange:
            await exchange.event()
            exchange.hang_up()
            work.go_on.set()
            await exchange.ended.wait()


@pytest.mark.requirement("timeout.calls", era="modern", transport="http")
async def test_a_call_that_takes_too_long_is_stopped_and_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    work = Work()
    made = house(agent(terms=CallTerms(deadline_seconds=20), work=work))
    answer = await made.pair.modern("tools/call", {"name": "work"}, seconds=30)
    result = answer.json["result"]
    assert result["isError"] is True and "20 seconds" in result["content"][0]["text"]
    assert work.how == "cancelled"
    assert made.measured == [("work", "timeout")]


@pytest.mark.requirement("http.error-in-stream", era="modern")
async def test_an_error_after_the_stream_has_opened_travels_in_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def breaks(call: ToolCall, outlet: Outlet) -> ToolResult:
        await outlet.emit(Progress(progress=1))
        raise RuntimeError("mid-way")

    answer = await house(agent(breaks=breaks)).pair.modern("tools/call", {"name": "breaks", **PROGRESS})
    assert answer.status == 200
    assert answer.events[-1]["error"]["code"] == -32603 and answer.events[-1]["id"] == 1


async def test_two_calls_of_one_endpoint_run_side_by_side() -> None:
    work, pair, _ = working()
    body, headers = modern("tools/call", {"name": "work"})
    with trio.fail_after(60):
        async with pair.open(body=body, headers=headers) as first:
            await work.begun.wait()
            assert (await pair.modern("tools/list")).status == 200
            work.go_on.set()
            assert (await first.answer()).json["result"]["isError"] is False


async def test_every_call_is_written_down_without_its_arguments(
    autojump_clock: trio.testing.MockClock,
) -> None:
    made = house()
    await made.pair.modern("tools/call", {"name": "echo", "arguments": {"text": "hunter2"}})
    await made.pair.modern("tools/call", {"name": "echo", "arguments": {}})
    await made.pair.modern("tools/call", {"name": "clock", "arguments": {"zone": "Nowhere/Land"}})
    await made.pair.modern("tools/call", {"name": "hunter2"})
    assert made.measured == [("echo", "ok"), ("echo", "invalid"), ("clock", "error")]
    first = made.lines[0]
    assert {
        key: first[key] for key in ("event", "tool", "outcome", "principal", "client", "grant", "request")
    } == {
        "event": "tool.called",
        "tool": "echo",
        "outcome": "ok",
        "principal": "anonymous",
        "client": None,
        "grant": None,
        "request": "request-1",
    }
    assert "hunter2" not in repr(made.lines)
