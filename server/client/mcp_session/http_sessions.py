"""Sessions of the handshake era over HTTP. Where the server hands out session ids, each caller has a session of its own, so that nobody
meets what another left in one. Our own serves what is offered to everybody. One that the server has lost is begun anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec
import trio

from server.client.mcp_session.connection_places import giving_way, holder_of
from server.client.mcp_session.http_answers import Sleep, Take, answer_of, first_answer
from server.client.mcp_session.http_wire import HttpWire, SessionGone, lines_of
from server.client.mcp_session.session_messages import NoMcpServer, ServerGone
from server.client.mcp_session.session_request import SessionRequest
from server.lib.http_client.fetch import UpstreamAnswer
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LogLevel

if TYPE_CHECKING:
    from server.mcp.messages import Resource

T = TypeVar("T")

FAREWELL_SECONDS: Final = 1.0
PARTING_SECONDS: Final = 1.0  # what a client's session left under way is cancelled by then
SESSION_ID_CHARACTERS: Final = 1024
# Callers at once.
SESSIONS: Final = 1000
# As long as our own sessions last that nobody uses.
IDLE_SECONDS: Final = 1800.0
# Of those that are dropped, how many are ended at the server with one call of somebody else, and how many with the connection.
FAREWELLS: Final = 4
LAST_FAREWELLS: Final = 64


class HttpSession(msgspec.Struct, eq=False):
    """One session at a server."""

    id: str | None  # None: the server has none
    head: bytes  # of every request in it
    level: LogLevel | None = None
    call: SessionRequest | None = None  # whose it is; None: ours
    holder: str = ""  # whose part of the places it has
    requests: int = 0  # under way
    used_at: float = 0.0
    begun: int = 0  # requests so far
    # What is listed in it, and how many requests had been made by then: each may have changed it.
    resources: tuple[int, Sequence[Resource]] | None = None
    apart: str = ""  # how its caller is named
    unheard: bool = (
        False  # it is a caller's, and nobody listens, or tried to, to what is said in it outside of requests
    )
    followed: dict[str, None] = msgspec.field(default_factory=dict[str, None])  # resources

    def named(self, session_id: str) -> None:
        """Take the id that the server gave. Raises `NoMcpServer` for one that cannot be used."""
        if len(session_id) > SESSION_ID_CHARACTERS or not all("!" <= c <= "~" for c in session_id):
            raise NoMcpServer("sent an unusable session id")
        self.id = session_id or None
        self.agreed("")

    def agreed(self, version: str) -> None:
        """Name the session and the revision that is spoken in it in every request from here on."""
        told = {"MCP-Protocol-Version": version, "Mcp-Session-Id": self.id or ""}
        self.head = lines_of({name: value for name, value in told.items() if value})


# Begins a session at the server, with all that is said before its first request.
Greet: TypeAlias = Callable[[HttpSession], Awaitable[T]]
Attend: TypeAlias = Callable[[HttpSession, SessionRequest], Awaitable[None]]


class HttpSessions:
    """The sessions at one server: one of the connection's own, and one of each caller who needs one."""

    def __init__(
        self,
        wire: HttpWire,
        greet: Greet[object],
        *,
        engaged: Container[str] = (),
        attend: Attend | None = None,
        over: Callable[[HttpSession, SessionRequest | None], None] = lambda session, call: None,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        """Keep the parts. `greet` begins every session but those that `begin` is given another way to begin. `engaged`: callers that have something under way there between one request and the next. `attend` begins to hear what is said in a caller's session, if that is of use; `over` is told of each that is over, and by whose request it was found lost."""
        self.own = HttpSession(None, b"")
        self._wire = wire
        self._greet = greet
        self._engaged = engaged
        self._attend = attend
        self._tell_over = over
        self._clock = clock
        self._theirs: OrderedDict[str, HttpSession] = OrderedDict()
        self._beginning: dict[str, trio.Lock] = {}
        self._coming: list[str] = []  # holders of those that are begun now
        self._renewing = trio.Lock()
        self._over = False

    async def begin(self, greet: Greet[T]) -> T:
        """Begin our own session, and end the one before. Raises `BackendError`."""
        async with self._renewing:
            before = self.own
            found, self.own = await self._initialize(None, greet)
        await self._say_farewells([before])
        return found

    async def ask(
        self,
        message: bytes,
        lines: bytes,
        call: SessionRequest | None,
        take: Take[T],
        *,
        renewed: Callable[[], None] = lambda: None,
        sleep: Sleep = trio.sleep,
    ) -> T:
        """Return the answer to a request, which is made once more where its session was lost; `renewed`: that was the connection's own."""
        for last in (False, True):
            session = await self.of(call)
            if session.unheard and call is not None and (call.can or not session.begun):
                assert self._attend is not None
                await self._attend(session, call)

            def go_on(
                place: bytes, session: HttpSession = session
            ) -> AbstractAsyncContextManager[UpstreamAnswer]:
                return self._wire.stream(None, session.head + place, call)

            read = partial(
                answer_of,
                wire=self._wire,
                take=take,
                go_on=go_on,
                in_session=session.id is not None,
                sleep=sleep,
            )
            session.requests += 1
            session.begun += 1
            try:
                return await self._wire.ask(message, session.head + lines, call, read)
            except SessionGone:
                if last:
                    raise
                if await self.renew(session, call):
                    renewed()
            finally:
                session.requests -= 1
        raise AssertionError  # the second time returns, or raises

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

    async def part(self, key: str) -> None:
        """End the session of a caller whose client has ended its own; while something of it is under way, it gives way before all others."""
        await trio.sleep(PARTING_SECONDS)
        found = self._theirs.get(key)
        if found is None:
            return
        if self._in_use(key, found):
            found.used_at = float("-inf")
            self._theirs.move_to_end(key, last=False)
            return
        del self._theirs[key]
        await self._say_farewells([found])

    def holds(self, session: HttpSession) -> bool:
        """Return whether this is still the session of a caller."""
        return any(each is session for each in self._theirs.values())

    async def renew(self, lost: HttpSession, call: SessionRequest | None) -> bool:
        """Begin another in its place, one for all who noticed. Return whether it was the connection's own."""
        if lost is self.own or call is None:
            async with self._renewing:
                if lost is not self.own:
                    return False
                _, self.own = await self._initialize(None, self._greet)
                return True
        if self._theirs.get(key := call.apart) is lost:
            del self._theirs[key]
            self._tell_over(lost, call)
        return False

    async def say(self, message: bytes, call: SessionRequest | None, *, again: bool = False) -> None:
        """Say what has no answer; `again`: once more where the session was lost. Raises `BackendError`."""
        session = await self.of(call)
        try:
            await say_in(self._wire, session, message, call)
        except SessionGone:
            if not again:
                raise
            await self.renew(session, call)
            await say_in(self._wire, await self.of(call), message, call)

    async def end(self) -> None:
        """End all sessions without making anybody wait for it."""
        self._over = True
        own, self.own = self.own, HttpSession(None, b"")
        theirs = list(self._theirs.values())
        for each in theirs:
            self._tell_over(each, None)
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
                        _, found = await self._initialize(call, self._greet)
                    if self._over:
                        gone.append(found)
                        raise ServerGone("is being stopped")
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
        self._tell_over(session, None)
        if session.id is None:
            return
        try:
            await self._wire.delete(session.head, session.call)
        except BackendError:
            return

    async def _initialize(self, call: SessionRequest | None, greet: Greet[T]) -> tuple[T, HttpSession]:
        """Begin a session, which is ended there if it comes to nothing here."""
        session = HttpSession(None, b"")
        if call is not None:
            session.call, session.holder, session.apart = call.bare(), holder_of(call), call.apart
            session.unheard = self._attend is not None
        complete = False
        try:
            found = await greet(session)
            complete = True
        finally:
            if not complete:
                await self._say_farewells([session])
        return found, session


async def shake_hands(wire: HttpWire, session: HttpSession, opening: bytes, take: Take[T]) -> T:
    """Begin this session with these bytes of an `initialize`, and return its result."""

    async def read(answer: UpstreamAnswer) -> T:
        if answer.status < 300:
            session.named(answer.header(b"mcp-session-id"))
        return await first_answer(answer, wire, take)

    return await wire.ask(opening, b"", session.call, read)


async def say_in(wire: HttpWire, session: HttpSession, message: bytes, call: SessionRequest | None) -> None:
    """Say what has no answer. Raises `BackendError`, `SessionGone` among them."""
    async with wire.post(message, session.head, call) as answer:
        if answer.status == 404 and session.id is not None:
            raise SessionGone
        if answer.status >= 300:
            raise wire.problem(answer)
        await answer.finish(FAREWELL_SECONDS)
