"""Sessions of the handshake era over HTTP. Where the upstream hands out session ids, each caller has a session of its own, so that nobody
meets what another left in one. Our own serves what is offered to everybody. One that the upstream has lost is begun anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import trio

from server.backends.base import AgentRequest, BackendError, Busy, LogLevel
from server.gateway.agreement import Agreement, initialize_params, read_initialized
from server.gateway.http_answers import TakeMessage, answer_in
from server.gateway.http_wire import HttpWire, lines_of, refusal_in, status_problem
from server.gateway.messages import (
    NotAnUpstream,
    UpstreamRefusal,
    notification_message,
    request_message,
)
from server.mcp.messages import Resource

FAREWELL_SECONDS: Final = 1.0
SESSION_ID_CHARACTERS: Final = 1024
# Callers at once. One more takes the place of whoever was not heard of for longest.
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
    call: AgentRequest | None = None  # whose it is; None: ours
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
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.own = HttpSession(None, b"")
        self._wire = wire
        self._questions = questions
        self._number = number
        self._take = take
        self._clock = clock
        self._theirs: OrderedDict[str, HttpSession] = OrderedDict()
        self._beginning: dict[str, trio.Lock] = {}
        self._renewing = trio.Lock()

    async def begin(self) -> Agreement:
        """Raises `BackendError`."""
        agreed, self.own = await self._initialize(None)
        return agreed

    async def of(self, call: AgentRequest | None) -> HttpSession:
        """Return the session in which a request of this caller is made. Raises `BackendError`."""
        if call is None or self.own.id is None:
            return self.own
        key = call.apart
        found = self._theirs.get(key)
        if found is None:
            found = await self._begin(key, call)
        else:
            self._theirs.move_to_end(key)
        found.used_at = self._clock()
        return found

    def known(self, call: AgentRequest) -> HttpSession | None:
        """Return the caller's session, if one was begun."""
        return None if self.own.id is None else self._theirs.get(call.apart)

    async def renew(self, lost: HttpSession, call: AgentRequest | None) -> bool:
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
        """Without making anybody wait for it."""
        own, self.own = self.own, HttpSession(None, b"")
        theirs = list(self._theirs.values())
        self._theirs.clear()
        with trio.move_on_after(FAREWELL_SECONDS, shield=True):
            async with trio.open_nursery() as nursery:
                for each in [own, *theirs[-LAST_FAREWELLS:]]:
                    nursery.start_soon(self._say_farewell, each)

    async def _begin(self, key: str, call: AgentRequest) -> HttpSession:
        """One for all requests of this caller that come meanwhile."""
        async with self._begun_by_one(key):
            found = self._theirs.get(key)
            if found is None:
                gone = self._places()
                _, found = await self._initialize(call)
                found.call = call.bare()
                self._theirs[key] = found
                for each in gone:
                    await self._say_farewell(each)
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

    def _places(self) -> Sequence[HttpSession]:
        """Make room for one more, and return those that had to go. Raises `Busy` where all are in use."""
        now = self._clock()
        gone: list[HttpSession] = []
        for key, each in list(self._theirs.items()):
            full = len(self._theirs) >= SESSIONS
            if len(gone) >= FAREWELLS or not (full or now - each.used_at > IDLE_SECONDS):
                break
            if not each.requests:
                gone.append(self._theirs.pop(key))
        if len(self._theirs) >= SESSIONS:
            raise Busy("as many people use it as can at once: try again in a minute")
        return gone

    async def _say_farewell(self, session: HttpSession) -> None:
        if session.id is None:
            return
        with trio.move_on_after(FAREWELL_SECONDS):
            try:
                await self._wire.delete(session.head, session.call)
            except BackendError:
                return

    async def _initialize(self, call: AgentRequest | None) -> tuple[Agreement, HttpSession]:
        number = self._number()
        message = request_message(number, "initialize", initialize_params(self._questions))
        async with self._wire.post(message, b"", call) as answer:
            if answer.status >= 300:
                refusal = await refusal_in(answer)
                if refusal is not None:
                    raise NotAnUpstream(f"refused to begin: {refusal}")
                if answer.status in (400, 404, 405, 406):
                    raise NotAnUpstream(f"has no MCP endpoint there (status {answer.status})")
                raise status_problem(answer.status)
            session_id = answer.header(b"mcp-session-id")
            try:
                agreed = read_initialized(await answer_in(answer, self._take(number)))
            except UpstreamRefusal as refusal:
                raise NotAnUpstream(f"refused to begin: {refusal}") from None
        if len(session_id) > SESSION_ID_CHARACTERS or not all("!" <= c <= "~" for c in session_id):
            raise NotAnUpstream("gave a session id that cannot be used")
        told = {"MCP-Protocol-Version": agreed.version}
        if session_id:
            told["Mcp-Session-Id"] = session_id
        session = HttpSession(session_id or None, lines_of(told))
        begun = notification_message("notifications/initialized", {})
        async with self._wire.post(begun, session.head, call) as answer:
            if answer.status >= 300:
                raise status_problem(answer.status)
            await answer.finish(FAREWELL_SECONDS)
        return agreed, session
