"""Sessions of the handshake era, on any wire: what `initialize` agreed on, what runs, what the client was asked.

A session belongs to the caller who began it; for everybody else it does not exist. It is kept in memory. One that is no longer
there, because the process is another or nobody used it for long, is taken up again when its caller names it, empty: many clients
take a 404 for the end of everything. What an id says is session_ids.py's, what may be said when mcp/legacy.py's, what is kept of
streams event_log.py's, and HTTP http/session_*.py's. Spec: basic/lifecycle, basic/transports "Session Management" (2025-11-25).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import trio

from auth.values.model import Principal
from server.backends.base import BackendError, CannotAsk, LogLevel
from server.loads import Load
from server.mcp import questions as asking
from server.mcp.errors import InvalidRequest, SessionNotFound, TooManySessions, TooManySubscriptions
from server.mcp.legacy import ClientHello, State, heard, may_send, step
from server.mcp.messages import Notification, RequestId, ResponseMessage
from server.mcp.params import InitializeParams
from server.mcp.questions import Question
from server.mcp.results import encode_notification
from server.mcp.versions import Revision
from server.sessions.ended import EndedSessions
from server.sessions.event_log import Allowance, EventLog
from server.sessions.outstanding import MAX_OUTSTANDING, Answers, Outstanding, Send
from server.sessions.running import RunningRequest, cancelled_by
from server.sessions.session_ids import SessionIds

# As many as one person's windows and gateways have open; beyond it the one unused for longest gives way.
MAX_PER_CALLER: Final = 64
# Each costs about 2 KiB, and what its log holds.
MAX_OVERALL: Final = 4096
# Over a pause in the work what a session holds is kept: its streams, and what it watches.
IDLE_SECONDS: Final = 30 * 60.0
# How late an idle session may be put away.
SWEEP_SECONDS: Final = 60.0
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
# What a client says of itself goes into logs.
SHOWN_CHARACTERS: Final = 100


def caller_of(principal: Principal, address: str) -> str:
    """Whom a session belongs to."""
    return principal.key(address)


def list_changed(kind: str) -> tuple[str, bytes]:
    """What is said of it, for `Session.changed`."""
    method = f"notifications/{kind}/list_changed"
    return method, encode_notification(method, {})


class Session:
    def __init__(
        self,
        session_id: str,
        caller: str,
        revision: Revision,
        *,
        can: frozenset[asking.Ability],
        client: str,
        allowance: Allowance,
        siblings: Mapping[str, Session],
        resumed: bool = False,
    ) -> None:
        """`siblings`: all sessions of that caller, as they come and go. `resumed`: the handshake was some other time."""
        self.id: Final = session_id
        self.caller: Final = caller
        self.revision: Final = revision
        # What the client can be asked for. What it declared besides is not kept: that may be as large as a body.
        self.can: Final = can
        self.client: Final = client  # for logs: nobody has checked it
        self.log_level: LogLevel = "info"
        self.watched: set[str] = set()  # resources whose changes it wants to hear of
        self.log: Final = EventLog(allowance)
        # What belongs to no request: changes, and messages about nothing in particular.
        self.unsolicited: Final = self.log.open()
        self.closed: Final = trio.Event()
        self.last_used = trio.current_time()
        self._state = State.READY if resumed else State.INITIALIZING
        self._ready = trio.Event()
        if resumed:
            self._ready.set()
        self._running: dict[RequestId, RunningRequest] = {}
        self._siblings = siblings
        self._outstanding = Outstanding()
        self._errands = set[trio.CancelScope]()
        self._streams = 0
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
        self._hear(heard(notification))
        named = cancelled_by(notification)
        # What names no request that runs is ignored: it may have crossed the answer.
        if named is not None and (running := self._running.get(named)):
            running.cancel()

    def answer(self, response: ResponseMessage, load: Load | None = None) -> None:
        """An answer to a question of ours, and what it weighs. Any other is ignored: it may just be late."""
        self._outstanding.answer(response, load)

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
            self._errands.add(scope)
            try:
                yield
            finally:
                self._errands.discard(scope)

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

    async def send(self, message: bytes) -> None:
        """On the stream that belongs to no request."""
        self.unsolicited.append(message)

    def changed(self, kind: str, message: bytes) -> None:
        """What is said once however often it happened. `kind` tells what. A client that is not there hears of it when it
        comes, so what waits for it is bounded by what there is to hear of."""
        if not self.ready:
            return
        if self.unsolicited.attended:
            self.unsolicited.append(message)
        else:
            self._changes[kind] = message

    def catch_up(self) -> None:
        """Somebody reads `unsolicited` again."""
        changes, self._changes = self._changes, {}
        for message in changes.values():
            self.unsolicited.append(message)

    async def ask(
        self, send: Send, questions: Mapping[str, Question], *, meta: Mapping[str, Any] | None = None
    ) -> Answers:
        """The answers, checked. The questions go out at once, through `send`; one that was answered with nonsense is put
        once more. `meta` goes along with each. Raises `CannotAsk` and `NotAnswered`, whose texts are for the caller; when
        it ends early, cancelled or not, the client is told which answers are not needed any more."""
        if required := asking.missing(questions, self.can):
            raise CannotAsk("the client cannot be asked for this", required)
        with trio.move_on_after(READY_SECONDS):
            await self._ready.wait()
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

    # ── its end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """What runs is cancelled, what was asked has no answer, streams end. `Sessions` does it."""
        self._hear(ClientHello.GOODBYE)
        self.closed.set()
        self._ready.set()
        for running in list(self._running.values()):
            running.cancel()
        for errand in self._errands:
            errand.cancel()
        self._outstanding.close("the session has ended")
        self._changes.clear()
        self.log.close()

    def _hear(self, said: ClientHello) -> None:
        then = step(self._state, said)
        if isinstance(then, State):
            self._state = then
            if then is State.READY:
                self._ready.set()


class Sessions:
    """All sessions of one server. Only `run` and `end` wait."""

    def __init__(
        self,
        ids: SessionIds | None = None,
        ended: EndedSessions | None = None,
        *,
        per_caller: int = MAX_PER_CALLER,
        overall: int = MAX_OVERALL,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Without `ids`, on a wire that shows none to its client, nobody else can read them."""
        self._ids = ids or SessionIds(
            secrets.token_bytes(32),
            "",
            clock=lambda: time.time_ns() // 1_000_000,
            entropy=secrets.token_bytes,
        )
        self._ended = EndedSessions() if ended is None else ended
        self._per_caller = per_caller
        self._overall = overall
        self._idle_seconds = idle_seconds
        self._allowance = Allowance()
        self._by_caller: dict[str, dict[str, Session]] = {}
        self._all: dict[str, Session] = {}

    def count(self) -> int:
        return len(self._all)

    def create(
        self, principal: Principal, address: str, revision: Revision, params: InitializeParams
    ) -> Session:
        """Called when `initialize` is answered with that revision. Raises `TooManySessions`."""
        caller = principal.key(address)
        can = asking.abilities(params.capabilities, revision)
        session_id = self._ids.make(caller, revision, can)
        return self._admit(session_id, caller, revision, can=can, client=_claimed(params.client_info))

    def find(self, session_id: str, principal: Principal, address: str) -> Session | None:
        """The caller's session of that id, which counts as using it. None: it is not here, or another's."""
        session = self._all.get(session_id)
        if session is None or session.caller != principal.key(address):
            return None
        session.touch()
        return session

    def resume(self, session_id: str, principal: Principal, address: str) -> Session | None:
        """The same for one that is not here any more, taken up again with nothing in it. None: it has ended, never was, or is
        another's. Raises `TooManySessions`."""
        caller = principal.key(address)
        agreed = self._ids.read(session_id, caller)
        if agreed is None or session_id in self._all or session_id in self._ended:
            return None
        return self._admit(session_id, caller, agreed.revision, can=agreed.can, client="", resumed=True)

    async def end(self, session_id: str, principal: Principal, address: str) -> bool:
        """For good, at its client's wish. False: there is none of that id, or it is another's. Raises `StoreUnavailable`: then
        it goes on."""
        agreed = self._ids.read(session_id, principal.key(address))
        if agreed is not None and session_id not in self._ended:
            await self._ended.add(session_id, agreed.expires_at)
        elif self.find(session_id, principal, address) is None:
            return False
        session = self._all.get(session_id)
        if session is not None:
            self.put_away(session)
        return True

    def put_away(self, session: Session) -> None:
        """It is not here any longer; whoever knows its id may take it up again."""
        if self._all.pop(session.id, None) is None:
            return
        own = self._by_caller[session.caller]
        del own[session.id]
        if not own:
            del self._by_caller[session.caller]
        session.close()

    def begin_draining(self) -> None:
        for session in self._all.values():
            session.stop_asking()

    def publish(self, kind: str) -> None:
        """Tell every session that one of the lists has changed: `tools`, `prompts` or `resources`."""
        method, message = list_changed(kind)
        for session in self._all.values():
            session.changed(method, message)

    def updated(self, uri: str) -> None:
        """Tell the sessions that watch it that this resource has changed."""
        method = "notifications/resources/updated"
        message = encode_notification(method, {"uri": uri})
        for session in self._all.values():
            if uri in session.watched:
                session.changed(f"{method} {uri}", message)

    async def run(self) -> None:
        """For ever: put away what nobody has used for long."""
        while True:
            await trio.sleep(SWEEP_SECONDS)
            too_old = trio.current_time() - self._idle_seconds
            for session in [one for one in self._all.values() if one.last_used <= too_old and not one.busy]:
                self.put_away(session)

    def _admit(
        self,
        session_id: str,
        caller: str,
        revision: Revision,
        *,
        can: frozenset[asking.Ability],
        client: str,
        resumed: bool = False,
    ) -> Session:
        own = self._by_caller.get(caller, {})
        if len(own) >= self._per_caller:
            self._make_room(own.values(), f"all {len(own)} sessions that you may have are in use")
        if len(self._all) >= self._overall:
            # Its own first: one caller must not live at the expense of the others for longer than it has to.
            unused = [session for session in own.values() if not session.busy]
            self._make_room(unused or self._all.values(), "all sessions of this server are in use")
        own = self._by_caller.setdefault(caller, {})
        session = Session(
            session_id,
            caller,
            revision,
            can=can,
            client=client,
            allowance=self._allowance,
            siblings=own,
            resumed=resumed,
        )
        self._all[session.id] = own[session.id] = session
        return session

    def _make_room(self, sessions: Iterable[Session], refusal: str) -> None:
        unused = min(
            (session for session in sessions if not session.busy),
            key=lambda session: session.last_used,
            default=None,
        )
        if unused is None:
            raise TooManySessions(refusal)
        self.put_away(unused)


def _claimed(info: Any) -> str:
    """What a client calls itself, fit to be printed."""
    if not isinstance(info, dict):
        return ""
    told = cast("dict[str, Any]", info)
    text = f"{told.get('name', '')}/{told.get('version', '')}"
    return "".join(character for character in text[:SHOWN_CHARACTERS] if character.isprintable())
