"""The log messages that a server over HTTP tells in a caller's session between the caller's requests: on a stream of that session, for as
long as somebody hears them. Everything else on it is passed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio
from msgspec import Raw

from server.client.mcp_session.credential_wire import HEARD_AT_ONCE
from server.client.mcp_session.http_answers import listen
from server.client.mcp_session.http_sessions import HttpSession
from server.client.mcp_session.http_wire import HttpWire
from server.client.mcp_session.session_messages import ServerRefusal, Told, log_of, read_message
from server.lib.bare_nursery import bare_nursery
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import LaterNews

LOGS_A_SECOND: Final = 50


class SessionLogs:
    """The streams of callers' sessions. `hear` is for a task of its own."""

    def __init__(self, wire: HttpWire, holds: Callable[[HttpSession], bool]) -> None:
        """Begin without any. `holds` says whether a session is still one of ours."""
        self._wire = wire
        self._holds = holds
        self._heard: list[trio.CancelScope] = []

    async def hear(self, session: HttpSession, later: LaterNews) -> None:
        """Tell what is told in the session, until it is over or nobody hears it any more."""
        while len(self._heard) >= HEARD_AT_ONCE:
            self._heard.pop(0).cancel()
        scope = trio.CancelScope()
        self._heard.append(scope)
        since, said = 0.0, 0

        async def take(data: bytes) -> Raw | None:
            nonlocal since, said
            message = read_message(data)
            if not isinstance(message, Told) or message.method != "notifications/message":
                return None
            now = trio.current_time()
            if now - since >= 1:
                since, said = now, 0
            said += 1
            event = log_of(message.params)
            if event is not None and said <= LOGS_A_SECOND:
                await later.tell(event)
            return None

        def missed(_: Exception | None) -> None:
            if not self._holds(session):
                scope.cancel()

        try:
            with scope:
                async with bare_nursery() as nursery:
                    nursery.start_soon(_until, later.over, scope)
                    await listen(
                        self._wire, session.head, take, in_session=True, missed=missed, call=session.call
                    )
        except (BackendError, ServerRefusal):
            return  # there is no such stream, or none for this caller
        finally:
            if scope in self._heard:
                self._heard.remove(scope)


async def _until(over: Callable[[], Awaitable[object]], scope: trio.CancelScope) -> None:
    await over()
    scope.cancel()
