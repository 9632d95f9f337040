"""The store with threads of its own: one writer that commits in groups, readers that never wait for it.

A batch is whatever waits when the writer gets to it: a lone job commits at once, a crowd shares one sync of the disk. Callers
are woken after COMMIT, all of a batch with one call into trio. `transactions.py` says what a transaction is, and what happens when one
breaks; this file is about threads, queues and waking.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from server.store.jobs import (
    Change,
    Effect,
    OnTrust,
    Position,
    StoreBroken,
    StoreClosed,
    StoreDamaged,
    StoreDb,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnreachable,
    T,
    apart,
)
from server.store.store_health import SLOW_SERVER, STUCK_SERVER, StoreHealth, StoreReport
from server.store.transactions import JOB_SECONDS, PendingJob, StoreParts, Transactions

if TYPE_CHECKING:
    from server.store.remote_changes import RemoteChanges


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The store's bounds. The defaults suit one serving process; tests set others."""

    # Per queue, running ones included: some 30 ms of work. More means that the disk stands still.
    waiting: int = 1024
    # Beyond this the sync is shared by so many that sharing more gains nothing.
    batch: int = 64
    # The first of a batch waits no longer than this for the others' work; where a turn of the writer costs more by itself (a slow disk, a
    # database over a network, other processes that write), some times as long as that, so that it is the lesser part of what a crowd waits.
    batch_seconds: float = 0.005
    longest_batch_seconds: float = 0.1
    job_seconds: float = JOB_SECONDS
    readers: int = 2
    # A writer that has not answered by then hangs on a dead disk.
    write_seconds: float = 60.0
    # When the process is to end, whoever waits for it will not be patient; and what was accepted is still finished.
    hurried_write_seconds: float = 10.0
    # What was accepted is finished at closing, but a dead disk must not hold the process.
    close_seconds: float = 30.0


TURNS_OF_WORK: Final = 4
# A read waits for a database that is out of reach no longer than that.
SILENT_SECONDS: Final = 5.0
READS_LOOKED_AT_SECONDS: Final = 0.5

DEFAULT_LIMITS: Final = StoreLimits()


class _Ticket(PendingJob[T]):
    """A job and the task that waits for it. Its lane writes on it."""

    __slots__ = ("abandoned", "asked_at", "task")

    task: trio.lowlevel.Task
    asked_at: float  # of the machine's clock, in seconds
    abandoned: bool  # written in the trio thread; a thread that sees it late has only worked in vain

    def abandon(self, _: object) -> trio.lowlevel.Abort:
        self.abandoned = True
        return trio.lowlevel.Abort.SUCCEEDED


def _wait_on(_: object) -> trio.lowlevel.Abort:
    """Keep cancellation out while the outcome is open; trio delivers it at the caller's next checkpoint."""
    return trio.lowlevel.Abort.FAILED


class _Lane:
    """A bounded queue into a thread. All but `queue` belongs to the trio thread."""

    def __init__(self, limit: int) -> None:
        self.queue: SimpleQueue[_Ticket[Any] | None] = SimpleQueue()  # None: end of work, once per thread
        self._limit = limit
        self._open: dict[_Ticket[Any], None] = {}  # from submission to answer, oldest first

    @property
    def pending(self) -> int:
        return len(self._open)

    @property
    def oldest_asked_at(self) -> float | None:
        return next((ticket.asked_at for ticket in self._open), None)

    def submit(self, job: Callable[[StoreDb], T]) -> _Ticket[T]:
        if len(self._open) >= self._limit:
            raise StoreFull("too much database work is waiting")
        ticket = _Ticket(job)
        ticket.task, ticket.abandoned = trio.lowlevel.current_task(), False
        ticket.asked_at = time.monotonic()
        self._open[ticket] = None
        self.queue.put(ticket)
        return ticket

    def answer(self, tickets: Sequence[_Ticket[Any]]) -> None:
        for ticket in tickets:
            del self._open[ticket]
            if not ticket.abandoned:
                trio.lowlevel.reschedule(ticket.task)

    def give_up(self, asked_before: float) -> float | None:
        """Wake whoever has waited since before then. Since when the next one waits."""
        for ticket in self._open:
            if ticket.asked_at > asked_before:
                return ticket.asked_at
            if not ticket.abandoned:
                ticket.abandoned = True
                trio.lowlevel.reschedule(ticket.task)
        return None


