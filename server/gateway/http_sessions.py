"""Sessions of the handshake era over HTTP. All callers share the connection's own; who is shown to the upstream as somebody else has a
session of their own, since a server may bind one to whom it was begun by. One that the upstream has lost is begun anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from server.backends.base import AgentRequest, BackendError, LogLevel
from server.gateway.agreement import Agreement, initialize_params, read_initialized
from server.gateway.http_answers import TakeMessage, answer_in
from server.gateway.http_wire import HttpWire, lines_of, refusal_in, status_problem
from server.gateway.messages import (
    NotAnUpstream,
    UpstreamRefusal,
    notification_message,
    request_message,
)

FAREWELL_SECONDS: Final = 1.0
SESSION_ID_CHARACTERS: Final = 1024
# Further callers take the place of whoever was not heard of for longest.
SESSIONS: Final = 1000


class HttpSession(msgspec.Struct):
    id: str | None  # None: the upstream has none
    head: bytes  # of every request in it
    level: LogLevel | None = None


class HttpSessions:
    def __init__(
        self,
        wire: HttpWire,
        *,
        questions: frozenset[str],
        number: Callable[[], int],
        take: Callable[[int], TakeMessage],
    ) -> None:
        self.own = HttpSession(None, b"")
        self._wire = wire
        self._questions = questions
        self._number = number
        self._take = take
        self._theirs: OrderedDict[str, HttpSession] = OrderedDict()
        self._beginning = trio.Lock()

    async def begin(self) -> Agreement:
        """Raises `BackendError`."""
        agreed, self.own = await self._initialize(None)
        return agreed

    async def of(self, call: AgentRequest | None) -> HttpSession:
        """In which a request of this caller is made."""
        own = self.own
        if call is None or own.id is None or not await self._wire.shows_another(call):
            return own
        found = self._theirs.get(call.subject)
        if found is None:
            async with self._beginning:
                found = self._theirs.get(call.subject)
                if found is None:
                    _, found = await self._initialize(call)
                    self._keep(call.subject, found)
        if call.subject in self._theirs:
            self._theirs.move_to_end(call.subject)
        return found

    async def renew(self, lost: HttpSession, call: AgentRequest | None) -> bool:
        """Another in its place, one for all who noticed. True: it was the connection's own."""
        async with self._beginning:
            if lost is self.own:
                _, self.own = await self._initialize(None)
                return True
            if call is not None and self._theirs.get(call.subject) is lost:
                _, begun = await self._initialize(call)
                self._keep(call.subject, begun)
        return False

    async def end(self) -> None:
        """Without making anybody wait for it."""
        own, self.own = self.own, HttpSession(None, b"")
        if own.id is None:
            return
        with trio.move_on_after(FAREWELL_SECONDS, shield=True):
            try:
                await self._wire.delete(own.head)
            except BackendError:
                return

    def _keep(self, subject: str, session: HttpSession) -> None:
        self._theirs[subject] = session
        if len(self._theirs) > SESSIONS:
            self._theirs.popitem(last=False)

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
