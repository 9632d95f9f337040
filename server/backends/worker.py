"""An agent's process at work: many calls at once over one pair of pipes, from its first line to its end.

It is started and replaced by python.py, and ended by whatever it says that is not in the protocol. A call that nobody waits
for any longer is cancelled there, and keeps its number until the process has said its last about it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Protocol

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from server.backends.base import BackendError, Outlet, Replaced
from server.backends.interpreter import check_version
from server.backends.lines import (
    PROTOCOL,
    Broken,
    BrokenEvent,
    BrokenLine,
    CallEvent,
    Cancel,
    CatalogChanged,
    Do,
    DoCall,
    Failed,
    Finished,
    Framing,
    Ping,
    Pong,
    Updated,
    read_event,
    read_first,
    write,
)
from server.backends.offer import BadOffer, Offer, read_offer
from server.backends.running import Running, Turn

TURN_SECONDS: Final = 10.0  # a call waits for its turn while the process has as many as it may
CANCEL_SECONDS: Final = (
    1.0  # to get word of a cancellation into the pipe of a process that may not be reading
)
OVERDUE_SECONDS: Final = 10.0  # a cancelled call that has not ended by then is worth a line in the log
LAST_WORDS_SECONDS: Final = 2.0  # from the end of what a process says to the end of the process
OUTBOX: Final = 16  # lines; the pipe itself holds many small ones
FILES_WATCHED: Final = 1000
TRACEBACK_CHARACTERS: Final = 8 * 1024


class Peer(Protocol):
    """Who is at the other end, and how it is ended. One task uses each stream at a time."""

    @property
    def input(self) -> trio.abc.SendStream: ...

    @property
    def output(self) -> trio.abc.ReceiveStream: ...

    async def listen(self) -> None:
        """Take in what it says besides; returns when it says no more."""
        ...

    async def ended(self) -> str:
        """Waits for its end, and tells of it in a few words."""
        ...

    def last_words(self) -> str: ...

    async def aclose(self) -> None:
        """Ends it, in bounded time, whatever is cancelled."""
        ...


class Heard(msgspec.Struct, frozen=True):
    """Who is told of what a process says that belongs to no call. Neither waits."""

    offer: Callable[[Offer], None]
    updated: Callable[[str], None]


class Worker:
    def __init__(
        self, peer: Peer, heard: Heard, *, calls_at_once: int, name: str, log: FilteringBoundLogger
    ) -> None:
        self.ended: Final = trio.Event()
        self.reason = "the agent is being stopped"  # told to those whose calls its end cuts short
        self.offer = Offer()
        self.files: Sequence[str] = ()
        self._peer = peer
        self._heard = heard
        self._name = name
        self._log = log
        self._outbox, self._to_write = trio.open_memory_channel[bytes](OUTBOX)
        self._reading = trio.CancelScope()
        self._places = trio.Semaphore(calls_at_once)
        self._running: dict[int, Running] = {}
        self._next_id = 1
        self._retired_for: float | None = None
        self._replaced = False
        self._pong = trio.Event()
        self._changed = trio.Event()  # a call ended, or the worker is retired

    async def run(self, *, start_seconds: float, task_status: trio.TaskStatus[None]) -> None:
        """Until the process ends, or is retired. Raises `BackendError` where it does not get ready to work."""
        problem: BackendError | None = None
        try:
            async with trio.open_nursery() as nursery, aclosing(self._lines()) as lines:
                nursery.start_soon(self._peer.listen)
                nursery.start_soon(self._write)
                try:
                    await self._get_ready(lines, start_seconds)
                except BackendError as error:
                    problem = error
                else:
                    task_status.started()
                    nursery.start_soon(self._watch_over, nursery.cancel_scope)
                    nursery.start_soon(self._end_once_retired, nursery.cancel_scope)
                    await self._serve(lines)
                nursery.cancel_scope.cancel()
        finally:
            self._let_go()
            await self._peer.aclose()
        if problem is not None:
            raise problem

    async def call(
        self, make: Callable[[int], DoCall], outlet: Outlet, *, unhurried: bool = False
    ) -> Finished:
        """`make` is given the number of the call. `unhurried`: it waits for its turn as long as it takes. Raises
        `BackendError`, and whatever comes out of `outlet`."""
        with trio.move_on_after(math.inf if unhurried else TURN_SECONDS) as waiting:
            await self._places.acquire()
        if waiting.cancelled_caught:
            raise BackendError("the agent is busy: as many calls as it may run at once are running")
        if self.ended.is_set():
            self._places.release()  # so that the next in the queue hears of it, too
            raise self._cut_short()
        running = self._begin()
        sent = False
        try:
            await self._send(make(running.id))
            sent = True
            return await running.follow(outlet, self._send)
        finally:
            if not sent:
                self._end(running)
            elif not running.over:
                await self._give_up(running)

    def retire(self, seconds: float) -> None:
        """No further calls come. Those that run get `seconds` to end, then the process is ended."""
        self._retired_for = seconds
        self._changed.set()

    # ── the process, from its first line to its end ──

    async def _get_ready(self, lines: AsyncGenerator[bytes], seconds: float) -> None:
        """Raises `BackendError`."""
        try:
            with trio.move_on_after(seconds) as starting:
                async for line in lines:
                    return self._take_first(line)
        except BrokenLine as error:
            raise BackendError(f"the agent's process does not speak as it should: {error}") from error
        if starting.cancelled_caught:
            raise BackendError(f"the agent was not ready within {seconds:g} s{self._peer.last_words()}")
        how = await self._how_it_ended()
        raise BackendError(f"the agent's process ended before it was ready ({how}){self._peer.last_words()}")

    def _take_first(self, line: bytes) -> None:
        first = read_first(line)
        self.files = first.files[:FILES_WATCHED]
        if isinstance(first, Broken):
            if first.traceback:
                self._log.warning(
                    "agent.broken", agent=self._name, traceback=first.traceback[-TRACEBACK_CHARACTERS:]
                )
            raise BackendError(f"the agent cannot be loaded: {first.error[:2000]}")
        if first.protocol != PROTOCOL:
            raise BackendError("the agent's process is of another version of this program")
        check_version(first.python)
        try:
            self.offer = read_offer(first.catalog)
        except BadOffer as error:
            raise BackendError(f"the agent cannot be used: {error}") from error

    async def _serve(self, lines: AsyncGenerator[bytes]) -> None:
        try:
            with self._reading:
                async for line in lines:
                    self._take(line)
        except BrokenLine as error:
            self._log.error("agent.broke_protocol", agent=self._name, reason=str(error))
            self.reason = "the agent's process said something that is not in the protocol, and was ended"
        else:
            self.reason = f"the agent's process ended unexpectedly ({await self._how_it_ended()})"

    def _take(self, line: bytes) -> None:
        """Raises `BrokenLine`."""
        try:
            event = read_event(line)
        except BrokenEvent as error:
            self._take_broken(error)
            return
        match event:
            case CatalogChanged():
                self._take_catalog(event)
            case Updated():
                self._heard.updated(event.uri)
            case Pong():
                self._pong.set()
            case _:
                self._take_news(event, len(line))

    def _take_catalog(self, event: CatalogChanged) -> None:
        self.files = event.files[:FILES_WATCHED]
        try:
            self.offer = read_offer(event.catalog)
        except BadOffer as error:
            self._log.warning("agent.bad_catalog", agent=self._name, reason=str(error))
        else:
            self._heard.offer(self.offer)

    def _take_news(self, event: CallEvent, size: int) -> None:
        running = self._running.get(event.id)
        if running is None:  # of a call that ended: two tasks of a function need not agree who was last
            return
        if isinstance(event, Finished | Failed):
            self._end(running)
        if not running.put(event, size):
            raise BrokenLine("a call asks for more at once than can be answered")

    def _take_broken(self, error: BrokenEvent) -> None:
        """Fails the call; if it goes on in the process, it is cancelled there."""
        running = self._running.get(error.call)
        if running is None:
            return
        if error.last:
            self._end(running)
        if running.fail(BackendError("the agent said something of this call that cannot be understood")):
            self._log.error("agent.broken_event", agent=self._name, reason=str(error))

    async def _how_it_ended(self) -> str:
        with trio.move_on_after(LAST_WORDS_SECONDS):
            return await self._peer.ended()
        return "it no longer listens, or no longer speaks"

    async def _lines(self) -> AsyncGenerator[bytes]:
        framing = Framing()
        try:
            async for data in self._peer.output:
                for line in framing.feed(data):
                    if line:
                        yield line
        except trio.BrokenResourceError:  # as good as its end
            return

    async def _write(self) -> None:
        async with self._to_write:
            async for line in self._to_write:
                try:
                    await self._peer.input.send_all(line)
                except trio.BrokenResourceError:
                    self._reading.cancel()
                    return

    async def _send(self, message: Do) -> None:
        """Raises `BackendError` for what is too large. To a process that has ended it says nothing; its calls are told."""
        try:
            await self._outbox.send(write(message))
        except BrokenLine as error:
            raise BackendError(f"this cannot be passed on to the agent: {error}") from error
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async def _watch_over(self, everything: trio.CancelScope) -> None:
        """Reports functions that ignore their cancellation, and ends a process that one of them keeps from all other work."""
        reported: set[int] = set()
        while True:
            await trio.sleep(OVERDUE_SECONDS)
            now = trio.current_time()
            overdue = {
                running.id
                for running in self._running.values()
                if running.given_up_at is not None and now - running.given_up_at >= OVERDUE_SECONDS
            }
            if overdue - reported:
                self._log.warning(
                    "agent.ignores_cancellation", agent=self._name, calls=len(overdue - reported)
                )
            reported = overdue
            if overdue and not await self._responds():
                self.reason = "the agent's process did not respond: one of its functions blocked all others"
                everything.cancel()

    async def _responds(self) -> bool:
        self._pong = trio.Event()
        with trio.move_on_after(OVERDUE_SECONDS):
            await self._send(Ping())
            await self._pong.wait()
        return self._pong.is_set()

    async def _end_once_retired(self, everything: trio.CancelScope) -> None:
        while self._retired_for is None:
            await self._change()
        with trio.move_on_after(self._retired_for):
            while any(running.given_up_at is None for running in self._running.values()):
                await self._change()
        self.reason = "the agent was replaced by a newer version before this call had ended"
        self._replaced = True
        everything.cancel()

    # ── calls ──

    def _begin(self) -> Running:
        running = self._running[self._next_id] = Running(self._next_id, Turn(self._places))
        self._next_id += 1
        return running

    def _end(self, running: Running) -> None:
        if self._running.pop(running.id, None) is not None:
            running.over = True
            running.turn.end()
            self._changed.set()

    async def _give_up(self, running: Running) -> None:
        running.give_up()
        self._changed.set()
        with trio.move_on_after(CANCEL_SECONDS, shield=True):
            await self._send(Cancel(id=running.id))

    def _let_go(self) -> None:
        self.ended.set()
        self._outbox.close()
        for running in list(self._running.values()):
            self._end(running)
            running.fail(self._cut_short())

    def _cut_short(self) -> BackendError:
        """For calls that its end cuts short."""
        return Replaced(self.reason) if self._replaced else BackendError(self.reason)

    async def _change(self) -> None:
        self._changed = trio.Event()
        await self._changed.wait()
