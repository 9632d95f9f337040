"""The workers of one parent, kept at work: started, waited for, started again, and told to end.

    run › one loop for each worker › its process, its channel, its log

How a process is started and what it is handed is worker_process.py's; here is when.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
import trio

from server.cluster.workers.worker_channel import Answering, ChannelGone, WorkerChannel
from server.cluster.workers.worker_messages import (
    BEAT,
    BEAT_SECONDS,
    DRAIN,
    END,
    READY,
    REFUSAL,
    WorkerRefusal,
    WorkerSeen,
    how_it_ended,
)
from server.cluster.workers.worker_process import ChildProcess
from server.lib.log.logger import Logger

# How long one that has ended is waited with before it is started again. What has lived for so long did not die of its start.
STEADY_SECONDS: Final = 60.0
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0
# Its process has ended: what it still said is read, however many others hold its pipe.
LAST_WORDS_SECONDS: Final = 1.0
# One that was told to end at once closes what it has open; then it is killed.
ENDING_SECONDS: Final = 10.0
# So often another one is tried again that cannot start while the first serves: half a minute, which a database needs to come back.
AT_START: Final = 5
# So many beats in a row that did not come are no pause of a busy machine: its loop stands still, and with it whoever is connected there.
MISSED_BEATS: Final = 6
HANGS_SECONDS: Final = MISSED_BEATS * BEAT_SECONDS
# Until the first beat of one for which nothing is left to be done once: a database that is away makes it give up long before.
STARTING_SECONDS: Final = 300.0
# A supervisor is not told that all is well while one of them is late by so many.
_LATE_BEATS: Final = 2


class Pauses:
    """The pauses before starts of one worker: twice as long each time that it dies soon."""

    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    def after(self, lived_seconds: float) -> float:
        """Return the seconds to wait; none after a steady life."""
        if lived_seconds >= STEADY_SECONDS:
            self._next = FIRST_SECONDS
            return 0.0
        pause, self._next = self._next, min(self._next * 2, LONGEST_SECONDS)
        return pause


class WorkersCannotStart(Exception):
    """One of them said that it cannot start, and none serves, or they have not all been ready and it says so again and again."""

    def __init__(self, refusal: WorkerRefusal) -> None:
        super().__init__(refusal.problem)
        self.refusal = refusal


class WorkerSlot:
    """The place of one: whoever holds it now, and who did before."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.process: ChildProcess | None = None
        self.channel: WorkerChannel | None = None  # while there is one
        self.ready = trio.Event()  # of its first process that became ready
        self.serves = False
        self.beats = 0  # of its process
        self.missed = 0  # in a row
        self.hung_seconds: float | None = None  # its process, which was killed for that
        self.refusal: WorkerRefusal | None = None
        self.started: msgspec.Raw | None = None  # what it said when it was ready
        self.seen = WorkerSeen(worker=number, state="starting")


