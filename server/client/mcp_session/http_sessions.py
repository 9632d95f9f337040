"""Sessions of the handshake era over HTTP. Where the upstream hands out session ids, each caller has a session of its own, so that nobody
meets what another left in one. Our own serves what is offered to everybody. One that the upstream has lost is begun anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Container, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from server.client.mcp_session.agreement import Agreement, initialize_params, read_initialized
from server.client.mcp_session.connection_places import giving_way, holder_of
from server.client.mcp_session.http_answers import TakeMessage, answer_in
from server.client.mcp_session.http_wire import HttpWire, lines_of, refusal_in, status_problem
from server.client.mcp_session.session_request import SessionRequest
from server.client.mcp_session.upstream_messages import (
    NotAnUpstream,
    UpstreamGone,
    UpstreamRefusal,
    notification_message,
    request_message,
)
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LogLevel

if TYPE_CHECKING:
    from server.mcp.messages import Resource

FAREWELL_SECONDS: Final = 1.0
SESSION_ID_CHARACTERS: Final = 1024
# Callers at once.
SESSIONS: Final = 1000
# As long as our own sessions last that nobody uses.
IDLE_SECONDS: Final = 1800.0
# Of those that are dropped, how many are ended at the upstream with one call of somebody else, and how many with the connection.
FAREWELLS: Final = 4
LAST_FAREWELLS: Final = 64


class HttpSession(msgspec.Struct):
    id: str | None  # None: the upstream has none
    head: bytes  # of every request in it
    level: LogLevel | None = None
    call: SessionRequest | None = None  # whose it is; None: ours
    holder: str = ""  # whose part of the places it has
    requests: int = 0  # under way
    used_at: float = 0.0
    begun: int = 0  # requests so far
    # What is listed in it, and how many requests had been made by then: each may have changed it.
    resources: tuple[int, Sequence[Resource]] | None = None


class HttpSessions:
    def __init__(
        self,
        wire: HttpWire,
        *,
        questions: frozenset[str],
        number: Callable[[], int],
        take: Callable[[int], TakeMessage],
        engaged: Container[str] = (),
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        """Keep the parts. `engaged`: callers that have something under way there between one request and the next."""
        self.own = HttpSession(None, b"")
        self._wire = wire
        self._questions = questions
        self._number = number
        self._take = take
        self._engaged = engaged
        self._clock = clock
        self._theirs: OrderedDict[str, HttpSession] = OrderedDict()
        self._beginning: dict[str, trio.Lock] = {}
        self._coming: list[str] = []  # holders of those that are begun now
        self._renewing = trio.Lock()
        self._over = False

    async def begin(self) -> Agreement:
        """Begin our own session. Raises `BackendError`."""
        agreed, self.own = await self._initialize(None)
        return agreed

    async def of(self, call: SessionRequest | None) -> HttpSession:
        """Return the session in which a request of this caller is made. Raises `BackendError`."""
        if call is None or self.own.id is None:
            return self.own
        if not (key := call.apart):
            return self.own
        found = self._theirs.get(key)
        if found is None:
            found = await self._begin(key, call)
        else:
            self._theirs.move_to_end(key)
        found.used_at = self._clock()
        return found

    def known(self, call: SessionRequest) -> HttpSession | None:
        """Return the caller's session, if one was begun."""
        return None if self.own.id is None else self._theirs.get(call.apart)

    async def renew(self, lost: HttpSession, call: SessionRequest | None) -> bool:
        """Begin another in its place, one for all who noticed. Return whether it was the connection's own."""
        if lost is self.own or call is None:
            async with self._renewing:
                if lost is not self.own:
                    return False
                _, self.own = await self._initialize(None)
                return True
        if self._theirs.get(key := call.apart) is lost:
            del self._theirs[key]
        return False

    async def end(self) -> None:
        """End all sessions without making anybody wait for it."""
        self._over = True
        own, self.own = self.own, HttpSession(None, b"")
        theirs = list(self._theirs.values())
        self._theirs.clear()
        await self._say_farewells([own, *theirs[-LAST_FAREWELLS:]])

    async def _begin(self, key: str, call: SessionRequest) -> HttpSession:
        """Begin one session for all requests of this caller that come meanwhile."""
        async with self._begun_by_one(key):
            found = self._theirs.get(key)
            if found is None:
                gone: list[HttpSession] = []
                try:
                    self._make_room(holder_of(call), gone)
                    with self._coming_in(holder_of(call)):
                        _, found = await self._initialize(call)
                    if self._over:
                        gone.append(found)
                        raise UpstreamGone("is being stopped")
                    self._theirs[key] = found
                finally:
                    await self._say_farewells(gone)
            return found

    @asynccontextmanager
    async def _begun_by_one(self, key: str) -> AsyncGenerator[None]:
        lock = self._beginning.setdefault(key, trio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.statistics().tasks_waiting and not lock.locked():
                self._beginning.pop(key, None)

    def _make_room(self, newcomer: str, gone: list[HttpSession]) -> None:
        """Add those that have to go for one more to `gone`. Raises `Busy` where all are in use."""
        since = self._clock() - IDLE_SECONDS
        for key, each in list(self._theirs.items()):
            if len(gone) >= FAREWELLS or each.used_at >= since:
                break
            if not self._in_use(key, each):
                gone.append(self._theirs.pop(key))
        places = [(each.holder, self._in_use(key, each)) for key, each in self._theirs.items()]
        places += [(holder, True) for holder in self._coming]
        giving = giving_way(places, newcomer, SESSIONS)
        if giving is not None:
            gone.append(self._theirs.pop(list(self._theirs)[giving]))

    @contextmanager
    def _coming_in(self, holder: str) -> Generator[None]:
        self._coming.append(holder)
        try:
            yield
        finally:
            self._coming.remove(holder)

    def _in_use(self, key: str, session: HttpSession) -> bool:
        return session.requests > 0 or key in self._engaged

    async def _say_farewells(self, sessions: Sequence[HttpSession]) -> None:
        """Take a second at most, also when whoever does it is cancelled."""
        with trio.move_on_after(FAREWELL_SECONDS, shield=True):
            async with trio.open_nursery() as nursery:
                for each in sessions:
                    nursery.start_soon(self._say_farewell, each)

    async def _say_farewell(self, session: HttpSession) -> None:
        if session.id is None:
            return
        try:
            await self._wire.delete(session.head, session.call)
        except BackendError:
            return

    async def _initialize(self, call: SessionRequest | None) -> tuple[Agreement, HttpSession]:
        """Begin a session, which is ended there if it comes to nothing here."""
        number = self._number()
        message = request_message(number, "initialize", initialize_params(self._questions))
        session = HttpSession(None, b"")
        if call is not None:
            session.call, session.holder = call.bare(), holder_of(call)
        complete = False
        try:
            agreed = await self._agree(session, number, message)
            begun = notification_message("notifications/initialized", {})
            async with self._wire.post(begun, session.head, call) as answer:
                if answer.status >= 300:
                    raise status_problem(answer.status)
                await answer.finish(FAREWELL_SECONDS)
            complete = True
        finally:
            if not complete:
                await self._say_farewells([session])
        return agreed, session

    async def _agree(self, session: HttpSession, number: int, message: bytes) -> Agreement:
        async with self._wire.post(message, b"", session.call) as answer:
            if answer.status >= 300:
                refusal = await refusal_in(answer)
                if refusal is not None:
                    raise NotAnUpstream(f"refused to begin: {refusal}")
                if answer.status in (400, 404, 405, 406):
                    raise NotAnUpstream(f"has no MCP endpoint there (status {answer.status})")
                raise status_problem(answer.status)
            session_id = answer.header(b"mcp-session-id")
            if len(session_id) > SESSION_ID_CHARACTERS or not all("!" <= c <= "~" for c in session_id):
                raise NotAnUpstream("gave a session id that cannot be used")
            told = {"Mcp-Session-Id": session_id} if session_id else {}
            session.id, session.head = session_id or None, lines_of(told)
            try:
                agreed = read_initialized(await answer_in(answer, self._take(number)))
            except UpstreamRefusal as refusal:
                raise NotAnUpstream(f"refused to begin: {refusal}") from None
        session.head = lines_of({"MCP-Protocol-Version": agreed.version, **told})
        return agreed
