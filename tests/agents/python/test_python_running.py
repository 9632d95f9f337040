"""A call whose caller is woken by the reader itself: every order in which an answer, a cancellation and an end may come."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from server.agents.python import agent_lines
from server.agents.python.running_call import JOINED_BYTES, PROGRESS_BYTES, PROGRESS_WAITING, AgentCall
from server.lib.rates.fair_turns import Turns
from server.mcp.call_failures import BackendError, Paused
from server.mcp.call_outlet import NullOutlet, Progress
from server.mcp.call_questions import Question
from tests.agents.chat.memory_peer import PLENTY, working
from tests.agents.python.python_pair import PARROT, PATIENCE, Caller, Log, at_work

MAKE = partial(
    agent_lines.CallTool, context=agent_lines.CallContext(subject="u", call_id="c"), name="say", arguments={}
)
ANSWER = agent_lines.Finished(id=1, result=msgspec.Raw(b"{}"))


async def unsent(message: agent_lines.Do) -> None:
    raise AssertionError(message)


class Following:
    """A call that is followed in a task of its own."""

    def __init__(self) -> None:
        self.places = Turns(1)
        assert self.places.take_nowait("")
        self.call = AgentCall(1, self.places)
        self.scope = trio.CancelScope()
        self.got: list[agent_lines.Finished] = []

    async def __call__(self) -> None:
        with self.scope:
            self.got.append(await self.call.follow(NullOutlet("nobody is there"), unsent))


async def test_an_answer_that_comes_just_before_the_cancellation_is_the_answer() -> None:
    following = Following()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(following)
        await trio.testing.wait_all_tasks_blocked()
        assert following.call.put(ANSWER, 10)
        following.scope.cancel()
    assert following.got == [ANSWER]


async def test_an_answer_that_comes_just_after_the_cancellation_wakes_nobody_twice() -> None:
    following = Following()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(following)
        await trio.testing.wait_all_tasks_blocked()
        following.scope.cancel()
        assert following.call.put(ANSWER, 10)
        assert following.call.fail(BackendError("its process has ended"))
    assert following.got == []
    assert following.scope.cancelled_caught


async def test_an_answer_that_is_there_before_it_is_waited_for_is_found() -> None:
    following = Following()
    assert following.call.put(ANSWER, 10)
    await following()
    assert following.got == [ANSWER]


async def test_much_news_in_one_tick_wakes_once_and_is_passed_on_in_its_order() -> None:
    call = AgentCall(1, Turns(0))
    caller = Caller()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call.follow, caller, unsent)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(20):
            assert call.put(agent_lines.Progressed(id=1, progress=number), 10)
        assert call.put(ANSWER, 10)
    assert caller.events == [Progress(progress=number) for number in range(20)]


async def test_pieces_of_a_text_that_wait_are_joined_and_outlast_other_progress() -> None:
    call = AgentCall(1, Turns(0))
    for number in range(2 * PROGRESS_WAITING):
        assert call.put(agent_lines.Progressed(id=1, progress=number, message=f"{number},", joins=True), 10)
    for number in range(2 * PROGRESS_WAITING):
        assert call.put(agent_lines.Progressed(id=1, progress=1000 + number), 10)
    assert call.put(ANSWER, 10)
    caller = Caller()
    await call.follow(caller, unsent)
    text = "".join(f"{number}," for number in range(2 * PROGRESS_WAITING))
    last = 2 * PROGRESS_WAITING - 1
    assert caller.events[0] == Progress(progress=last, message=text, joins=True)
    assert caller.events[-1] == Progress(progress=1000 + last)


async def test_what_waits_of_a_text_is_bounded() -> None:
    call = AgentCall(1, Turns(0))
    for number in range(8):
        piece = agent_lines.Progressed(
            id=1, progress=number, message=str(number) * JOINED_BYTES * 8, joins=True
        )
        assert call.put(piece, JOINED_BYTES * 8)
    assert call.put(ANSWER, 10)
    caller = Caller()
    await call.follow(caller, unsent)
    shown = [event.message for event in caller.events if isinstance(event, Progress)]
    assert len("".join(text or "" for text in shown)) <= PROGRESS_BYTES
    assert (shown[-1] or "")[0] == "7"


# ── through the worker ──


async def test_who_is_cancelled_already_has_nothing_run() -> None:
    async with working(Log().logger) as at:
        with trio.CancelScope() as scope:
            scope.cancel()
            await at.worker.call(MAKE, NullOutlet("nobody is there"))
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.worker.call, MAKE, NullOutlet("nobody is there"))
            first = await at.peer.hear()
            assert first["do"] == "call"
            await at.peer.say("final", id=first["id"], result={})


@pytest.mark.parametrize("ticks", range(4))
async def test_an_answer_that_crosses_the_cancellation_frees_the_place_once(ticks: int) -> None:
    answered = 0
    async with working(Log().logger, calls_at_once=1) as at:
        scope = trio.CancelScope()

        async def call() -> None:
            nonlocal answered
            with scope:
                await at.worker.call(MAKE, NullOutlet("nobody is there"))
                answered += 1

        for _ in range(20):  # a place that is lost or won shows in the next round
            scope = trio.CancelScope()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call)
                while (told := await at.peer.hear())["do"] == "cancel":
                    pass
                await trio.testing.wait_all_tasks_blocked()
                at.peer.output.put(b'{"event":"final","id":%d,"result":{}}\n' % told["id"])
                for _ in range(ticks):
                    await trio.lowlevel.cancel_shielded_checkpoint()
                scope.cancel()
        assert at.worker._turns.free == 1
    assert answered == 20 or ticks < 3


@pytest.mark.parametrize("twice", [True, False])
async def test_an_answer_that_comes_twice_frees_one_place(twice: bool) -> None:
    async with working(Log().logger, calls_at_once=1) as at:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.worker.call, MAKE, NullOutlet("nobody is there"))
            number = (await at.peer.hear())["id"]
            for _ in range(1 + twice):
                await at.peer.say("final", id=number, result={})
            await at.peer.say("error", id=number, kind="failed")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.worker.call, MAKE, NullOutlet("nobody is there"))
            nursery.start_soon(at.worker.call, MAKE, NullOutlet("nobody is there"))
            number = (await at.peer.hear())["id"]
            with trio.move_on_after(0.05) as waiting:
                await at.peer.hear()
            assert waiting.cancelled_caught
            await at.peer.say("final", id=number, result={})
            await at.peer.say("final", id=(await at.peer.hear())["id"], result={})


async def test_a_caller_who_leaves_while_its_line_is_half_written_leaves_a_whole_line_and_a_cancellation() -> (
    None
):
    async with working(Log().logger) as at:
        at.peer.input.change(room_for=10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.worker.call, MAKE, NullOutlet("nobody is there"))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        at.peer.input.change(room_for=PLENTY)
        told = await at.peer.hear()
        assert (told["do"], told["name"]) == ("call", "say")
        assert await at.peer.hear() == {"do": "cancel", "id": told["id"]}


async def test_a_process_that_ends_with_its_pipe_full_fails_those_who_wait_for_room_too() -> None:
    told: list[str] = []

    async def fails() -> None:
        with pytest.raises(BackendError) as raised:
            await at.worker.call(MAKE, NullOutlet("nobody is there"))
        told.append(str(raised.value))

    with trio.fail_after(60):
        async with working(Log().logger, calls_at_once=100) as at, trio.open_nursery() as nursery:
            at.peer.input.change(room_for=10)
            for _ in range(60):
                nursery.start_soon(fails)
            await trio.testing.wait_all_tasks_blocked()
            at.peer.end("signal SIGKILL")
            at.peer.input.change(broken=True)
        assert told == ["the agent's process ended unexpectedly (signal SIGKILL)"] * 60


async def test_a_call_that_ended_before_its_question_was_put_keeps_its_place_for_nobody() -> None:
    class Never(NullOutlet):
        async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
            raise Paused

    async def asks() -> None:
        try:
            await at.worker.call(MAKE, Never(""))
        except Paused:
            paused.append(True)

    paused: list[bool] = []
    async with working(Log().logger, calls_at_once=1) as at:
        for _ in range(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asks)
                number = (await at.peer.hear())["id"]
                await trio.testing.wait_all_tasks_blocked()
                at.peer.output.put(
                    b'{"event":"ask","id":%d,"ask":1,"questions":{"k":{"method":"roots/list","params":{}}}}\n'
                    b'{"event":"final","id":%d,"result":{}}\n' % (number, number)
                )
        async with trio.open_nursery() as nursery:  # there is one place, not none and not six
            nursery.start_soon(at.worker.call, MAKE, NullOutlet("nobody is there"))
            nursery.start_soon(at.worker.call, MAKE, NullOutlet("nobody is there"))
            number = (await at.peer.hear())["id"]
            with trio.move_on_after(0.05) as waiting:
                await at.peer.hear()
            assert waiting.cancelled_caught
            await at.peer.say("final", id=number, result={})
            await at.peer.say("final", id=(await at.peer.hear())["id"], result={})


# ── with a real process ──


async def test_a_thousand_calls_at_once_are_each_answered_with_their_own(tmp_path: Path) -> None:
    async with at_work(tmp_path, PARROT, calls_at_once=10_000) as work:
        answers: dict[str, str] = {}

        async def one(word: str) -> None:
            answers[word[:8]] = await work.say(word=word)

        words = [f"{number:08}" + "x" * (number % 300) for number in range(1000)]
        async with trio.open_nursery() as nursery:
            for word in words:
                nursery.start_soon(one, word)
        assert answers == {word[:8]: word for word in words}


async def test_callers_who_come_and_go_at_random_leave_nothing_behind(tmp_path: Path) -> None:
    script = """
        ready()
        while True:
            call = hear()
            if call["do"] == "call":
                say("final", id=call["id"], result=text(call["arguments"]["word"]))
    """
    async with at_work(tmp_path, script, calls_at_once=20) as work:
        chance = random.Random(9)
        answered: list[str] = []

        async def one(word: str, seconds: float) -> None:
            with trio.move_on_after(seconds):
                said = await work.say(word=word)
                assert said == word
                answered.append(said)

        async with trio.open_nursery() as nursery:
            for number in range(500):
                nursery.start_soon(one, f"{number}" * 1000, chance.random() * 0.2)
        # As many as there are places, all of which are free again.
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(one, f"last {number}", PATIENCE)
        assert sum(word.startswith("last") for word in answered) == 20
        assert work.log.of("agent.ended") == []


async def test_a_process_that_dies_without_having_read_fails_those_whose_lines_fill_its_pipe(
    tmp_path: Path,
) -> None:
    script = """
        import os, time
        ready()
        while not os.path.exists(options.file + ".go"):
            time.sleep(0.01)
        os.kill(os.getpid(), 9)
    """
    async with at_work(tmp_path, script, reload=False) as work:
        told: list[str] = []

        async def one() -> None:
            with pytest.raises(BackendError) as raised:
                await work.say(word="x" * 100_000)
            told.append(str(raised.value))

        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(one)
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert told == []
            Path(f"{work.file}.go").touch()
        assert told == ["the agent's process ended unexpectedly (signal SIGKILL)"] * 40
