"""Requests at an upstream that wait for an answer while nobody follows them: their callers' clients do not wait, and come back.

Each has a ticket, which goes with the client, sealed. It opens for the caller whose request it is, and once. Whoever does not come
back is not waited for for ever, and nobody has more than a few.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from server.backends.base import BackendError
from server.gateway.calls import UpstreamCall
from server.gateway.link import Link

# As long as a client's sealed state is good for (mcp/rounds.py).
PARKED_SECONDS: Final = 30 * 60.0
PARKED: Final = 256
PARKED_BY_ONE: Final = 16
SWEEP_SECONDS: Final = 30.0


class _Parked(msgspec.Struct):
    link: Link
    running: UpstreamCall
    until: float


class Parking:
    """`run` is for one task."""

    def __init__(self, ticket: Callable[[], str] = lambda: secrets.token_urlsafe(18)) -> None:
        self._ticket = ticket
        self._parked: dict[str, _Parked] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, link: Link, running: UpstreamCall) -> str:
        """Raises `BackendError` where there is no room."""
        mine = sum(1 for each in self._parked.values() if each.running.subject == running.subject)
        if len(self._parked) >= PARKED or mine >= PARKED_BY_ONE:
            raise BackendError("too many calls wait for an answer of their callers")
        ticket = self._ticket()
        self._parked[ticket] = _Parked(link, running, trio.current_time() + PARKED_SECONDS)
        return ticket

    def take(self, ticket: str, subject: str) -> UpstreamCall:
        """Raises `BackendError` where it is gone."""
        found = self._parked.pop(ticket, None)
        if found is None or found.running.subject != subject:
            raise BackendError("the call that this answers has ended meanwhile: make it again")
        return found.running

    async def run(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            now = trio.current_time()
            for ticket, each in list(self._parked.items()):
                if each.until <= now or each.running.outcome is not None:
                    self._parked.pop(ticket, None)
                    await each.link.give_up(each.running)
