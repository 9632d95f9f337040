"""An agent's process at work, without a process: what it may say, how long things may take, and what its end does."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from server.agents.base.backend import Replaced
from server.agents.base.outlets import DeadlinePausingOutlet
from server.agents.python import agent_lines
from server.agents.python.agent_process import Worker, WorkerAnswer
from server.mcp.call_failures import BackendError, Busy
from server.mcp.call_outlet import NullOutlet
from server.mcp.call_questions import Question
from tests.agents.chat.memory_peer import TOOL, MemoryPeer, Working, working
from tests.agents.python.python_pair import Caller, Log

MAKE = partial(
    agent_lines.CallTool, context=agent_lines.CallContext(subject="u", call_id="c"), name="say", arguments={}
)


async def call(at: Working) -> agent_lines.Finished:
    return await at.worker.call(MAKE, NullOutlet("nobody is there"))


async def fails(at: Working, into: list[str]) -> None:
    with pytest.raises(BackendError) as raised:
        await call(at)
    into.append(str(raised.value))
    assert isinstance(raised.value, Replaced) is ("replaced" in str(raised.value))


async def start(peer: MemoryPeer, **options: Any) -> None:
    heard = WorkerAnswer(offer=lambda _: None, updated=lambda _: None)
    worker = Worker(peer, heard, calls_at_once=1, name="main[1]", log=Log().logger)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(worker.run, start_seconds=20, **options))


async def problem_with(peer: MemoryPeer) -> str:
    with pytest.RaisesGroup(pytest.RaisesExc(BackendError)) as raised:
        await start(peer)
    assert peer.closed
    return str(raised.value.exceptions[0])


# ── getting ready ──


async def test_a_process_that_says_nothing_is_given_up_after_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await problem_with(MemoryPeer()) == "the agent was not ready within 20 s; it said: oh"
    assert trio.current_time() == pytest.approx(20, abs=3)


async def test_a_process_that_ends_before_it_is_ready_is_reported_with_its_last_words() -> None:
    peer = MemoryPeer()
    peer.end("exit status 3")
    assert (
        await problem_with(peer)
        == "the agent's process ended before it was ready (exit status 3); it said: oh"
    )


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (b'{"event":"broken","error":"SyntaxError in agent.py, line 3"}', "line 3"),
        (b'{"event":"ready","protocol":2,"python":"3.11.0","catalog":{}}', "another version"),
        (b'{"event":"ready","protocol":1,"python":"3.8.1","catalog":{}}', "3.8.1"),
        (b'{"event":"ready","protocol":1,"python":"?","catalog":{}}', "does not work"),
        (b'{"event":"ready","protocol":1,"python":"3.11.0","catalog":{"tools":1}}', "cannot be read"),
        (b'{"event":"ready"}', "does not speak"),
        (b'{"event":"updated","uri":"x"}', "does not speak"),
        (b"Traceback (most recent call last):", "does not speak"),
        (b"\xff\xfe", "does not speak"),
        (b"[" * 100_000, "does not speak"),
        (b'{"event":"broken","error":"' + b"x" * agent_lines.LINE_BYTES, "longer than"),
    ],
)
async def test_a_first_line_that_is_not_good_enough_says_why(first: bytes, told: str) -> None:
    peer = MemoryPeer()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.say_bytes, first + b"\n")
            assert told in await problem_with(peer)
            nursery.cancel_scope.cancel()


# ── what it may say besides ──


async def test_a_new_catalog_and_an_updated_resource_are_passed_on() -> None:
    async with working(Log().logger) as at:
        await at.peer.say("catalog", catalog={"tools": [TOOL, {**TOOL, "name": "more"}]})
        await at.peer.say("updated", uri="test://a")
        await trio.testing.wait_all_tasks_blocked()
        assert [[tool.name for tool in offer.tools] for offer in at.offers] == [["say", "more"]]
        assert at.updated == ["test://a"]


async def test_a_catalog_that_cannot_be_offered_is_logged_and_the_old_one_stands() -> None:
    log = Log()
    async with working(log.logger) as at:
        await at.peer.say("catalog", catalog={"tools": [TOOL, TOOL]})
        await trio.testing.wait_all_tasks_blocked()
        assert at.offers == []
        assert [tool.name for tool in at.worker.offer.tools] == ["say"]
        (event,) = log.of("agent.bad_catalog")
        assert event["reason"] == "it offers the tool say twice"


async def test_events_of_calls_that_are_over_are_ignored() -> None:
    async with working(Log().logger) as at:
        await at.peer.say("progress", id=99, progress=1)
        await at.peer.say("final", id=99, result={})
        await trio.testing.wait_all_tasks_blocked()
        assert not at.worker.ended.is_set()


@pytest.mark.parametrize(
    "line",
    [
        b"print()",
        b'{"event":"surprise"}',
        b'{"event":"updated","uri":"\xff"}',
        b"x" * (agent_lines.LINE_BYTES + 1),
    ],
)
async def test_a_line_that_is_none_ends_the_process_and_fails_its_calls(line: bytes) -> None:
    log, told = Log(), list[str]()
    with trio.fail_after(60):
        async with working(log.logger) as at, trio.open_nursery() as nursery:
            nursery.start_soon(fails, at, told)
            await at.peer.hear()
            await at.peer.say_bytes(line + b"\n")
            await at.worker.ended.wait()
        assert len(told) == 1 and "not in the protocol" in told[0]
        assert at.peer.closed
        (event,) = log.of("agent.broke_protocol")
        assert len(event["reason"]) < 500


@pytest.mark.parametrize(
    ("event", "last"),
    [
        ({"event": "progress", "progress": "half"}, False),
        ({"event": "message", "level": "loud", "data": 1}, False),
        ({"event": "ask", "ask": 1, "questions": {"a": {"method": "tools/call", "params": {}}}}, False),
        ({"event": "error", "kind": "protocol", "code": "1404"}, True),
        ({"event": "final"}, True),
    ],
)
async def test_an_event_of_a_call_that_is_none_fails_that_call_alone(
    event: dict[str, Any], last: bool
) -> None:
    log, told = Log(), list[str]()
    with trio.fail_after(60):
        async with working(log.logger, calls_at_once=1) as at:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fails, at, told)
                number = (await at.peer.hear())["id"]
                await at.peer.say(**event, id=number)
            assert len(told) == 1 and "cannot be understood" in told[0]
            assert len(log.of("agent.broken_event")) == 1
            if not last:
                assert await at.peer.hear() == {"do": "cancel", "id": number}
                await at.peer.say("error", id=number, kind="cancelled")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, at)
                await at.peer.say("final", id=(await at.peer.hear())["id"], result={})


# ── calls, while time passes ──


async def test_a_call_waits_for_its_turn_and_then_gives_up(autojump_clock: trio.testing.MockClock) -> None:
    async with working(Log().logger, calls_at_once=1) as at, trio.open_nursery() as nursery:
        nursery.start_soon(call, at)
        await at.peer.hear()
        with pytest.raises(BackendError, match="busy"):
            await call(at)
        assert trio.current_time() == pytest.approx(10)
        nursery.start_soon(call, at)
        await at.peer.say("final", id=1, result={})
        second = await at.peer.hear()
        assert second["id"] != 1
        nursery.cancel_scope.cancel()


async def test_a_task_waits_for_its_turn_as_long_as_it_takes(autojump_clock: trio.testing.MockClock) -> None:
    ended: list[agent_lines.Finished] = []

    async def task() -> None:
        ended.append(await at.worker.call(MAKE, NullOutlet("nobody is there"), unhurried=True))

    async with working(Log().logger, calls_at_once=1) as at, trio.open_nursery() as nursery:
        nursery.start_soon(call, at)
        await at.peer.hear()
        nursery.start_soon(task)
        await trio.sleep(3600)
        await at.peer.say("final", id=1, result={})
        second = await at.peer.hear()
        await at.peer.say("final", id=second["id"], result={})
    assert len(ended) == 1


async def test_a_call_leaves_its_place_to_others_while_its_caller_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    question = {"k": {"method": "roots/list", "params": {}}}

    class Slow(NullOutlet):
        async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
            await trio.sleep(3600)
            return {"k": {"roots": []}}

    async def asks() -> None:
        await at.worker.call(MAKE, Slow(""))

    async with working(Log().logger, calls_at_once=1) as at, trio.open_nursery() as nursery:
        nursery.start_soon(asks)
        await at.peer.hear()
        await at.peer.say("ask", id=1, ask=1, questions=question)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(call, at)
        assert (await at.peer.hear())["id"] == 2
        # The answer waits for the place that was left to somebody else meanwhile.
        await trio.sleep(4000)
        await at.peer.say("final", id=2, result={})
        assert await at.peer.hear() == {"do": "answer", "id": 1, "ask": 1, "answers": {"k": {"roots": []}}}
        with pytest.raises(BackendError, match="busy"):
            await call(at)
        await at.peer.say("final", id=1, result={})


async def test_a_function_that_ignores_its_cancellation_is_logged_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    log = Log()
    async with working(log.logger) as at:
        with trio.move_on_after(1):
            await call(at)
        assert trio.current_time() == 1
        await at.peer.hear()
        assert await at.peer.hear() == {"do": "cancel", "id": 1}
        await trio.sleep(60)
        (event,) = log.of("agent.ignores_cancellation")
        assert event["calls"] == 1


async def test_a_cancellation_takes_a_second_at_most_where_the_process_does_not_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with working(Log().logger) as at:
        at.peer.input.change(room_for=0)
        with trio.move_on_after(1):
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(call, at)
        assert trio.current_time() <= 2


async def test_the_end_of_the_process_fails_every_call_with_how_it_ended() -> None:
    told: list[str] = []
    async with working(Log().logger, calls_at_once=2) as at, trio.open_nursery() as nursery:
        for _ in range(5):  # two run, three wait for their turn
            nursery.start_soon(fails, at, told)
        await at.peer.hear()
        at.peer.end("signal SIGSEGV")
    assert told == ["the agent's process ended unexpectedly (signal SIGSEGV)"] * 5


async def test_a_process_that_only_falls_silent_is_ended(autojump_clock: trio.testing.MockClock) -> None:
    told: list[str] = []
    async with working(Log().logger) as at, trio.open_nursery() as nursery:
        nursery.start_soon(fails, at, told)
        await at.peer.hear()
        at.peer.fall_silent()
    assert "no longer" in told[0]
    assert at.peer.closed


async def test_a_process_that_a_function_blocks_is_ended_when_that_function_is_not_waited_for_any_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told: list[str] = []
    async with working(Log().logger) as at, trio.open_nursery() as nursery:
        nursery.start_soon(fails, at, told)
        with trio.move_on_after(2):
            await call(at)
        await at.worker.ended.wait()
        assert trio.current_time() == pytest.approx(25, abs=6)
    assert len(told) == 1 and "one of its functions blocked" in told[0]


@pytest.mark.parametrize("paused", [0, 60], ids=["at once", "after a pause of the whole machine"])
async def test_a_process_that_responds_is_left_alone_whatever_one_function_does(
    autojump_clock: trio.testing.MockClock, paused: float
) -> None:
    pauses = iter([0, paused])

    async def answer() -> None:
        while True:
            if await at.peer.hear() == {"do": "ping"}:
                autojump_clock.jump(next(pauses, 0))
                await trio.testing.wait_all_tasks_blocked()  # the answer is read after time was looked at
                await at.peer.say("pong")

    async with working(Log().logger) as at, trio.open_nursery() as nursery:
        nursery.start_soon(answer)
        with trio.move_on_after(2):
            await call(at)
        await trio.sleep(600)
        assert not at.worker.ended.is_set()
        nursery.cancel_scope.cancel()


async def test_a_retired_process_finishes_its_calls_and_is_ended_then(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with working(Log().logger) as at, trio.open_nursery() as nursery:
        nursery.start_soon(call, at)
        number = (await at.peer.hear())["id"]
        at.worker.retire(300)
        await trio.sleep(100)
        assert not at.worker.ended.is_set()
        await at.peer.say("final", id=number, result={})
        await at.worker.ended.wait()
        assert trio.current_time() == 100


async def test_a_retired_process_is_ended_with_its_calls_when_their_time_is_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    told: list[str] = []
    async with working(Log().logger) as at, trio.open_nursery() as nursery:
        nursery.start_soon(fails, at, told)
        await at.peer.hear()
        at.worker.retire(300)
        await at.worker.ended.wait()
    assert trio.current_time() == 300
    assert len(told) == 1 and "replaced by a newer version" in told[0]


async def test_a_deadline_stands_still_while_the_caller_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def slowly(_: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        await trio.sleep(1000)
        return {}

    with trio.move_on_after(10) as scope:
        outlet = DeadlinePausingOutlet(Caller(slowly), scope)
        await trio.sleep(4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outlet.ask, {})
            await trio.sleep(1)
            nursery.start_soon(outlet.ask, {})
        assert trio.current_time() == 1005
        await trio.sleep_forever()
    assert trio.current_time() == 1011


async def test_a_place_that_becomes_free_goes_to_the_caller_who_has_none() -> None:
    async with working(Log().logger, calls_at_once=2) as at, trio.open_nursery() as nursery:
        calls: list[int] = []

        async def hear() -> None:
            calls.append((await at.peer.hear())["id"])

        def call(sharer: str) -> None:
            nursery.start_soon(partial(at.worker.call, MAKE, NullOutlet("nobody is there"), sharer=sharer))

        for _ in range(5):
            call("many")
        await trio.testing.wait_all_tasks_blocked()
        call("few")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            await hear()
        await at.peer.say("final", id=calls[0], result={})
        await hear()
        await trio.testing.wait_all_tasks_blocked()
        assert (at.worker._turns.held_by("many"), at.worker._turns.held_by("few")) == (1, 1)
        for number in calls[1:]:
            await at.peer.say("final", id=number, result={})
        for _ in range(3):
            await hear()
            await at.peer.say("final", id=calls[-1], result={})


async def test_who_has_waited_for_its_turn_long_enough_is_told_that_the_agent_is_busy(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with working(Log().logger, calls_at_once=1) as at, trio.open_nursery() as nursery:
        nursery.start_soon(at.worker.call, MAKE, NullOutlet("nobody is there"))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Busy, match="the agent is busy: as many calls as it may run at once are running"):
            await at.worker.call(MAKE, NullOutlet("nobody is there"))
        nursery.cancel_scope.cancel()
