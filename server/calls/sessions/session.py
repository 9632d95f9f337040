"""One session of the handshake era: what runs in it, what its client was asked, and what it is told. Which there are is sessions.py's.

The same session may be at several nodes that share a database: its client's messages go to any of them. What came to another than the one
that waits for it is passed on (`OtherNodes`); what the client watches, and where it listens, each of them knows.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

import trio

from auth.values.identity_model import Millis
from server.calls.sessions.cancellable_requests import RunningRequest, cancelled_by
from server.calls.sessions.event_log import Allowance, Event, EventLog
from server.calls.sessions.outstanding import MAX_OUTSTANDING, Answers, Outstanding, Send
from server.mcp import call_questions as asking
from server.mcp.call_failures import BackendError, CannotAsk
from server.mcp.call_outlet import LogLevel
from server.mcp.call_questions import Question
from server.mcp.errors import InvalidRequest, SessionNotFound, TooManySessions, TooManySubscriptions
from server.mcp.handshake_era import ClientHello, State, heard, may_send, step
from server.mcp.loads import Load
from server.mcp.messages import Notification, RequestId, ResponseMessage
from server.mcp.versions import Revision

# `initialized` may be overtaken by the request after it; it is not far behind.
READY_SECONDS: Final = 5.0
# Requests at once. Their work goes on without their connections, so connections do not bound it.
MAX_RUNNING: Final = 64
# And in all sessions of one caller: as many as an address may have connections.
MAX_RUNNING_OF_CALLER: Final = 256
# What is done at once for a client besides its requests: no more than it could be asked.
MAX_ERRANDS: Final = MAX_OUTSTANDING
# Resources that one session may watch, and the characters of their addresses: they stay as long as the session.
MAX_WATCHED: Final = 1024
MAX_WATCHED_CHARACTERS: Final = 128 * 1024
DEFAULT_LEVEL: Final = "info"


class EventSource(Protocol):
    """A stream's events for whoever reads it (`StreamReader`)."""

    @property
    def left(self) -> bool:
        """There may be more, for who comes back."""
        ...

    @property
    def at_end(self) -> bool: ...

    async def next(self) -> Event | None: ...


class OtherNodes(Protocol):
    """The same session at other nodes. Nothing here waits."""

    def name_request(self, session: Session, count: int) -> str:
        """An id for a request of ours that no other node gives to one."""
        ...

    def is_alive(self, node: str) -> bool: ...

    def answered(self, session: Session, response: ResponseMessage) -> None:
        """To what nobody here has asked."""
        ...

    def cancelled(self, session: Session, request_id: RequestId) -> None:
        """A request that does not run here."""
        ...

    def ready(self, session: Session) -> None:
        """Its client has said that the handshake is done."""
        ...

    def say(self, session: Session, message: bytes) -> None:
        """On the stream that belongs to no request, where that is read."""
        ...

    def tell_changed(self, session: Session, kind: str, message: bytes) -> None: ...

    def watches(self, session: Session, uri: str, on: bool) -> None: ...

    def leveled(self, session: Session) -> None:
        """Its client wants other log messages than before."""
        ...

    def reads(self, session: Session, on: bool) -> None:
        """Its client reads here what belongs to no request, or does not any longer."""
        ...

    async def written(self) -> None:
        """What was said of what it watches, and where it listens, can be known at every node. The one thing that waits."""
        ...

    def read_stream(self, session: Session, event_id: str) -> AbstractAsyncContextManager[EventSource | None]:
        """What comes after an event of a stream of another node. None: no node has that."""
        ...


