"""A request in a session over HTTP: its work is the crew's, its stream is in the session's log, and a connection looks on.

JSON when nothing is said before the answer, else an event stream. A client that leaves can have the rest by GET with the id
of the last event it got (session_stream.py); so the work goes on without it, and a stream may be let go of on purpose.
Spec: basic/transports "Sending Messages to the Server", "Resumability and Redelivery" (2025-11-25 and before).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final, TypeAlias

import trio

from server.calls.caller_outlet import KEEP_ALIVE_SECONDS, Line
from server.calls.request import Outcome
from server.calls.sessions.background_tasks import BackgroundTasks
from server.calls.sessions.event_log import Event, EventStream
from server.calls.sessions.session import EventSource, Session
from server.mcp.versions import Revision
from server.transport.http.mcp_reply import frame
from server.transport.http.mcp_request import McpRequest

# What a client whose stream was closed on purpose waits before it comes back. Its tool may have given up the connection
# because it takes long; a second is soon enough for that, and often enough to poll.
RETRY: Final = b"retry: 1000\n\n"

Job: TypeAlias = Callable[[Line], Awaitable[Outcome | None]]


class Parting(Enum):
    """How it ended between a stream and a connection that passed it on."""

    GONE = auto()  # the client has left
    MORE = auto()  # the connection ends; what comes is for who comes back
    DONE = auto()  # there will be no more


class SessionLine:
    """Implements `Line`: what a request says before its answer, and then its answer, goes to a stream of its own."""

    def __init__(self, session: Session, *, heard: bool) -> None:
        """`heard`: the client takes event streams."""
        self._session = session
        self._heard = heard
        self.stream: Final = session.log.open()
        self.resumable = False  # the client knows an id by which it can come back
        self.outcome: Outcome | None = None

    def open(self) -> None:
        """The stream is about to begin, although there is nothing to say."""
        self.resumable = self.resumable or (self._heard and self._session.revision.primes)

    def lose(self) -> None:
        """The client has left. Unless it can come back, nobody will ever read the stream."""
        self._heard = self._heard and self.resumable

    async def send(self, message: bytes) -> None:
        if not self._heard:
            # The client may listen on the stream that it opened for everything else.
            if self._session.heard:
                await self._session.send(message)
            return
        self.resumable = True
        self.stream.append(message)
        await self.stream.taken()

    async def ping(self) -> None:
        """Whoever reads the stream sends signs of life."""

    async def release(self) -> None:
        if self._heard and self._session.revision.primes:
            self.resumable = True
            self.stream.let_go()

    def given(self) -> None:
        """All of the stream was written."""
        if self.resumable and self.outcome is not None:
            self.outcome.written()

    def finish(self, outcome: Outcome | None) -> None:
        """None: it was cancelled, and nothing is answered."""
        self.outcome = outcome
        if outcome is not None and self.resumable:
            self.stream.append(outcome.body)
        self.stream.end()


async def answer_in_session(
    visit: McpRequest,
    session: Session,
    crew: BackgroundTasks,
    job: Job,
    *,
    on_left: Callable[[], None] | None = None,
) -> None:
    """Have it done, and pass on what it says for as long as the client stays. `on_left`: it did not, and cannot come back for the
    answer."""
    reply = visit.reply
    line = SessionLine(session, heard=reply.takes_events)
    reply.opening = opening(line.stream, session.revision)

    async def work() -> None:
        outcome: Outcome | None = None
        try:
            outcome = await job(line)
        finally:
            line.finish(outcome)

    crew.start(work, visit.load)
    with session.stream_open(), line.stream.read() as reader:
        parting = await follow(visit, reader, on_ping=line.open, on_done=line.given)
    if parting is Parting.GONE:
        if on_left is not None and not line.resumable:
            on_left()
        return line.lose()
    if parting is Parting.MORE or line.resumable:
        return await reply.close(farewell(parting, session.revision))
    if line.outcome is not None:
        await visit.finish(line.outcome)
        if on_left is not None and not reply.written:
            on_left()
        return None
    return await (reply.close() if reply.streaming else reply.empty(202))


def as_event(event: Event) -> bytes:
    return frame(event.message, event.id)


async def follow(
    visit: McpRequest,
    reader: EventSource,
    *,
    until_drain: bool = False,
    on_ping: Callable[[], None] = lambda: None,
    on_done: Callable[[], None] = lambda: None,
    framed: Callable[[Event], bytes] = as_event,
) -> Parting:
    """Write what is read, with signs of life, until there is no more, with `until_drain` the server is about to go, or the caller may not
    be here any longer: a token that has run out, or a login that was ended, ends what no further request would."""
    parting = Parting.MORE
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            nonlocal parting
            await visit.cycle.wait_gone()
            parting = Parting.GONE
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        # Told of it, and not waiting for it: a task for each stream would be a fifth of what one takes.
        if until_drain:
            visit.cycle.at_drain(nursery.cancel_scope.cancel)
        try:
            parting = await _pass_on(visit, reader, on_ping, framed)
            if parting is Parting.DONE:
                on_done()  # before the client can do anything about it
        except OSError:
            parting = Parting.GONE
        nursery.cancel_scope.cancel()
    return parting


async def _pass_on(
    visit: McpRequest, reader: EventSource, on_ping: Callable[[], None], framed: Callable[[Event], bytes]
) -> Parting:
    reply = visit.reply
    due_at = trio.current_time() + KEEP_ALIVE_SECONDS
    while True:
        event = None
        # Looked at here as well: where there is always more to read, nothing waits long enough to be cancelled.
        due = trio.current_time() >= due_at
        if not due:
            with trio.move_on_at(due_at) as waiting:
                event = await reader.next()
            due = waiting.cancelled_caught
        if due:
            if not await visit.still_allowed():
                return Parting.MORE
            on_ping()
            await reply.ping()
            due_at = trio.current_time() + KEEP_ALIVE_SECONDS
        elif event is None:
            return Parting.MORE if reader.left else Parting.DONE
        else:
            await reply.push(framed(event), yields=False)
            if not reader.at_end:
                await trio.lowlevel.checkpoint()


def opening(stream: EventStream, revision: Revision) -> bytes:
    """An event without data, so that its id is known before there is anything to say. Older clients choke on it."""
    return frame(b"", stream.beginning) if revision.primes else b""


def farewell(parting: Parting, revision: Revision) -> bytes:
    """What a stream ends with."""
    return RETRY if parting is Parting.MORE and revision.primes else b""