class _Group:
    """The jobs that a thread takes from its lane in one go: the first is waited for, the rest must be there already."""

    def __init__(self, lane: _Lane, limits: StoreLimits, seconds: float) -> None:
        self._queue = lane.queue
        self._limits = limits
        self._seconds = seconds
        self.taken: list[_Ticket[Any]] = []
        self.is_last = False
        self._take(self._queue.get())

    def __bool__(self) -> bool:
        return bool(self.taken)

    def __iter__(self) -> Iterator[_Ticket[Any]]:
        # From when the first was done: a transaction may begin with it, and wait for its turn until then.
        position, until = 0, 0.0
        while position < len(self.taken):
            ticket = self.taken[position]
            if not ticket.abandoned:
                yield ticket
            position += 1
            until = until or time.monotonic() + self._seconds
            # Asked for its size first: an exception for each lone job would cost more than the rest of this.
            if self._queue.qsize() and position < self._limits.batch and time.monotonic() < until:
                try:
                    self._take(self._queue.get_nowait())
                except Empty:  # another reader was faster
                    continue

    def _take(self, ticket: _Ticket[Any] | None) -> None:
        if ticket is None:
            self.is_last = True
        else:
            self.taken.append(ticket)


class ThreadedStore(StoreParts):
    """A `Store`. Made, and closed, by `serving`."""

    def __init__(
        self,
        writer: Transactions,
        readers: Sequence[Transactions],
        *,
        clock: Callable[[], int],
        limits: StoreLimits,
        stop: trio.CancelScope,
        others: RemoteChanges | None = None,
    ) -> None:
        super().__init__(writer)
        self._clock = clock
        self._others = others
        self._limits = limits
        self._stop = stop
        self._trio = trio.lowlevel.current_trio_token()
        self._reading = readers
        # None for a store that is always there.
        self._far_readers = [reader.out_of_reach for reader in readers if reader.out_of_reach is not None]
        self._far_writer = writer.out_of_reach
        self._writes = _Lane(limits.waiting)
        self._reads = _Lane(limits.waiting)
        self._closed = False
        self._watching, self._watching_reads = trio.CancelScope(), trio.CancelScope()
        self._napping = trio.CancelScope()
        self._write_seconds = limits.write_seconds
        self.fault: BaseException | None = None
        is_file = writer.out_of_reach is None
        self.health = StoreHealth() if is_file else StoreHealth(stuck=STUCK_SERVER, slow=SLOW_SERVER)
        self._writer = _Thread("store-writer", self._serve_writes, writer, self._in_trio)
        self._readers = [
            _Thread(f"store-reader-{number}", self._serve_reads, reader, self._in_trio)
            for number, reader in enumerate(readers, 1)
        ]

    def start(self) -> None:
        for thread in (self._writer, *self._readers):
            thread.start()
        if self._others is not None:
            self._others.start(self, self._in_trio)
            trio.lowlevel.spawn_system_task(self._watch_reads, self._others, name="store-watch-reads")
        # Ended by `aclose`. Not in a nursery: `serving` would have to wrap its body in one, and with it whatever the body raises.
        trio.lowlevel.spawn_system_task(self._watch, name="store-watch")

    @trio.lowlevel.enable_ki_protection  # nothing may come between submitting and waiting
    async def write(self, job: Callable[[StoreDb], T]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise StoreClosed("the store is closed")
        health = self.health
        try:
            if self._far_writer is not None and (known := self._far_writer()) is not None:
                raise known
            ticket = self._writes.submit(job)
            await trio.lowlevel.wait_task_rescheduled(_wait_on)
            if ticket.abandoned:
                where = "disk" if self._far_writer is None else "database"
                raise StoreBroken(f"the {where} does not answer; this may or may not have been written")
            value = ticket.result()
        except StoreUnavailable as error:
            health.note_refused(error)
            raise
        health.failure, health.wrote_at = None, time.monotonic()
        return value

    @trio.lowlevel.enable_ki_protection
    async def read(self, job: Callable[[StoreDb], T]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._far_readers and (known := self._unread()) is not None:
            raise known
        ticket = self._reads.submit(job)
        await trio.lowlevel.wait_task_rescheduled(ticket.abandon)
        if ticket.abandoned:
            raise StoreUnreachable("the database does not answer")
        try:
            return ticket.result()
        except StoreDamaged as damage:
            self.health.note_damage(damage)
            raise

    def _unread(self) -> StoreError | None:
        """Return why nobody can read now, rather than have readers wait for a connection and be refused."""
        known: StoreError | None = None
        for out_of_reach in self._far_readers:
            known = out_of_reach()
            if known is None:
                break
        else:
            return known
        return None if self._others is None else self._others.doubt

    def report(self) -> StoreReport:
        return self.health.report(
            waiting=self._writes.pending,
            oldest_asked_at=self._writes.oldest_asked_at,
            confirmed_seconds_ago=None if self._others is None else self._others.confirmation.seconds_ago,
            doubt=None if self._others is None or not self._others.is_heard else self._others.doubt,
        )

    def on_trust(self, listener: OnTrust) -> None:
        if self._others is not None:
            self._others.listeners.append(listener)

    def on_letters(self, listener: Callable[[], None]) -> None:
        if self._others is not None:
            self._others.on_letters.append(listener)

    def chain_audit(self, key: bytes, heads: Sequence[Position] = ()) -> None:
        super().chain_audit(key, heads)
        for reader in self._reading:
            reader.seal = self._transactions.seal

    def hurry(self) -> None:
        """Find a dead disk out sooner: the process is about to end."""
        self._write_seconds = min(self._write_seconds, self._limits.hurried_write_seconds)
        self._napping.cancel()

    async def aclose(self) -> None:
        """Refuse new jobs, finish the accepted ones, end the threads. Bounded by `close_seconds`, also when cancelled."""
        self._closed = True
        with trio.move_on_after(self._limits.close_seconds, shield=True):
            if self._others is not None:
                await self._others.end()
            # Readers first: the writer's connection must be the last, because the last one folds the log into the file.
            for _ in self._readers:
                self._reads.queue.put(None)
            for reader in self._readers:
                await reader.join()
            self._writes.queue.put(None)
            await self._writer.join()
            self._watching.cancel()
            self._watching_reads.cancel()
            return
        # Whoever still waits is given up in time: the watch goes on.
        self.fault = self.fault or StoreBroken(
            f"the store did not finish in time; the {'disk' if self._far_writer is None else 'database server'} may be stuck"
        )

    async def _watch(self) -> None:
        """Give up the writes that a dead disk does not answer. One task for all: a deadline for each would cost more than the
        rest of its waiting."""
        with self._watching:
            while True:
                now, seconds = time.monotonic(), self._write_seconds
                oldest = self._writes.give_up(now - seconds)
                # Whatever is submitted from now on is not overdue before then.
                with trio.CancelScope() as self._napping:
                    await trio.sleep(seconds if oldest is None else oldest + seconds - now)

    async def _watch_reads(self, others: RemoteChanges) -> None:
        """Give up reads while a network is silent. A file answers, or says why not."""
        with self._watching_reads:
            while True:
                await trio.sleep(READS_LOOKED_AT_SECONDS)
                if others.confirmation.is_missing:
                    self._reads.give_up(time.monotonic() - SILENT_SECONDS)

    def _serve_writes(self, writer: Transactions) -> None:
        shortest, longest = self._limits.batch_seconds, self._limits.longest_batch_seconds
        while True:
            shared = min(TURNS_OF_WORK * writer.turn_seconds, longest)
            group = _Group(self._writes, self._limits, max(shortest, shared))
            effects: list[Effect] = []
            began = time.monotonic()
            try:
                if group:
                    effects = writer.run_batch(group, at=self._clock())
                    self.health.note_commit(time.monotonic() - began, confirmed=writer.turn_seconds)
            except BaseException as error:
                self._give_up(group, error)
            self._in_trio(self._answer_writes, group.taken, effects)
            if group.is_last:
                return
            del group, effects  # the next may be long in coming, and jobs hold what they write

    def _serve_reads(self, reader: Transactions) -> None:
        while True:
            group = _Group(self._reads, self._limits, self._limits.batch_seconds)
            try:
                for ticket in group:
                    reader.run_read(ticket)
            except BaseException as error:
                self._give_up(group, error)
            self._in_trio(self._reads.answer, group.taken)
            if group.is_last:
                return
            del group

    def _answer_writes(self, tickets: Sequence[_Ticket[Any]], effects: Sequence[Effect]) -> None:
        changes, entries = apart(effects)
        if changes:
            self.tell(changes if self._others is None else self._others.not_told(changes))
        self._tell_of_audit(entries)
        self._writes.answer(tickets)

    def tell(self, changes: Sequence[Change]) -> None:
        if (fault := self._tell_of_changes(changes)) is not None:
            self.give_in(fault)

    def _give_up(self, group: _Group, error: BaseException) -> None:
        for ticket in group.taken:
            ticket.fail(StoreBroken("the store stopped while at it; this may or may not have been done"))
        self._in_trio(self.give_in, error)

    def give_in(self, error: BaseException) -> None:
        """Stop: something of ours is broken."""
        self._closed = True
        self.fault = self.fault or error
        self._stop.cancel()

    def _in_trio(self, function: Callable[..., object], *arguments: object) -> None:
        # With the trio run over nobody is left to be told; what was accepted is still finished.
        try:
            self._trio.run_sync_soon(function, *arguments)
        except trio.RunFinishedError:
            return


class _Thread:
    """One thread and the connection that only it uses."""

    def __init__(
        self,
        name: str,
        serve: Callable[[Transactions], None],
        transactions: Transactions,
        in_trio: Callable[..., None],
    ) -> None:
        self._serve = serve
        self._transactions = transactions
        self._in_trio = in_trio
        self._ended = trio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def join(self) -> None:
        if self._thread.ident is None:  # another one could not be started
            self._transactions.close()
            return
        await self._ended.wait()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._serve(self._transactions)
        finally:
            try:
                self._transactions.close()
            finally:
                self._in_trio(self._ended.set)


@asynccontextmanager
async def serving(
    writer: Transactions,
    readers: Sequence[Transactions],
    *,
    clock: Callable[[], int],
    limits: StoreLimits = DEFAULT_LIMITS,
    others: RemoteChanges | None = None,
) -> AsyncGenerator[ThreadedStore]:
    """Serve a store; on leaving, finish what was accepted, end the threads and close the connections.

    If the store breaks meanwhile, the body is cancelled and `StoreBroken` raised.
    """
    stop = trio.CancelScope()
    store = ThreadedStore(writer, readers, clock=clock, limits=limits, stop=stop, others=others)
    with stop:
        try:
            store.start()
            yield store
        finally:
            await store.aclose()
    if store.fault is not None:
        raise StoreBroken(_why_stopped(store.fault)) from store.fault


def _why_stopped(fault: BaseException) -> str:
    return (
        str(fault)
        if isinstance(fault, StoreError)
        else f"it met with an error of ours: {type(fault).__name__}"
    )
