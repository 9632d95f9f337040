"""Workers kept at work: processes that are none, and a clock that is set."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from server.cluster.workers.worker_channel import ChannelGone, IncomingMessages
from server.cluster.workers.worker_messages import (
    BEAT,
    BEAT_SECONDS,
    DRAIN,
    END,
    READY,
    REFUSAL,
    WorkerRefusal,
)
from server.cluster.workers.worker_supervisor import (
    AT_START,
    ENDING_SECONDS,
    HANGS_SECONDS,
    LAST_WORDS_SECONDS,
    STARTING_SECONDS,
    Workers,
    WorkersCannotStart,
)
from server.lib.log.structured_log import make_logger

PATIENCE = 10_000  # of a clock that jumps
SIGKILLED = -signal.SIGKILL


class FakeWorker:
    """A process and its channel in one; what it does is up to the test."""

    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.told: list[str] = []
        self.signals: list[int] = []
        self.hangs = False
        self.hearing: Mapping[str, IncomingMessages] = {}
        self._code: int | None = None
        self._ended = trio.Event()

    def end(self, code: int) -> None:
        self._code = code
        self._ended.set()

    def say_ready(self) -> None:
        self.hearing[READY](msgspec.Raw(msgspec.json.encode({"by": self.pid})))

    def beat(self) -> None:
        self.hearing[BEAT](msgspec.Raw(b"null"))

    async def beat_on(self) -> None:
        """As long as its loop goes round."""
        while not self.hangs and not self._ended.is_set():
            self.beat()
            await trio.sleep(BEAT_SECONDS)

    def refuse(self, problem: str, *, lasting: bool = False) -> None:
        refusal = WorkerRefusal(problem=problem, hint="mend it", lasting=lasting)
        self.hearing[REFUSAL](msgspec.Raw(msgspec.json.encode(refusal)))
        self.end(78)

    # as a `WorkerProcess`

    async def wait(self) -> int:
        await self._ended.wait()
        assert self._code is not None
        return self._code

    async def pass_on_its_log(self) -> None:
        await trio.sleep_forever()  # a grandchild holds the pipe

    def signal(self, number: int) -> None:
        self.signals.append(number)
        if number == signal.SIGKILL or not self.hangs:
            self.end(-number)

    def connect(
        self, *, answering: Any, hearing: Mapping[str, IncomingMessages], failed: Callable[[str], None]
    ) -> FakeWorker:
        self.hearing = hearing
        return self

    # as its channel

    async def run(self) -> None:
        await self._ended.wait()

    async def ask(self, name: str, body: Any = None) -> msgspec.Raw:
        if self._ended.is_set():
            raise ChannelGone
        if self.hangs:
            await trio.sleep_forever()
        return msgspec.Raw(msgspec.json.encode([name, body, self.number]))

    def tell(self, name: str, body: Any = None) -> bool:
        self.told.append(name)
        if name in (DRAIN, END) and not self.hangs:
            self.end(0)
        return True


class Family:
    def __init__(self, count: int, born: Callable[[FakeWorker], None]) -> None:
        self.out = io.StringIO()
        self.born: list[FakeWorker] = []
        self.firsts: list[tuple[int, bool]] = []
        self._at_birth = born
        self.workers = Workers(
            count,
            self._start,
            make_logger(level="debug", style="json", stream=self.out),
            clock=lambda: 1_000 * round(trio.current_time()),
            answering={},
        )

    async def _start(self, number: int, first: bool) -> Any:
        worker = FakeWorker(number, 100 + len(self.born))
        self.born.append(worker)
        self.firsts.append((number, first))
        trio.lowlevel.spawn_system_task(self._be_born, worker)
        return worker

    async def _be_born(self, worker: FakeWorker) -> None:
        await trio.sleep(0.25)
        self._at_birth(worker)

    def of(self, number: int) -> FakeWorker:
        """The last that was started for it."""
        return [worker for worker in self.born if worker.number == number][-1]

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    def said(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line["event"] == event]


def well(worker: FakeWorker) -> None:
    worker.say_ready()


@asynccontextmanager
async def at_work(count: int, born: Callable[[FakeWorker], None] = well) -> AsyncGenerator[Family]:
    family = Family(count, born)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(family.workers.run)
            yield family
            family.workers.drain()


async def test_the_first_is_ready_before_the_others_are_started(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with at_work(3) as family:
        assert (family.firsts[0], sorted(family.firsts)) == ((1, True), [(1, True), (2, True), (3, True)])
        assert trio.current_time() == pytest.approx(0.5)
        assert [seen.state for seen in family.workers.seen] == ["serving"] * 3
    assert [worker.told for worker in family.born] == [[DRAIN]] * 3
    assert [seen.state for seen in family.workers.seen] == ["ended"] * 3


async def test_one_that_is_killed_is_started_again_and_the_log_says_how_it_ended_and_when_it_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with at_work(2) as family:
        await trio.sleep(600)
        family.of(2).end(SIGKILLED)
        await trio.sleep(LAST_WORDS_SECONDS + 1)
        assert [worker.number for worker in family.born] == [1, 2, 2]
        (ended,) = family.said("worker.ended")
        assert (ended["worker"], ended["pid"], ended["ended"]) == (2, 101, "signal SIGKILL")
        assert (ended["again_in_seconds"], ended["level"]) == (0, "error")
        assert family.firsts[-1] == (2, False)
        assert [(each.state, each.restarts) for each in family.workers.seen] == [
            ("serving", 0),
            ("serving", 1),
        ]


async def test_one_that_dies_of_its_start_is_waited_with_longer_each_time_and_the_others_serve(
    autojump_clock: trio.testing.MockClock,
) -> None:
    broken = False

    def born(worker: FakeWorker) -> None:
        if broken and worker.number == 2:
            worker.end(1)
        else:
            worker.say_ready()

    async with at_work(2, born) as family:
        broken = True
        family.of(2).end(SIGKILLED)
        await trio.sleep(40)
        assert [line["again_in_seconds"] for line in family.said("worker.ended")] == [1, 2, 4, 8, 16, 32]
        assert [each.number for each in family.workers.serving] == [1]
        assert family.workers.seen[1].state == "waiting"
        assert family.workers.seen[1].ended == "exit code 1"
        broken = False
        await trio.sleep(60)
        assert [each.number for each in family.workers.serving] == [1, 2]


async def test_who_serves_already_goes_on_where_another_cannot_start_yet(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A database that is restarted while they start ends no node."""
    tries = 0

    def born(worker: FakeWorker) -> None:
        nonlocal tries
        tries += worker.number == 2
        if worker.number == 2 and tries <= AT_START:
            worker.refuse("the database system is starting up")
        else:
            worker.say_ready()

    async with at_work(2, born) as family:
        assert family.of(1).signals == []
        assert [each.number for each in family.workers.serving] == [1, 2]
        said = family.said("worker.ended")
        assert [line["ended"] for line in said] == ["the database system is starting up"] * AT_START
        assert [line["again_in_seconds"] for line in said] == [1, 2, 4, 8, 16]