class Session:
    def __init__(
        self,
        session_id: str,
        caller: str,
        revision: Revision,
        *,
        can: frozenset[str],
        client: str,
        allowance: Allowance,
        siblings: Mapping[str, Session],
        resumed: bool = False,
        elsewhere: OtherNodes | None = None,
        made_at: Millis = 0,
    ) -> None:
        """`siblings`: all sessions of that caller, as they come and go. `resumed`: the handshake was some other time. `elsewhere` None:
        there are no other nodes."""
        self.id: Final = session_id
        self.caller: Final = caller
        self.revision: Final = revision
        # What the client can be asked for, and its extensions, bounded. What it declared besides is not kept: that may be as large as a body.
        self.can: Final = can
        self.client: Final = client  # for logs: nobody has checked it
        self.log_level: LogLevel = DEFAULT_LEVEL
        self.watched: set[str] = set()  # resources whose changes it wants to hear of
        self.log: Final = EventLog(allowance)
        # What belongs to no request: changes, and messages about nothing in particular.
        self.unsolicited: Final = self.log.open()
        self.closed: Final = trio.Event()
        self.last_used = trio.current_time()
        self.made_at: Final = made_at
        self.reader: str | None = None  # another node, at which its client reads what belongs to no request
        self._resumed = resumed
        self._elsewhere = elsewhere
        self._state = State.READY if resumed else State.INITIALIZING
        self._awaited: trio.Event | None = None  # somebody waits until it is ready, or has ended
        self._running: dict[RequestId, RunningRequest] = {}
        self._siblings = siblings
        self._outstanding = Outstanding(None if elsewhere is None else self._name_request)
        self._errands: dict[trio.CancelScope, None] = {}  # an empty set is three times as large
        self._streams = 0
        self._readings = 0
        self._changes: dict[str, bytes] = {}  # coalesced, until somebody reads `unsolicited`

    @property
    def ready(self) -> bool:
        return self._state is State.READY

    @property
    def busy(self) -> bool:
        return bool(self._running) or self._streams > 0

    def touch(self) -> None:
        self.last_used = trio.current_time()

    # ── what the client says ─────────────────────────────────────────────────────────────────────────────────────

    def note(self, notification: Notification) -> None:
        """Junk is ignored, as is what came too late."""
        said = heard(notification)
        self._hear(said)
        named = cancelled_by(notification)
        # What names no request that runs is ignored: it may have crossed the answer.
        if named is not None and not self.cancel(named) and self._elsewhere is not None:
            self._elsewhere.cancelled(self, named)
        if said is ClientHello.INITIALIZED and self._resumed and self._elsewhere is not None:
            self._elsewhere.ready(self)

    def answer(self, response: ResponseMessage, load: Load | None = None) -> None:
        """An answer to a question of ours, and what it weighs. Any other is ignored: it may just be late."""
        if not self._outstanding.answer(response, load) and self._elsewhere is not None:
            self._elsewhere.answered(self, response)

    def cancel(self, request_id: RequestId) -> bool:
        """Whether it ran here."""
        running = self._running.get(request_id)
        if running is not None:
            running.cancel()
        return running is not None

    def is_ready(self) -> None:
        """Its client has said so to another node."""
        self._hear(ClientHello.INITIALIZED)

    def settle(self, answer: ResponseMessage | str, request_id: str) -> None:
        """What another node was answered to a question of this one; a text says why there will be no answer."""
        self._outstanding.settle(answer, request_id)

    @contextmanager
    def running(self, request_id: RequestId) -> Generator[RunningRequest]:
        """A block that `notifications/cancelled` can end. Raises `InvalidRequest` when that id is in use, `TooManySessions` when too
        much runs, `SessionNotFound`."""
        if self.closed.is_set():
            raise SessionNotFound("the session has ended")
        if request_id in self._running:
            raise InvalidRequest("a request with this id is running already")
        if len(self._running) >= MAX_RUNNING:
            raise TooManySessions(f"{MAX_RUNNING} requests of this session are running: wait for one")
        if sum(len(one._running) for one in self._siblings.values()) >= MAX_RUNNING_OF_CALLER:
            raise TooManySessions(f"{MAX_RUNNING_OF_CALLER} requests of yours are running: wait for one")
        running = self._running[request_id] = RunningRequest()
        try:
            with running.scope:
                yield running
        finally:
            del self._running[request_id]
            self.touch()

    @contextmanager
    def errand(self) -> Generator[None]:
        """A block of work for its client that belongs to no request, and ends with the session. Where too much is done for it
        already, it ends at once."""
        with trio.CancelScope() as scope:
            if self.closed.is_set() or len(self._errands) >= MAX_ERRANDS:
                scope.cancel()
            self._errands[scope] = None
            try:
                yield
            finally:
                del self._errands[scope]

    def watch(self, uri: str) -> None:
        """Raises `TooManySubscriptions`."""
        if uri in self.watched:
            return
        if len(self.watched) >= MAX_WATCHED:
            raise TooManySubscriptions(f"a session watches at most {MAX_WATCHED} resources")
        if sum(map(len, self.watched)) + len(uri) > MAX_WATCHED_CHARACTERS:
            raise TooManySubscriptions(
                "the addresses of the resources that this session watches are too long"
            )
        self.watched.add(uri)
        if self._elsewhere is not None:
            self._elsewhere.watches(self, uri, True)

    def unwatch(self, uri: str) -> None:
        if uri not in self.watched:
            return
        self.watched.discard(uri)
        if self._elsewhere is not None:
            self._elsewhere.watches(self, uri, False)

    def set_level(self, level: LogLevel) -> None:
        self.log_level = level
        if self._elsewhere is not None:
            self._elsewhere.leveled(self)

    # ── what we say ──────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def stream_open(self) -> Generator[None]:
        """While somebody is connected, the session is in use."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1
            self.touch()

    @property
    def heard(self) -> bool:
        """Whether its client reads what belongs to no request, here or at another node."""
        return self.unsolicited.attended or self._read_elsewhere

    async def wait_heard(self) -> None:
        """Returns when it does."""
        while not self.heard:
            await self.unsolicited.wait_stirred()

    async def send(self, message: bytes) -> None:
        """On the stream that belongs to no request."""
        if not self.unsolicited.attended and self._read_elsewhere and self._elsewhere is not None:
            self._elsewhere.say(self, message)
        else:
            self.unsolicited.append(message)

    @contextmanager
    def attended_here(self) -> Generator[None]:
        """While a connection reads `unsolicited`: an open stream. What could not be told before is told now."""
        self.reader = None
        changes, self._changes = self._changes, {}
        for message in changes.values():
            self.unsolicited.append(message)
        self._readings += 1
        if self._elsewhere is not None:
            self._elsewhere.reads(self, True)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1
            self.touch()
            self._readings -= 1  # another connection may have taken its place meanwhile, here or elsewhere
            over = not self._readings and self.reader is None and not self.closed.is_set()
            if self._elsewhere is not None and over:
                self._elsewhere.reads(self, False)

    async def shared(self) -> None:
        """What it watches and where it listens is known, or can be known, at every node."""
        if self._elsewhere is not None:
            await self._elsewhere.written()

    def read_elsewhere(self, event_id: str) -> AbstractAsyncContextManager[EventSource | None]:
        """What comes after an event that is of no stream here. None: nor of any elsewhere."""
        return nullcontext() if self._elsewhere is None else self._elsewhere.read_stream(self, event_id)

    def read_at(self, node: str | None) -> None:
        """Its client listens at that node now. What it was not told yet goes there."""
        self.reader = node
        if node is None or self._elsewhere is None:
            return
        unread = self.unsolicited.unread()
        self.unsolicited.let_go()
        self.unsolicited.handed_over(self.unsolicited.last)
        changes, self._changes = self._changes, {}
        for message in unread:
            self._elsewhere.say(self, message)
        for kind, message in changes.items():
            self._elsewhere.tell_changed(self, kind, message)
        self.unsolicited.stir()

    @property
    def _read_elsewhere(self) -> bool:
        return (
            self.reader is not None and self._elsewhere is not None and self._elsewhere.is_alive(self.reader)
        )

    def changed(self, kind: str, message: bytes) -> None:
        """What is said once however often it happened. `kind` tells what. A client that is not there hears of it when it
        comes, so what waits for it is bounded by what there is to hear of."""
        if not self.ready:
            return
        if self.unsolicited.attended:
            self.unsolicited.append(message)
        elif not self._read_elsewhere:  # where it is read, it is told as well
            self._changes[kind] = message

    async def ask(
        self, send: Send, questions: Mapping[str, Question], *, meta: Mapping[str, Any] | None = None
    ) -> Answers:
        """The answers, checked. The questions go out at once, through `send`; one that was answered with nonsense is put
        once more. `meta` goes along with each. Raises `CannotAsk` and `NotAnswered`, whose texts are for the caller; when
        it ends early, cancelled or not, the client is told which answers are not needed any more."""
        if required := asking.missing(questions, self.can):
            raise CannotAsk("the client cannot be asked for this", required)
        with trio.move_on_after(READY_SECONDS):
            await self._wait_ready()
        if not self.ready and not self.closed.is_set():
            raise CannotAsk("the client has not finished its handshake")
        return await self._outstanding.ask(send, questions, meta)

    async def ask_plain(self, send: Send, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """A request that is no question to anybody (`ping`). Raises `BackendError`."""
        if not may_send(self._state, method):
            raise BackendError("the client cannot be asked for this now")
        return await self._outstanding.request(send, method, params)

    def stop_asking(self) -> None:
        """The server is about to stop, and takes no connection any more by which an answer could come."""
        self._outstanding.close("the server is stopping: ask again")

    def cut_off(self) -> None:
        """The server does not wait for its requests any longer."""
        for running in list(self._running.values()):
            running.cut_off()

    # ── its end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """What runs is cancelled, what was asked has no answer, streams end. `Sessions` does it."""
        self._hear(ClientHello.GOODBYE)
        self.closed.set()
        self._stir()
        for running in list(self._running.values()):
            running.cancel()
        for errand in self._errands:
            errand.cancel()
        self._outstanding.close("the session has ended")
        self._changes.clear()
        self.log.close()

    def _name_request(self, count: int) -> str:
        assert self._elsewhere is not None
        return self._elsewhere.name_request(self, count)

    def _hear(self, said: ClientHello) -> None:
        then = step(self._state, said)
        if isinstance(then, State):
            self._state = then
            if then is State.READY:
                self._stir()

    async def _wait_ready(self) -> None:
        """Returns as well when it has ended."""
        while not self.ready and not self.closed.is_set():
            if self._awaited is None:
                self._awaited = trio.Event()
            await self._awaited.wait()

    def _stir(self) -> None:
        if self._awaited is not None:
            self._awaited.set()
            self._awaited = None
