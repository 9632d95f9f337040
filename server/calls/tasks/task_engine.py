"""The engine of tasks: calls that outlive their request, and this process.

    start    a row, then the work begins          attempt   the work begins; a row when the tool, or the time, says so
    get, list, wait, answer, cancel               what a caller may do with a task of its own
    run      owns the work, and watches over it (task_watch.py)

A change is committed before anybody is told of it. Everything that a running task writes is conditional on its lease, so work
that was cancelled, or that another process took over, ends without writing. Run again after a restart is only what has a
checkpoint, or only waited for answers; what else was interrupted fails, and says so. Faces: mcp/task_faces.py; rows: sealed_tasks.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from server.calls.tasks.sealed_tasks import Orphan, SealedTasks
from server.calls.tasks.task_events import Events
from server.calls.tasks.task_logins import Allowed, LoginChange, everybody
from server.calls.tasks.task_order import (
    MAX_ANSWERS_BYTES,
    LetGo,
    Owner,
    Perform,
    TaskOrder,
    TaskTerms,
    Who,
    nothing_to_let_go,
    owner_of,
)
from server.calls.tasks.task_outlet import QuestionNames, TaskAttempt, TaskOutlet
from server.calls.tasks.task_run import TaskRun, ending_of, is_put_aside
from server.calls.tasks.task_waiters import Waiting
from server.calls.tasks.task_watch import TaskWatch
from server.lib.log.logger import Logger
from server.mcp.call_failures import Paused
from server.mcp.call_outlet import Outlet
from server.mcp.call_questions import problem
from server.mcp.errors import BackendFailed, BadParams, McpError, TaskOver, TooManyTasks
from server.mcp.loads import LargeAnswer, Load, Loads
from server.mcp.task_faces import Ending, Face, Snapshot, TaskCompleted, TaskFailed, hash_id
from server.store.jobs import JobTooSlow, Store, StoreError, StoreUnavailable
from server.store.task_leases import Lease

if TYPE_CHECKING:
    from server.calls.tasks.task_news import TasksElsewhere
    from server.store.node_messages.node_messages import NodeMessages

__all__ = [
    "Ending",
    "Owner",
    "Perform",
    "TaskCompleted",
    "TaskFailed",
    "TaskOrder",
    "TaskTerms",
    "Tasks",
    "Who",
    "owner_of",
]

Announce = Callable[[str, str], None]  # server, task id; must not wait

# How often somebody who waits looks for what another process has changed; in this one, changes wake them.
LOOK_SECONDS: Final = 2.0
# Tasks for whose results somebody waits at other nodes: forgotten, one may be asked by two ways.
MAX_FETCHED: Final = 10_000
ASK_AGAIN: Final = "the server is stopping: ask again"
# What is left to a task's last write when the server stops. Longer, and the stop would look like a hang.
LAST_WRITE_SECONDS: Final = 5.0


class Tasks:
    def __init__(
        self,
        store: Store,
        *,
        perform: Perform,
        clock: Callable[[], int],
        entropy: Callable[[int], bytes],
        key: bytes,
        boot_id: str,
        log: Logger,
        announce: Announce,
        allowed: Allowed = everybody,
        let_go: LetGo = nothing_to_let_go,
        terms: TaskTerms | None = None,
        loads: Loads | None = None,
        letters: NodeMessages | None = None,
    ) -> None:
        """`let_go`: of what was begun for an order that is not performed after all. `letters`: for other nodes, where there are any."""
        self._let_go = let_go
        self._loads = loads or Loads()
        self._ledger = SealedTasks(
            store,
            key=key,
            entropy=entropy,
            clock=clock,
            boot_id=boot_id,
            terms=terms or TaskTerms(),
            log=log,
        )
        self._perform = perform
        self._clock = clock
        self._log = log
        self._tell = announce
        self._watch = TaskWatch(self, self._ledger, allowed=allowed, log=log)
        self.works: dict[str, TaskRun] = {}  # those that are tasks, by the hash of their ids
        self._elsewhere = None if letters is None else _elsewhere(letters, self)
        self._waiting = Waiting() if self._elsewhere is None else Waiting(self._elsewhere.fetched)
        self._fetched_at: dict[
            str, set[str]
        ] = {}  # tasks, and the other nodes at which somebody waits for them
        self._draining = False
        self._running = trio.CancelScope()
        self._stopped: trio.Event | None = None  # None: it does not run yet
        # Its length is bounded by who may begin work: requests, and the caps on tasks.
        self._begin, self._begun = trio.open_memory_channel[TaskRun](math.inf)

    def count(self) -> int:
        return len(self.works)

    # ── what runs ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled or stopped: then what runs is stopped, and its leases are given back for the next process to find."""
        stopped = self._stopped = trio.Event()
        try:
            with self._running:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch.run)
                    nursery.start_soon(self._ledger.arrears.run)
                    task_status.started()
                    async for work in self._begun:
                        nursery.start_soon(self._carry_out, work)
        finally:
            stopped.set()
            with suppress(trio.WouldBlock):
                while True:
                    work = self._begun.receive_nowait()
                    work.let_go()
                    work.settled.set()  # whoever waits for it is told

    def begin_draining(self) -> None:
        """The server is about to stop: nobody waits for a task any longer, for it is the next process that may see its end."""
        self._draining = True
        self._waiting.ring_all()

    async def stop(self) -> None:
        """What runs is stopped, and given back, when this returns: so that back-ends which close later fail none of it."""
        self._running.cancel()
        if self._stopped is not None:
            await self._stopped.wait()

    async def start(
        self,
        order: TaskOrder,
        *,
        owner: Owner,
        face: Face,
        ttl_ms: int | None = None,
        immediate: str | None = None,
        load: Load | None = None,
    ) -> Snapshot:
        """Kept when it returns. `load`: of its request, which is held until it has ended. Raises `TooManyTasks`, and
        `StoreUnavailable`."""
        self._check_running()
        events, order = Events(), _answerable(order, face)
        lease, snapshot = await self._ledger.create(
            order, owner, face, ttl_ms=ttl_ms, events=b"[]", message=None
        )
        work = TaskRun(order)
        asked = QuestionNames(order.answers)
        self._adopt(work, lease, snapshot, asked=asked, events=events, checkpointed=order.resumed is not None)
        self._check_running()
        work.hold(load)
        self._begin.send_nowait(work)
        return msgspec.structs.replace(snapshot, immediate=immediate)

    async def attempt(
        self,
        order: TaskOrder,
        line: Outlet,
        *,
        owner: Owner,
        face: Face,
        after_seconds: float | None,
        ttl_ms: int | None = None,
        load: Load | None = None,
    ) -> Ending | Snapshot:
        """Begins as a call whose line is `line`. The snapshot of a task, if it becomes one: when the tool says so, or after
        so many seconds. If there is no room for another task, it stays a call. Cancelling it before stops the work. `load` is as
        in `start`. `Paused`, and what else `perform` raises, passes through."""

        async def make(attempt: TaskAttempt) -> TaskOutlet | None:
            return await self._make(work, attempt, owner, face, ttl_ms)

        self._check_running()
        can, order = order.can, _answerable(order, face)
        work = TaskRun(order, load)
        attempt = work.attempt = TaskAttempt(
            line,
            asked=QuestionNames({}),
            events=Events(),
            resumed=order.resumed,
            can_as_task=order.can - can,
            clock=self._clock,
            make=make,
        )
        self._begin.send_nowait(work)
        try:
            with trio.move_on_after(math.inf if after_seconds is None else after_seconds):
                await work.settled.wait()
            if not work.settled.is_set():
                await attempt.become_task()
                await work.settled.wait()
        finally:
            if work.outlet is None:
                work.scope.cancel()
        if work.snapshot is not None:
            return work.snapshot
        error, work.error = work.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or it and this frame would hold each other
        if work.ending is None:
            raise BackendFailed("the server is stopping")
        return work.ending

    def _check_running(self) -> None:
        if self._running.cancel_called or (self._stopped is not None and self._stopped.is_set()):
            raise BackendFailed("the server is stopping")

    async def _make(
        self, work: TaskRun, attempt: TaskAttempt, owner: Owner, face: Face, ttl_ms: int | None
    ) -> TaskOutlet | None:
        order = msgspec.structs.replace(
            work.order, answers=dict(attempt.asked.answers), resumed=attempt.checkpointed
        )
        told = attempt.events
        told.unsaved = 0
        try:
            lease, snapshot = await self._ledger.create(
                order, owner, face, ttl_ms=ttl_ms, events=told.encoded(), message=told.message
            )
        except (TooManyTasks, StoreUnavailable, JobTooSlow) as problem:
            self._log.warning("task.not_made", tool=order.tool, request=order.call_id, problem=str(problem))
            return None
        checkpointed = attempt.checkpointed is not None
        outlet = self._adopt(
            work, lease, snapshot, asked=attempt.asked, events=told, checkpointed=checkpointed
        )
        self._watch.doubt(work)  # what was ended before it was a task was nobody's to tell of
        work.settled.set()
        return outlet

    def _adopt(
        self,
        work: TaskRun,
        lease: Lease,
        snapshot: Snapshot,
        *,
        asked: QuestionNames,
        events: Events,
        checkpointed: bool,
    ) -> TaskOutlet:
        """From here on the work is a task of this process."""
        server, task_id = snapshot.server, snapshot.id
        work.outlet = TaskOutlet(
            self._ledger,
            lease,
            can=work.order.can,
            asked=asked,
            events=events,
            checkpointed=checkpointed,
            announce=lambda: self._announce(server, task_id),
            lost=partial(self._lose, lease),
        )
        work.snapshot = snapshot
        work.over_at = snapshot.created_at + snapshot.ttl_ms
        self.works[lease.key] = work
        order = work.order
        self._log.info("task.runs", tool=order.tool, server=server, request=order.call_id)
        return work.outlet

    async def _carry_out(self, work: TaskRun) -> None:
        begun = False
        try:
            if begun := work.outlet is None or await self._watch.may_go_on(work):
                with work.scope:
                    await self._perform_once(work)
            if work.attempt is not None:
                with trio.CancelScope(shield=True):  # waits for one write at most, which the store bounds
                    await work.attempt.end()
            if work.outlet is not None and work.outlet.can_be_run_again and is_put_aside(work):
                return  # its lease is given back, and it is soon run again, by the agent's newer version
            if work.outlet is not None and (ending := ending_of(work)) is not None:
                await self._finish(work, work.outlet, ending)
        except StoreError:
            self._log.exception("task.not_kept", tool=work.order.tool, request=work.order.call_id)
        finally:
            work.settled.set()
            try:
                if work.outlet is not None:
                    work.error = None  # its frames hold the work
                    if self._forget(work):
                        await self._release(work.outlet)
            finally:
                work.let_go()
                if not begun:
                    await self._let_go_of(work.order)

    async def _let_go_of(self, order: TaskOrder) -> None:
        try:
            await self._let_go(order)
        except Exception:  # whatever it is, the other tasks go on
            self._log.exception("task.not_let_go", tool=order.tool, request=order.call_id)

    async def _perform_once(self, work: TaskRun) -> None:
        try:
            work.ending = await self._perform(work.order, work.line)
        except (McpError, Paused) as error:
            work.error = error
        except Exception as error:
            if work.outlet is not None:  # else whoever waits for it gets the error itself
                self._log.exception("task.crashed", tool=work.order.tool, request=work.order.call_id)
            work.error = error

    async def _finish(self, work: TaskRun, outlet: TaskOutlet, ending: Ending) -> None:
        """Also while the server stops, for as long as it may take; else for as long as it takes."""
        assert work.snapshot is not None
        events = outlet.events
        when_kept = None
        if isinstance(ending, TaskCompleted):
            when_kept, ending = ending.when_kept, TaskCompleted(ending.result)

        async def write() -> bool:
            return await self._ledger.finish(
                outlet.lease, ending, message=events.message, events=events.encoded()
            )

        done: bool | None = None
        with trio.move_on_after(LAST_WRITE_SECONDS, shield=True):
            done = await write()
        if done is None:
            done = await write()
        self._forget(work)
        if done:
            order = work.order
            outcome = "completed" if isinstance(ending, TaskCompleted) else "failed"
            self._log.info("task.ended", tool=order.tool, outcome=outcome, request=order.call_id)
            # Whoever has the task's id can fetch it from now on.
            if when_kept is not None and (has_it := when_kept()) is not None:
                has_it()
            self._announce(work.snapshot.server, work.snapshot.id)

    async def _release(self, outlet: TaskOutlet) -> None:
        """The server stops. What was done so far is kept; the next process decides what becomes of it."""
        with trio.move_on_after(LAST_WRITE_SECONDS, shield=True):
            try:
                await outlet.flush()
                await self._ledger.release(outlet.lease)
            except StoreError:
                self._log.warning("task.not_released")  # it is found when its lease has run out

    def _forget(self, work: TaskRun) -> bool:
        """Whether it was a task of ours until now."""
        key = work.outlet.lease.key if work.outlet is not None else ""
        if self.works.get(key) is not work:  # another run of the same task may be
            return False
        del self.works[key]
        return True

    def _lose(self, lease: Lease) -> None:
        work = self.works.get(lease.key)
        if work is not None and work.outlet is not None and work.outlet.lease == lease:
            self.drop(work)

    def drop(self, work: TaskRun) -> None:
        """It is not ours any more: the work stops, and nothing of it is written."""
        self._forget(work)
        work.scope.cancel()

    # ── what a caller may do ─────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, task_id: str, owner: Owner) -> Snapshot:
        """Raises `UnknownTask`."""
        work = self.works.get(hash_id(task_id))
        if work is not None and work.outlet is not None:
            await work.outlet.flush()
        return await self._ledger.load(task_id, owner)

    async def list(
        self, owner: Owner, *, after: tuple[int, str] | None = None, limit: int = 50
    ) -> Sequence[Snapshot]:
        """Newest first; without results, questions and events. Only for owners who are known."""
        return await self._ledger.page(owner, after=after, limit=limit) if owner.known else ()

    async def wait(self, task_id: str, owner: Owner, *, seen: frozenset[str] = frozenset()) -> Snapshot:
        """When it is over, or a question is outstanding that is not among those `seen`. Raises `UnknownTask`, and `BackendFailed`
        when the server is about to stop."""
        return await self.wait_until(task_id, owner, lambda task: not task.questions.keys() <= seen)

    async def wait_until(
        self,
        task_id: str,
        owner: Owner,
        done: Callable[[Snapshot], bool],
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> Snapshot:
        """When it is over, or `done` says so, which is asked again when something happens to the task, or somebody begins or stops
        to fetch it. Raises what `wait` does."""
        with self._waiting.bell(hash_id(task_id)) as bell:
            while True:
                rung = bell.rung  # before looking, so that no ring is missed
                snapshot = await self.get(task_id, owner)
                if snapshot.over or done(snapshot):
                    return snapshot
                if self._draining:
                    raise BackendFailed(ASK_AGAIN)
                with trio.move_on_after(look_seconds):
                    await rung.wait()

    def fetch(self, task_id: str) -> AbstractContextManager[None]:
        """A block in which somebody waits for the result, and is asked what the task asks."""
        return self._waiting.fetch(hash_id(task_id))

    def fetched(self, task_id: str) -> bool:
        """Whether anybody is in such a block."""
        task = hash_id(task_id)
        if self._waiting.fetched(task):
            return True
        nodes = self._fetched_at.get(task)
        return bool(nodes) and self._elsewhere is not None and any(map(self._elsewhere.is_alive, nodes))

    async def answer(
        self, task_id: str, owner: Owner, answers: Mapping[str, Any], *, load: Load | None = None
    ) -> Snapshot:
        """What is not outstanding is ignored, and so is what does not answer its question, which stays outstanding. `load`: of
        what brought them, held like that of the task. Raises `UnknownTask`."""
        snapshot = await self._ledger.load(task_id, owner)
        fitting = {
            name: answers[name]
            for name, question in snapshot.questions.items()
            if name in answers and problem(question, answers[name]) is None
        }
        if not fitting:
            return snapshot
        if len(msgspec.json.encode(fitting)) > MAX_ANSWERS_BYTES:
            raise BadParams(f"the answers have more than {MAX_ANSWERS_BYTES} bytes")
        if await self._ledger.answer(task_id, fitting):
            if (work := self.works.get(hash_id(task_id))) is not None:
                work.hold(load)
                for answer in fitting.values():
                    if isinstance(answer, LargeAnswer):
                        work.hold(answer.load)
            self._announce(snapshot.server, task_id)
        return await self._ledger.load(task_id, owner)

    async def cancel(self, task_id: str, owner: Owner, *, reason: str) -> Snapshot:
        """It is cancelled when this returns, and the work has been told to stop. Raises `UnknownTask`, and `TaskOver` if it
        had ended."""
        snapshot = await self._ledger.load(task_id, owner)
        if snapshot.over or not await self.end(snapshot.server, task_id, reason):
            raise TaskOver("the task has ended already")
        return await self._ledger.load(task_id, owner)

    async def end(self, server: str, task_id: str, reason: str) -> bool:
        if not await self._ledger.cancel(task_id, reason):
            return False
        if (work := self.works.get(hash_id(task_id))) is not None:
            self.drop(work)
        self._announce(server, task_id, over=True)
        return True

    def _announce(self, server: str, task_id: str, *, over: bool = False) -> None:
        self._stir(server, task_id)
        if self._elsewhere is not None:
            self._elsewhere.changed(server, task_id, over=over)

    def _stir(self, server: str, task_id: str) -> None:
        """Whoever waits at this node looks again."""
        id_hash = hash_id(task_id)
        self._waiting.ring(id_hash)
        if (work := self.works.get(id_hash)) is not None and work.outlet is not None:
            work.outlet.wake()
        try:
            self._tell(server, task_id)
        except Exception:  # whoever is told has a fault; the task has none
            self._log.exception("task.not_announced", server=server)

    # ── for task_news.py ─────────────────────────────────────────────────────────────────────────────────────────────────

    def changed_elsewhere(self, server: str, task_id: str, *, over: bool) -> None:
        """By another node, and committed. `over`: it was ended from outside, for good."""
        work = self.works.get(hash_id(task_id))
        if over and work is not None:
            self.drop(work)
        self._stir(server, task_id)

    def fetched_elsewhere(self, task: str, node: str, on: bool) -> None:
        nodes = self._fetched_at.get(task, set())
        if on:
            self._fetched_at.setdefault(task, nodes).add(node)
            while len(self._fetched_at) > MAX_FETCHED:
                del self._fetched_at[next(iter(self._fetched_at))]
        else:
            nodes.discard(node)
            if not nodes:
                self._fetched_at.pop(task, None)
        self._waiting.ring(task)

    # ── for task_watch.py ────────────────────────────────────────────────────────────────────────────────────────────

    def apply_changes(self, changes: Iterable[LoginChange]) -> None:
        """For the store's `on_changes`: what runs for whoever was shut out is stopped."""
        self._watch.apply_changes(changes)

    def trust(self, trusted: bool) -> None:
        """For the store's `on_trust`: who was shut out by others may not have been heard of."""
        for work in () if trusted else self.works.values():
            self._watch.doubt(work)

    def look_for_left(self) -> None:
        """Another process is gone: what it ran is looked for now."""
        self._watch.look_for_left()

    def let_go_of_all(self) -> None:
        """The others may take this process for dead, and run what it runs: so it runs nothing of it any more."""
        for work in list(self.works.values()):
            if work.outlet is not None:
                self._watch.give_back(work.outlet.lease)
            self.drop(work)

    @property
    def alone(self) -> bool:
        """No other node could go on with what is left."""
        return self._elsewhere is None or self._elsewhere.alone

    @property
    def has_room(self) -> bool:
        return self._loads.has_room

    def resume(self, orphan: Orphan) -> None:
        if orphan.lease is None or orphan.order is None:
            snapshot = orphan.snapshot
            self._log.info("task.interrupted", server=snapshot.server, tool=snapshot.tool)
            self._announce(snapshot.server, snapshot.id)
            return
        principal = orphan.order.principal.principal()
        load = Load(self._loads, principal.key(), known=principal.identified)
        load.bear(orphan.weight)
        work = TaskRun(orphan.order, load)
        load.let_go()  # which the work holds now
        self._adopt(
            work,
            orphan.lease,
            orphan.snapshot,
            asked=QuestionNames(orphan.answers),
            events=Events(orphan.events),
            checkpointed=orphan.checkpointed,
        )
        self._begin.send_nowait(work)


def _elsewhere(letters: NodeMessages, engine: Tasks) -> TasksElsewhere:
    from server.calls.tasks.task_news import TasksElsewhere

    return TasksElsewhere(letters, engine)


def _answerable(order: TaskOrder, face: Face) -> TaskOrder:
    """Whoever has the third face answers forms with tasks/respond, whatever else its client can be asked."""
    if face is not Face.WASMAGENT:
        return order
    return msgspec.structs.replace(order, can=order.can | {"elicitation"})
