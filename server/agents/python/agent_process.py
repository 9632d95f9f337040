"""An agent's process at work: many calls at once over one pair of pipes, from its first line to its end.

One task reads what the process says, and wakes whoever follows the call that is meant. The process is started and replaced by
python_agent.py, and ended by whatever it says that is not in the protocol. A call that nobody waits for any longer is cancelled there,
and keeps its number until the process has said its last about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import trio

from server.agents.base.backend import Origin, Replaced
from server.agents.python.agent_lines import (
    LINE_BYTES,
    PROTOCOL,
    Broken,
    BrokenEvent,
    CallFailed,
    Cancel,
    CatalogChanged,
    Do,
    DoCall,
    Finished,
    Ping,
    Pong,
    Updated,
    read_event,
    read_first,
    write,
)
from server.agents.python.interpreter import check_version
from server.agents.python.offer import AgentOffer, BadOffer, read_offer
from server.agents.python.running_call import AgentCall
from server.lib.line_outbox import LineOutbox
from server.lib.line_peer import BrokenLine, LineFraming, Peer
from server.lib.log.logger import Logger
from server.lib.rates.fair_turns import NoTurn, Turns
from server.mcp.call_failures import BackendError, Busy
from server.mcp.call_outlet import Outlet

CANCEL_SECONDS: Final = (
    1.0  # to get word of a cancellation into the pipe of a process that may not be reading
)
OVERDUE_SECONDS: Final = 10.0  # a cancelled call that has not ended by then is worth a line in the log
TURNS: Final = 10  # in which a process is waited for that is asked whether it responds
# A plain function cannot be stopped: one that runs on after its call was cancelled takes time from all others. So its process is
# put aside once nothing else runs there, or when it has had this long, or when there are as many of them.
STUCK_SECONDS: Final = 60.0
MOST_STUCK: Final = 8
LAST_WORDS_SECONDS: Final = 2.0  # from the end of what a process says to the end of the process
FILES_WATCHED: Final = 1000
TRACEBACK_CHARACTERS: Final = 8 * 1024


class WorkerAnswer(msgspec.Struct, frozen=True):
    """The hearers of what a process says that belongs to no call. Neither waits."""

    offer: Callable[[AgentOffer], None]
    updated: Callable[[str], None]


class Worker:
    def __init__(
        self, peer: Peer, heard: WorkerAnswer, *, calls_at_once: int, name: str, log: Logger
    ) -> None:
        self.over = False  # it takes no more calls
        self.ended: Final = trio.Event()  # the same, to wait for
        self.stuck = trio.Event()  # it holds functions that nothing can stop, and had better be exchanged
        self.reason = "the agent is being stopped"  # told to those whose calls its end cuts short
        self.offer = AgentOffer()
        self.files: Sequence[str] = ()
        self._peer = peer
        self._heard = heard
        self._name = name
        self._log = log
        self._reading = trio.CancelScope()
        self._outbox = LineOutbox(peer.input, self._reading.cancel)
        self._framing = LineFraming(LINE_BYTES)
        self._turns = Turns(calls_at_once)
        self._running: dict[int, AgentCall] = {}
        self._next_id = 1
        self._retired_for: float | None = None
        self._replaced = False
        self._pong = trio.Event()
        self._may_be_stuck = (
            False  # calls were cancelled there, and it has not said since that they all ended
        )
        self._changed = trio.Event()  # a call ended, or the worker is retired

    async def run(self, *, start_seconds: float, task_status: trio.TaskStatus[None]) -> None:
        """Run until the process ends, or is retired. Raises `BackendError` where it does not get ready to work."""
        problem: BackendError | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._peer.listen)
                nursery.start_soon(self._outbox.run)
                try:
                    early = await self._get_ready(start_seconds)
                except BackendError as error:
                    problem = error
                    nursery.cancel_scope.cancel()
                else:
                    task_status.started()
                    nursery.start_soon(self._watch_over, nursery.cancel_scope)
                    nursery.start_soon(self._end_once_retired, nursery.cancel_scope)
                    nursery.start_soon(self._serve, early, nursery.cancel_scope)
        finally:
            self._let_go()
            await self._peer.aclose()
        if problem is not None:
            raise problem

    async def call(
        self,
        make: Callable[..., DoCall],
        outlet: Outlet,
        *,
        sharer: str = "",
        unhurried: bool = False,
        origin: Origin | None = None,
    ) -> Finished:
        """Make a call. `make` is given its number as `id`. `origin`: in whose name it may use what else there is. `sharer`: who has a part of the
        places with it. `unhurried`: the call waits for its turn as long as it takes. Raises `BackendError`, and whatever comes out of `outlet`."""
        # What nobody waits for any more is not begun.
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self._turns.take_nowait(sharer):
            try:
                await self._turns.take(sharer, unhurried=unhurried)
            except NoTurn as error:
                raise Busy(str(error)) from error
        if self.over:
            self._turns.give_back(sharer)  # so that the next in the queue hears of it, too
            raise self._cut_short()
        number = self._next_id
        self._next_id += 1
        running = self._running[number] = AgentCall(number, self._turns, sharer)
        running.origin = origin
        sent = False
        try:
            line = write(make(id=number))
            if not self._outbox.put(line):
                await self._outbox.send(line)
            del line  # the call may last for days
            sent = True
            return await running.follow(outlet, self._send)
        except BrokenLine as error:
            raise _not_passed_on(error) from error
        finally:
            if not sent:
                self._end(running)
            elif not running.over:
                await self._give_up(running)

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def retire(self, seconds: float) -> None:
        """Take no further calls. Running ones get `seconds` to end, then the process is ended."""
        self._retired_for = seconds
        self._changed.set()

    def stay(self) -> None:
        """Keep the process, as there is no other to take its place. A stuck process says so again in a while."""
        self.stuck = trio.Event()

    # ── the process, from its first line to its end ──

    async def _get_ready(self, seconds: float) -> Sequence[bytes]:
        """Read the first line, and return those that came with it. Raises `BackendError`."""
        try:
            with trio.move_on_after(seconds) as starting:
                while data := await self._next_bytes():
                    if lines := [line for line in self._framing.feed(data) if line]:
                        self._take_first(lines[0])
                        return lines[1:]
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

    async def _serve(self, early: Sequence[bytes], everything: trio.CancelScope) -> None:
        """Read until the process says no more, or what it may not say."""
        output, framing, take = self._peer.output, self._framing, self._take
        try:
            with self._reading:
                for line in early:
                    take(line)
                while True:
                    # Even where there is more to read: who says much leaves room for others.
                    await output.news()
                    data = output.read_some()
                    if data is None:
                        continue
                    if not data:
                        break
                    for line in framing.feed(data):
                        take(line)
        except BrokenLine as error:
            self._log.error("agent.broke_protocol", agent=self._name, reason=str(error))
            self.reason = "the agent's process said something that is not in the protocol, and was ended"
        else:
            self.reason = f"the agent's process ended unexpectedly ({await self._how_it_ended()})"
        everything.cancel()

    def _take(self, line: bytes) -> None:
        """Take one line. Raises `BrokenLine`."""
        if not line:
            return
        try:
            event = read_event(line)
        except BrokenEvent as error:
            self._take_broken(error)
            return
        match event:
            case Finished() | CallFailed():
                running = self._running.get(event.id)
                if running is not None:
                    self._end(running)
                    running.put(event, len(line))
            case CatalogChanged():
                self._take_catalog(event)
            case Updated():
                self._heard.updated(event.uri)
            case Pong():
                self._pong.set()
                self._look_for_stuck(event)
            case _:
                running = self._running.get(event.id)
                # None: it has ended. Two tasks of a function need not agree who was last.
                if running is not None and not running.put(event, len(line)):
                    raise BrokenLine("a call asks for more at once than can be answered")

    def _take_catalog(self, event: CatalogChanged) -> None:
        self.files = event.files[:FILES_WATCHED]
        try:
            self.offer = read_offer(event.catalog)
        except BadOffer as error:
            self._log.warning("agent.bad_catalog", agent=self._name, reason=str(error))
        else:
            self._heard.offer(self.offer)

    def _take_broken(self, error: BrokenEvent) -> None:
        """Fail the call; if it goes on in the process, it is cancelled there."""
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

    async def _next_bytes(self) -> bytes:
        """Return what there is to read; no bytes at its end."""
        while True:
            await self._peer.output.news()
            if (data := self._peer.output.read_some()) is not None:
                return data

    async def _send(self, message: Do) -> None:
        """Send a line. Raises `BackendError` for what is too large. A process that has ended is told nothing; its calls are told."""
        try:
            line = write(message)
        except BrokenLine as error:
            raise _not_passed_on(error) from error
        await self._outbox.send(line)

    async def _watch_over(self, everything: trio.CancelScope) -> None:
        """Report functions that ignore their cancellation, and end a process that one of them keeps from all other work. A process
        that holds plain functions which run on is exchanged."""
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
            if self._may_be_stuck and not overdue:
                self._may_be_stuck = False  # unless its pong says otherwise
                self._outbox.put(write(Ping()))
            if overdue and not await self._responds():
                self.reason = "the agent's process did not respond: one of its functions blocked all others"
                everything.cancel()

    def _look_for_stuck(self, pong: Pong) -> None:
        if not pong.stuck:
            return
        self._may_be_stuck = True
        idle = not self._running and pong.stuck_seconds >= OVERDUE_SECONDS
        if (
            idle or pong.stuck_seconds >= STUCK_SECONDS or pong.stuck >= MOST_STUCK
        ) and not self.stuck.is_set():
            self._log.warning("agent.stuck", agent=self._name, functions=pong.stuck)
            self.stuck.set()

    async def _responds(self) -> bool:
        """Return whether the process answers. Turns are counted, not seconds: after a pause of this process what was said meanwhile is read
        before it is missed."""
        self._pong = trio.Event()
        async with trio.open_nursery() as asking:
            asking.start_soon(self._send, Ping())
            for _ in range(TURNS):
                with trio.move_on_after(OVERDUE_SECONDS / TURNS):
                    await self._pong.wait()
                    break
            asking.cancel_scope.cancel()
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

    def _end(self, running: AgentCall) -> None:
        if self._running.pop(running.id, None) is not None:
            running.end()
            if self._retired_for is not None:
                self._changed.set()

    async def _give_up(self, running: AgentCall) -> None:
        running.give_up()
        self._may_be_stuck = True
        self._changed.set()
        line = write(Cancel(id=running.id))
        if not self._outbox.put(line):
            with trio.move_on_after(CANCEL_SECONDS, shield=True):
                await self._outbox.send(line)

    def _let_go(self) -> None:
        self.over = True
        self.ended.set()
        self._outbox.close()
        for running in list(self._running.values()):
            self._end(running)
            running.fail(self._cut_short())

    def _cut_short(self) -> BackendError:
        """Return the error for calls that its end cuts short."""
        return Replaced(self.reason) if self._replaced else BackendError(self.reason)

    async def _change(self) -> None:
        self._changed = trio.Event()
        await self._changed.wait()


def _not_passed_on(error: BrokenLine) -> BackendError:
    return BackendError(f"this cannot be passed on to the agent: {error}")
