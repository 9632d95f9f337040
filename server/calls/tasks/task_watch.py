"""What happens to running tasks from outside: leases are renewed, times run out, logins are ended, processes leave work behind.

Which tasks run here is task_engine.py's, which is told what has to become of them; what is written, sealed_tasks.py's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, Protocol

import msgspec
import trio

from server.calls.tasks.sealed_tasks import Orphan, SealedTasks
from server.calls.tasks.task_logins import REVOKED, Allowed, Doubts, LoginChange, touches
from server.calls.tasks.task_order import Who
from server.calls.tasks.task_run import TaskRun
from server.lib.log.logger import Logger
from server.store.jobs import JobTooSlow, StoreUnavailable
from server.store.task_leases import Lease

# Leases renewed in one write, and orphans looked at in one go: a few milliseconds of the store's time.
PIECE: Final = 100
OUT_OF_TIME: Final = "its time to live was over before it had ended"


class Engine(Protocol):
    """What is asked of task_engine.py."""

    @property
    def works(self) -> Mapping[str, TaskRun]:
        """Those that are tasks of this process, by the hash of their ids."""
        ...

    def drop(self, work: TaskRun) -> None:
        """The work stops, and nothing of it is written any more."""
        ...

    def end(self, server: str, task_id: str, reason: str) -> Awaitable[bool]:
        """It is cancelled, and its work stops. False if it had ended before."""
        ...

    @property
    def alone(self) -> bool:
        """No other node could go on with what is left."""
        ...

    @property
    def has_room(self) -> bool:
        """For what large tasks bring."""
        ...

    def resume(self, orphan: Orphan) -> None: ...


class TaskWatch:
    def __init__(self, engine: Engine, ledger: SealedTasks, *, allowed: Allowed, log: Logger) -> None:
        self._engine = engine
        self._ledger = ledger
        self._allowed = allowed
        self._log = log
        self._doubts = Doubts[TaskRun]()
        self._back: list[Lease] = []  # which could not be given back yet
        self._called = trio.Event()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_after)
            nursery.start_soon(self._settle_doubts)

    # ── logins that are ended ────────────────────────────────────────────────────────────────────────────────────────

    def apply_changes(self, changes: Iterable[LoginChange]) -> None:
        """What belongs to those concerned is looked at, and stopped if they were shut out. Never waits."""
        touched = touches(changes)
        for work in self._engine.works.values():
            if touched(work.order.principal):
                self.doubt(work)

    def doubt(self, work: TaskRun) -> None:
        self._doubts.add(work)

    async def may_go_on(self, work: TaskRun) -> bool:
        """Stops it if not; from now on it acts as what its caller may be now."""
        order = work.order
        now = await self._ledger.insist(lambda: self._allowed(order.principal.principal()))
        if now is not None:
            work.order = msgspec.structs.replace(order, principal=Who.of(now))
            return True
        assert work.snapshot is not None
        self._log.info("task.revoked", tool=order.tool, grant=order.principal.grant_id, request=order.call_id)
        # At once. If the store cannot take the next line, whoever takes the task over comes here again.
        self._engine.drop(work)
        await self._engine.end(work.snapshot.server, work.snapshot.id, REVOKED)
        return False

    async def _settle_doubts(self) -> None:
        while True:
            work = await self._doubts.next()
            if work.outlet is None or self._engine.works.get(work.outlet.lease.key) is not work:
                continue  # it has ended meanwhile
            try:
                await self.may_go_on(work)
            except JobTooSlow as problem:  # after the others, who may have been shut out as well
                self._log.warning("task.store_too_slow", problem=str(problem))
                self.doubt(work)
            except StoreUnavailable as problem:
                self._log.warning("task.store_unavailable", problem=str(problem))
            except Exception:  # whatever it is, the others' logins must be looked at
                self._log.exception("task.not_checked", tool=work.order.tool, request=work.order.call_id)

    # ── other processes ──────────────────────────────────────────────────────────────────────────────────────────────

    def look_for_left(self) -> None:
        self._called.set()

    def give_back(self, lease: Lease) -> None:
        """When the store can be reached, if it is still held then."""
        self._back.append(lease)
        self._called.set()

    async def _give_back(self) -> None:
        while self._back:
            await self._ledger.release(self._back[0])
            self._back.pop(0)

    # ── leases ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _look_after(self) -> None:
        while True:
            try:
                await self._give_back()
                await self._keep()
                await self._end_what_is_out_of_time()
                await self._take_over()
            except StoreUnavailable as problem:
                self._log.warning("task.store_unavailable", problem=str(problem))
            except Exception:  # whatever it is, the other tasks' leases must be renewed
                self._log.exception("task.look_after_failed")
            with trio.move_on_after(self._ledger.terms.renew_seconds):
                await self._called.wait()
            self._called = trio.Event()

    async def _keep(self) -> None:
        works = self._engine.works
        held = [work.outlet.lease for work in works.values() if work.outlet is not None]
        for start in range(0, len(held), PIECE):
            piece = held[start : start + PIECE]
            kept = await self._ledger.keep(piece)
            for lease in piece:
                work = works.get(lease.key)
                if work is None or work.outlet is None or work.outlet.lease != lease:
                    continue
                if lease.key not in kept:
                    self._log.info("task.lost", tool=work.order.tool, request=work.order.call_id)
                    self._engine.drop(work)
                elif kept[lease.key] != work.version:  # another process may have brought answers
                    work.version = kept[lease.key]
                    work.outlet.wake()

    async def _end_what_is_out_of_time(self) -> None:
        now = self._ledger.clock()
        for work in [work for work in self._engine.works.values() if work.over_at <= now]:
            if work.snapshot is not None:
                await self._engine.end(work.snapshot.server, work.snapshot.id, OUT_OF_TIME)

    async def _take_over(self) -> None:
        """What nobody runs. A living process renews in time, so what it runs is never among them. That for which there is no room
        now is looked at again later."""
        works, ledger = self._engine.works, self._ledger
        while True:
            found = [each for each in await ledger.orphans(PIECE) if each not in works]
            taken = 0
            for id_hash in found:
                if not self._engine.has_room:
                    return
                orphan = await ledger.take_over(id_hash, alone=self._engine.alone)
                if orphan is not None:
                    self._engine.resume(orphan)
                    taken += 1
            if not taken or len(found) < PIECE:
                return