@pytest.mark.parametrize("lasting", [True, False])
async def test_a_refusal_at_the_start_ends_all_with_its_words(
    lasting: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """At once where nothing but a person can help, and else when it was tried again."""

    def born(worker: FakeWorker) -> None:
        if worker.number == 3:
            worker.refuse("the agent has no name", lasting=lasting)
        else:
            worker.say_ready()

    family = Family(3, born)
    with trio.fail_after(PATIENCE), pytest.raises(ExceptionGroup) as caught:
        await family.workers.run()
    (refused,) = caught.value.exceptions
    assert isinstance(refused, WorkersCannotStart)
    assert (refused.refusal.problem, refused.refusal.hint) == ("the agent has no name", "mend it")
    assert family.of(1).signals == [signal.SIGKILL]
    assert len(family.said("worker.ended")) == (0 if lasting else AT_START)


async def test_a_refusal_later_on_takes_nobody_with_it_unless_nobody_else_serves(
    autojump_clock: trio.testing.MockClock,
) -> None:
    refusing = False

    def born(worker: FakeWorker) -> None:
        if refusing:
            worker.refuse("the settings are being written")
        else:
            worker.say_ready()

    async def lose_both(family: Family) -> None:
        nonlocal refusing
        refusing = True
        family.of(1).end(SIGKILLED)
        await trio.sleep(10)
        assert family.workers.seen[0].ended == "the settings are being written"
        assert [each.number for each in family.workers.serving] == [2]
        family.of(2).end(SIGKILLED)
        await trio.sleep(10)

    async def work() -> None:
        async with at_work(2, born) as family:
            await lose_both(family)

    with pytest.raises(ExceptionGroup) as caught:
        await work()
    assert caught.group_contains(WorkersCannotStart, match="being written")


async def test_one_that_cannot_even_be_started_is_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    family = Family(1, well)
    tries = 0

    async def start(number: int, first: bool) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(12, "Cannot allocate memory")
        return await family._start(number, first)  # pyright: ignore[reportPrivateUsage]

    family.workers._start = start  # pyright: ignore[reportPrivateUsage]
    async with trio.open_nursery() as nursery:
        await nursery.start(family.workers.run)
        assert [line["again_in_seconds"] for line in family.said("worker.ended")] == [1, 2]
        assert "Cannot allocate memory" in family.said("worker.ended")[0]["ended"]
        family.workers.drain()


async def test_a_drain_reaches_who_serves_who_is_starting_and_who_waits_to_be_started(
    autojump_clock: trio.testing.MockClock,
) -> None:
    stubborn = False

    def born(worker: FakeWorker) -> None:
        if not stubborn:
            worker.say_ready()

    async with at_work(3, born) as family:
        stubborn = True
        family.of(2).end(1)
        await trio.sleep(2)  # started again, and not ready
        family.of(3).end(1)
        await trio.sleep(0.5)  # in its pause
        before = len(family.born)
    assert family.of(1).told == [DRAIN]
    assert family.of(2).signals == [signal.SIGTERM]
    assert len(family.born) == before


async def test_a_drain_before_anybody_was_ready_ends_without_having_started(
    autojump_clock: trio.testing.MockClock,
) -> None:
    family = Family(2, lambda worker: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.Nursery.start, nursery, family.workers.run)
        await trio.sleep(1)
        family.workers.drain()
    assert [worker.signals for worker in family.born] == [[signal.SIGTERM]]


async def test_one_that_does_not_end_when_it_is_told_is_killed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    family = Family(2, well)
    async with trio.open_nursery() as nursery:
        await nursery.start(family.workers.run)
        family.of(2).hangs = True
        family.workers.drain()
        began = trio.current_time()
        await family.workers.end()
        assert trio.current_time() - began >= ENDING_SECONDS
    assert (family.of(1).signals, family.of(2).signals) == ([], [signal.SIGKILL])
    assert [line["worker"] for line in family.said("worker.killed")] == [2]


async def test_all_are_asked_and_one_that_hangs_is_left_out(autojump_clock: trio.testing.MockClock) -> None:
    async with at_work(3) as family:
        family.of(2).hangs = True
        answers = await family.workers.ask_all("how", 5, seconds=2)
        assert {number: json.loads(bytes(answer)) for number, answer in answers.items()} == {
            1: ["how", 5, 1],
            3: ["how", 5, 3],
        }
        family.of(2).hangs = False


def beating(worker: FakeWorker) -> None:
    trio.lowlevel.spawn_system_task(worker.beat_on)
    worker.say_ready()


async def test_one_whose_loop_stands_still_is_killed_and_another_takes_its_place_while_the_others_serve(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with at_work(3, beating) as family:
        await trio.sleep(600)
        assert len(family.born) == 3 and family.workers.all_beat
        stuck = family.of(2)
        stuck.hangs, began = True, trio.current_time()
        while not family.said("worker.ended"):
            await trio.sleep(1)
        assert HANGS_SECONDS <= trio.current_time() - began <= HANGS_SECONDS + 2 * BEAT_SECONDS
        assert stuck.signals == [signal.SIGKILL]
        assert [line["worker"] for line in family.said("worker.hangs")] == [2]
        (ended,) = family.said("worker.ended")
        assert ended["ended"] == f"it hung for {HANGS_SECONDS:.0f} seconds, and was killed"
        await trio.sleep(5)
        assert [worker.number for worker in family.workers.serving] == [1, 2, 3]
        assert family.workers.seen[1].ended == ended["ended"]
        await trio.sleep(600)
        assert len(family.born) == 4 and family.of(1).signals == family.of(3).signals == []


async def test_one_that_was_late_for_a_while_goes_on_and_a_supervisor_hears_nothing_good_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with at_work(2, beating) as family:
        await trio.sleep(60)
        family.of(1).hangs = True
        await trio.sleep(HANGS_SECONDS - 2 * BEAT_SECONDS)
        assert not family.workers.all_beat
        family.of(1).hangs = False
        trio.lowlevel.spawn_system_task(family.of(1).beat_on)
        await trio.sleep(2 * BEAT_SECONDS)
        assert family.workers.all_beat
        await trio.sleep(600)
        assert len(family.born) == 2 and family.said("worker.hangs") == []


async def test_one_that_takes_long_to_start_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    def slowly(worker: FakeWorker) -> None:
        async def start() -> None:
            await trio.sleep(20 * HANGS_SECONDS)
            beating(worker)

        trio.lowlevel.spawn_system_task(start)

    async with at_work(1, slowly) as family:
        assert len(family.born) == 1 and family.workers.all_beat


async def test_one_that_stands_still_before_its_first_beat_is_killed_after_some_minutes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lives = {1: 0, 2: 0}

    def sometimes(worker: FakeWorker) -> None:
        lives[worker.number] += 1
        if worker.number == 1 or lives[2] != 2:
            beating(worker)

    async with at_work(2, sometimes) as family:
        await trio.sleep(100)
        family.of(2).end(-9)
        await trio.sleep(STARTING_SECONDS + 60)
        assert (lives, [worker.number for worker in family.workers.serving]) == ({1: 1, 2: 3}, [1, 2])
        assert [line["seconds"] for line in family.said("worker.hangs")] == [STARTING_SECONDS]


async def test_a_parent_that_was_stopped_itself_takes_nobody_for_stuck(
    mock_clock: trio.testing.MockClock,
) -> None:
    family = Family(1, FakeWorker.say_ready)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(family.workers.run)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(1)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(20):
            family.of(1).beat()
            mock_clock.jump(100 * HANGS_SECONDS)  # and what was said meanwhile is read after that
            await trio.testing.wait_all_tasks_blocked()
        assert family.of(1).signals == [] and family.said("worker.hangs") == []
        mock_clock.autojump_threshold = 0
        family.workers.drain()