class Workers:
    """`start` starts the process of a number; `first` is true until one of this number was ready. `replaced` is told of each that is ready in
    the place of another."""

    def __init__(
        self,
        count: int,
        start: Callable[[int, bool], Awaitable[ChildProcess]],
        log: Logger,
        *,
        clock: Callable[[], int],
        answering: Mapping[str, Answering],
        replaced: Callable[[WorkerSlot], None] = lambda _: None,
    ) -> None:
        self.all: Final = tuple(WorkerSlot(number) for number in range(1, count + 1))
        self._start = start
        self._log = log
        self._clock = clock
        self._answering = answering
        self._replaced = replaced
        self._draining = trio.Event()
        self._ended = trio.Event()
        self._whole = False  # all have been ready once

    @property
    def seen(self) -> list[WorkerSeen]:
        return [worker.seen for worker in self.all]

    @property
    def serving(self) -> list[WorkerSlot]:
        return [worker for worker in self.all if worker.serves]

    @property
    def all_beat(self) -> bool:
        """Return whether all that serve beat."""
        return all(worker.missed < _LATE_BEATS for worker in self.serving)

    async def run(
        self, *, task_status: trio.TaskStatus[msgspec.Raw | None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run until all have ended, after `drain`. Raises `WorkersCannotStart`.

        Started when all have been ready once, with what the first said then; None if they were told to end before. The first is alone until
        it is ready: it does what is done once, on a new database above all.
        """
        first, *others = self.all
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep, first)
            await first.ready.wait()
            for worker in others:
                nursery.start_soon(self._keep, worker)
            for worker in others:
                await worker.ready.wait()
            self._whole = True
            task_status.started(first.started)
        self._ended.set()

    def drain(self) -> None:
        """Let each end when its calls have; one that is not ready yet ends at once."""
        self._draining.set()
        for worker in self.all:
            if worker.process is None:
                worker.ready.set()
            elif not (worker.serves and worker.channel is not None and worker.channel.tell(DRAIN)):
                worker.process.signal(signal.SIGTERM)

    async def end(self, *, within: float = ENDING_SECONDS) -> None:
        """End all at once: running work is broken off, and a worker that takes longer than `within` is killed."""
        for worker in self.all:
            if worker.channel is not None:
                worker.channel.tell(END)
        with trio.move_on_after(within):
            await self._ended.wait()
        for worker in self.all:
            if worker.process is not None:
                self._log.error("worker.killed", worker=worker.number, pid=worker.process.pid)
                worker.process.signal(signal.SIGKILL)

    async def ask(self, worker: WorkerSlot, name: str, body: Any, *, seconds: float) -> msgspec.Raw | None:
        """Return the answer of a worker; None if it is gone, or does not answer in time."""
        if worker.channel is None:
            return None
        with trio.move_on_after(seconds):
            try:
                return await worker.channel.ask(name, body)
            except ChannelGone:
                pass
        return None

    async def ask_all(self, name: str, body: Any, *, seconds: float) -> dict[int, msgspec.Raw]:
        """Return the answers of workers that serve and answer in time, by their numbers."""
        found: dict[int, msgspec.Raw] = {}

        async def ask(worker: WorkerSlot) -> None:
            answer = await self.ask(worker, name, body, seconds=seconds)
            if answer is not None:
                found[worker.number] = answer

        async with trio.open_nursery() as nursery:
            for worker in self.serving:
                nursery.start_soon(ask, worker)
        return dict(sorted(found.items()))

    async def _keep(self, worker: WorkerSlot) -> None:
        pauses, refused = Pauses(), 0
        while not self._draining.is_set():
            began = trio.current_time()
            ended = await self._live(worker)
            lived = trio.current_time() - began
            if self._draining.is_set():
                break
            refusal = worker.refusal
            refused = refused + 1 if refusal is not None else 0
            if refusal is not None and self._takes_all_along(refusal, refused):
                raise WorkersCannotStart(refusal)
            pause = pauses.after(lived)
            if refusal is not None:
                ended = refusal.problem
            self._see(worker, state="waiting", ended=ended, restarts=worker.seen.restarts + 1)
            self._log.error(
                "worker.ended",
                worker=worker.number,
                pid=worker.seen.pid,
                ended=ended,
                lived_seconds=round(lived, 1),
                again_in_seconds=pause,
            )
            with trio.move_on_after(pause):
                await self._draining.wait()
        self._see(worker, state="ended")
        worker.ready.set()

    def _takes_all_along(self, refusal: WorkerRefusal, times: int) -> bool:
        """Return whether a refusal ends all. Workers that serve go on: the database may be starting. Until all have been ready once,
        somebody waits to hear what is wrong.
        """
        return not self.serving or (not self._whole and (refusal.lasting or times > AT_START))

    async def _live(self, worker: WorkerSlot) -> str:
        """Run one process from its start to its end; return how it ended."""
        worker.refusal, worker.beats, worker.missed, worker.hung_seconds = None, 0, 0, None
        try:
            process = worker.process = await self._start(worker.number, not worker.ready.is_set())
        except OSError as error:  # for want of memory, of processes, of descriptors
            return f"it could not be started: {error.strerror or error}"
        try:
            self._see(worker, state="starting", pid=process.pid, since=self._clock())
            if self._draining.is_set():  # while it was being started
                process.signal(signal.SIGTERM)
            channel = worker.channel = process.connect(
                answering=self._answering,
                hearing={
                    READY: partial(self._hear_ready, worker),
                    REFUSAL: partial(_hear_refusal, worker),
                    BEAT: partial(_hear_beat, worker),
                },
                failed=partial(self._failed_to_answer, worker),
            )
            async with trio.open_nursery() as beside:
                beside.start_soon(channel.run)
                async with trio.open_nursery() as listening:
                    listening.start_soon(process.pass_on_its_log)
                    async with trio.open_nursery() as watching:
                        watching.start_soon(self._watch, worker, process)
                        code = await process.wait()
                        watching.cancel_scope.cancel()
                    worker.serves = False
                    listening.cancel_scope.deadline = trio.current_time() + LAST_WORDS_SECONDS
                beside.cancel_scope.deadline = trio.current_time() + LAST_WORDS_SECONDS
        except BaseException:
            process.signal(signal.SIGKILL)
            raise
        finally:
            worker.serves, worker.process, worker.channel = False, None, None
        if worker.hung_seconds is not None:
            return f"it hung for {worker.hung_seconds:.0f} seconds, and was killed"
        return how_it_ended(code)

    async def _watch(self, worker: WorkerSlot, process: ChildProcess) -> None:
        """Kill a process whose loop hangs. Beats are counted, not timed: a parent that was stopped finds all of them later."""
        heard = 0
        while worker.missed * BEAT_SECONDS < (patience := self._patience(worker)):
            await trio.sleep(BEAT_SECONDS)
            worker.missed += worker.beats == heard
            heard = worker.beats
        self._log.error("worker.hangs", worker=worker.number, pid=process.pid, seconds=patience)
        worker.serves, worker.hung_seconds = False, patience
        process.signal(signal.SIGKILL)

    def _patience(self, worker: WorkerSlot) -> float:
        """Return how long a beat may be missing. The very first worker migrates the database before it beats."""
        if worker.beats:
            return HANGS_SECONDS
        begins_all = worker is self.all[0] and not worker.ready.is_set()
        return math.inf if worker.serves or begins_all else STARTING_SECONDS

    def _hear_ready(self, worker: WorkerSlot, body: msgspec.Raw) -> None:
        worker.started, worker.serves = body, True
        self._see(worker, state="serving")
        self._log.info("worker.ready", worker=worker.number, pid=worker.seen.pid)
        if worker.ready.is_set():
            self._replaced(worker)
        worker.ready.set()
        if self._draining.is_set() and worker.channel is not None:
            worker.channel.tell(DRAIN)

    def _failed_to_answer(self, worker: WorkerSlot, question: str) -> None:
        self._log.exception("worker.not_answered", worker=worker.number, question=question)

    def _see(self, worker: WorkerSlot, **changes: Any) -> None:
        worker.seen = msgspec.structs.replace(worker.seen, **changes)


def _hear_refusal(worker: WorkerSlot, body: msgspec.Raw) -> None:
    worker.refusal = msgspec.json.decode(body, type=WorkerRefusal)


def _hear_beat(worker: WorkerSlot, body: msgspec.Raw) -> None:
    worker.beats, worker.missed = worker.beats + 1, 0
