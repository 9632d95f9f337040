"""Requests at an upstream that wait for an answer while nobody follows them: their callers' clients do not wait, and come back.

Each has a ticket, which goes with the client, sealed. The ticket opens for the caller whose request it is, and once. A caller who does not come
back is not waited for for ever, and nobody has more than a few.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from server.agents.mcp.suspension_ticket import GONE
from server.client.mcp_session.sent_requests import SentRequest
from server.client.mcp_session.session_link import Link
from server.mcp.call_failures import BackendError

if TYPE_CHECKING:
    from server.agents.mcp.remote_suspended import RemoteSuspended

# As long as a client's sealed state is good for (mcp/stateless_rounds.py).
PARKED_SECONDS: Final = 30 * 60.0
MOST_PARKED: Final = 256
PARKED_BY_ONE: Final = 16
SWEEP_SECONDS: Final = 30.0


class _Suspended(msgspec.Struct):
    link: Link
    running: SentRequest
    until: float


class SuspendedRequests:
    """`run` is for one task."""

    def __init__(
        self,
        ticket: Callable[[], str] = lambda: secrets.token_urlsafe(18),
        *,
        elsewhere: RemoteSuspended | None = None,
    ) -> None:
        """Keep the parts. `elsewhere`: calls wait at other nodes as well, and callers who come there come back to those that wait here."""
        self._ticket = ticket
        self._elsewhere = elsewhere
        self._parked: dict[str, _Suspended] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, link: Link, running: SentRequest) -> str:
        """Keep a request, and return its ticket. Raises `BackendError` where there is no room."""
        mine = sum(1 for each in self._parked.values() if each.running.subject == running.subject)
        if len(self._parked) >= MOST_PARKED or mine >= PARKED_BY_ONE:
            raise BackendError("too many calls wait for an answer of their callers")
        ticket = self._ticket()
        if self._elsewhere is not None:
            ticket = self._elsewhere.name(ticket)
        self.put_back(ticket, link, running)
        return ticket

    def put_back(self, ticket: str, link: Link, running: SentRequest) -> None:
        self._parked[ticket] = _Suspended(link, running, trio.current_time() + PARKED_SECONDS)
        if self._elsewhere is not None:
            self._elsewhere.keep(ticket, self)

    def at_another_node(self, ticket: str) -> RemoteSuspended | None:
        """Return the one that goes on with the call there, if that is where it waits."""
        elsewhere = self._elsewhere
        return None if ticket in self._parked or elsewhere is None or not elsewhere.has(ticket) else elsewhere

    def take_up(self, ticket: str, subject: str) -> tuple[Link, SentRequest]:
        """Take a request that waits, with the connection that it runs on. Raises `BackendError` where it is gone."""
        found = self._parked.get(ticket)
        if found is None or found.running.subject != subject:
            raise BackendError(GONE)
        self._pop(ticket)
        return found.link, found.running

    def _pop(self, ticket: str) -> None:
        self._parked.pop(ticket, None)
        if self._elsewhere is not None:
            self._elsewhere.drop(ticket)

    async def run(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            now = trio.current_time()
            for ticket, each in list(self._parked.items()):
                if each.until <= now or each.running.outcome is not None:
                    self._pop(ticket)
                    await each.link.give_up(each.running)
