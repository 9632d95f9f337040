"""The news of a caller's session over HTTP: what its server says on the stream of that session, which belongs to no request. That caller hears
of it and nobody else does; a question there is put by way of the one request that runs, or refused at once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

import trio
from msgspec import Raw

from server.client.mcp_session.http_answers import listen
from server.client.mcp_session.http_sessions import HttpSession, HttpSessions, say_in
from server.client.mcp_session.http_wire import HEARD_AT_ONCE, HttpWire
from server.client.mcp_session.incoming_messages import IncomingMessages
from server.client.mcp_session.sent_requests import SentRequest
from server.client.mcp_session.session_messages import Asked, ServerRefusal, Told, log_of, read_message
from server.client.mcp_session.session_request import SessionRequest
from server.lib.bare_nursery import bare_nursery
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LaterNews

LOGS_A_SECOND: Final = 50
OPENING_SECONDS: Final = 2.0
# Requests in whose course a server may want to know something.
MAY_ASK: Final = frozenset({"tools/call", "tasks/result", "prompts/get", "resources/read"})

# Makes what hears the messages of one session. Logs are not for it.
Hearing: TypeAlias = Callable[[HttpSession], IncomingMessages]


class SessionNews:
    """The streams of callers' sessions: one that is one too many takes the place of the oldest that nobody uses now."""

    def __init__(
        self,
        wire: HttpWire,
        nursery: trio.Nursery | None,
        *,
        hearing: Hearing,
        running: Mapping[int, SentRequest],
        followed: Container[int],
        sessions: Callable[[], HttpSessions],
    ) -> None:
        """Begin without any. They are heard in `nursery`. `running`: all requests by their numbers; `followed`: those that somebody follows, who can
        be asked. `sessions` gives those that there are."""
        self._wire = wire
        self._nursery = nursery
        self._hearing = hearing
        self._running = running
        self._followed = followed
        self._sessions = sessions
        self._heard: dict[HttpSession, trio.CancelScope] = {}

    async def attend(self, session: HttpSession, call: SessionRequest, *, wanted: bool = False) -> None:
        """Begin to hear the session if that is of use to its caller, who can be asked or listens; `wanted`: there is a use. Return once nothing that is
        said there is missed, or when the server takes too long."""
        if self._nursery is None or not session.unheard:
            return
        if not (wanted or call.can or ((later := call.later()) is not None and later.listens)):
            return
        session.unheard = False
        ready = trio.Event()
        self._nursery.start_soon(self.hear, session, call.quiet(), ready)
        with trio.move_on_after(OPENING_SECONDS):
            await ready.wait()

    async def hear(self, session: HttpSession, call: SessionRequest, ready: trio.Event) -> None:
        """Take what is said in the session, until it is over or nobody hears it any more. `ready` is set when the stream is there, or will not be."""
        while len(self._heard) >= HEARD_AT_ONCE:
            idle = (each for each in self._heard if not each.requests)
            self._give_way(next(idle, next(iter(self._heard))))
        scope = self._heard[session] = trio.CancelScope()
        later, lost = call.later(), False

        def missed(_: Exception | None) -> None:
            if not self._sessions().holds(session):
                scope.cancel()

        try:
            with scope:
                async with bare_nursery() as nursery:
                    if later is not None:
                        nursery.start_soon(_until, later, scope)
                    lost = await listen(
                        self._wire,
                        session.head,
                        partial(self._take, session, self._hearing(session), later, _Pace()),
                        in_session=True,
                        missed=missed,
                        call=session.call,
                        opened=ready.set,
                    )
                    nursery.cancel_scope.cancel()
        except (BackendError, ServerRefusal):
            return  # there is no such stream, or none for this caller
        finally:
            ready.set()
            if self._heard.get(session) is scope:
                del self._heard[session]
        if lost:
            await self._sessions().renew(session, call)

    def end(self, session: HttpSession) -> None:
        """Stop hearing the session, which is over."""
        if (scope := self._heard.pop(session, None)) is not None:
            scope.cancel()

    def _give_way(self, session: HttpSession) -> None:
        self.end(session)
        session.unheard = True

    async def _take(
        self,
        session: HttpSession,
        hearing: IncomingMessages,
        later: LaterNews | None,
        pace: _Pace,
        data: bytes,
    ) -> Raw | None:
        message = read_message(data)
        if isinstance(message, Asked):
            whose = self._alone(session)
            followed = whose is not None and whose.number in self._followed
            answer = hearing.asked(message, whose, followed=followed, shared=False)
            if answer is not None:
                with suppress(BackendError):  # then it waits in vain, as for any answer
                    await say_in(self._wire, session, answer, session.call)
        elif isinstance(message, Told) and message.method == "notifications/message":
            event = log_of(message.params)
            if pace.keeps() and event is not None and later is not None:
                await later.tell(event)
        elif isinstance(message, Told):
            hearing.told(message, len(data), self._alone(session), shared=False)
        return None

    def _alone(self, session: HttpSession) -> SentRequest | None:
        """Return the one request in the session in whose course something may be asked."""
        mine = [each for each in self._running.values() if each.method in MAY_ASK and each.call is not None]
        found = [each for each in mine if each.call is not None and each.call.apart == session.apart]
        return found[0] if len(found) == 1 else None


class _Pace:
    """The count of what is passed on in a second."""

    def __init__(self) -> None:
        self._since, self._said = 0.0, 0

    def keeps(self) -> bool:
        now = trio.current_time()
        if now - self._since >= 1:
            self._since, self._said = now, 0
        self._said += 1
        return self._said <= LOGS_A_SECOND


async def _until(later: LaterNews, scope: trio.CancelScope) -> None:
    await later.over()
    scope.cancel()
