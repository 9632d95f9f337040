"""The news that an upstream over HTTP tells unasked: on a subscription in the stateless era, on a GET in the handshake era. A stream that ends is
opened again, and since nobody heard what changed meanwhile, the lists are read then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from server.client.mcp_session.agreement import Agreement, modern_params
from server.client.mcp_session.http_answers import TakeMessage, answer_of, heard
from server.client.mcp_session.http_wire import (
    EVENTS,
    HttpWire,
    UpstreamSessionLost,
    lines_of,
    status_problem,
)
from server.client.mcp_session.upstream_link import UpstreamTells
from server.client.mcp_session.upstream_messages import MESSAGE_BYTES, UpstreamRefusal, request_message
from server.lib.log.logger import Logger
from server.lib.server_sent_events import EventDecoder
from server.lib.shortened import short_reason
from server.mcp.call_failures import BackendError

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
KINDS: Final = ("tools", "prompts", "resources")


class HttpChanges:
    """`run` is for one task; `ask_anew` for any, when other resources are to be listened for."""

    def __init__(
        self,
        wire: HttpWire,
        tells: UpstreamTells,
        *,
        take: Callable[[int], TakeMessage],
        number: Callable[[], int],
        name: str,
        log: Logger,
    ) -> None:
        self._wire = wire
        self._tells = tells
        self._take = take
        self._number = number
        self._name = name
        self._log = log
        self._anew = trio.Event()

    def ask_anew(self) -> None:
        self._anew.set()

    async def run(
        self,
        agreement: Agreement,
        head: Callable[[], bytes],
        renew: Callable[[], Awaitable[None]],
        followed: Mapping[str, None],
    ) -> None:
        """Listen until there is nothing to listen to. `head` is that of every request now, `renew` begins another session."""

        async def listen() -> bool:
            if agreement.modern:
                return await self._subscribed(agreement, head(), followed)
            return await self._on_get(head(), renew)

        if not agreement.modern and not _tells_anything(agreement):
            return
        pause = FIRST_PAUSE_SECONDS
        while True:
            begun = trio.current_time()
            try:
                if not await listen():
                    return
            except (BackendError, UpstreamRefusal, UpstreamSessionLost) as error:
                self._log.debug("upstream.not_listening", agent=self._name, reason=short_reason(error))
            if trio.current_time() - begun > LONGEST_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            self._tells.lists()

    async def _subscribed(self, agreement: Agreement, head: bytes, followed: Mapping[str, None]) -> bool:
        """Listen on a subscription; False: there is nothing to listen to."""
        lines = head + lines_of({"Mcp-Method": "subscriptions/listen"})
        while True:
            anew = self._anew = trio.Event()
            asked: dict[str, Any] = {
                f"{kind}ListChanged": True for kind in KINDS if agreement.has(kind, "listChanged")
            }
            if followed:
                asked["resourceSubscriptions"] = list(followed)
            if not asked:
                await anew.wait()
                continue
            number = self._number()
            params = modern_params(
                {"notifications": asked}, None, questions=frozenset(), tasks=False, token=None
            )
            message = request_message(number, "subscriptions/listen", params)
            if not await _until(anew, self._hear(message, lines, number)):
                return False
            if not anew.is_set():
                return True

    def _hear(self, message: bytes, lines: bytes, number: int) -> Callable[[], Awaitable[bool]]:
        async def hear() -> bool:
            async with self._wire.stream(message, lines, None) as answer:
                if answer.status in (404, 405):
                    return False
                await answer_of(answer, self._take(number))
                return True

        return hear

    async def _on_get(self, head: bytes, renew: Callable[[], Awaitable[None]]) -> bool:
        async with self._wire.stream(None, head, None) as answer:
            if answer.status == 405:
                return False
            if answer.status == 404:
                await renew()
                return True
            if answer.status >= 300 or answer.media_type != EVENTS:
                raise status_problem(answer.status)
            await heard(answer, EventDecoder(limit=MESSAGE_BYTES), self._take(0))
        return True


def _tells_anything(agreement: Agreement) -> bool:
    return agreement.has("resources", "subscribe") or any(
        agreement.has(kind, "listChanged") for kind in KINDS
    )


async def _until(event: trio.Event, work: Callable[[], Awaitable[bool]]) -> bool:
    """Return what `work` says; True where the event came first. Raises what `work` raises."""
    said = [True]
    raised = list[Exception]()
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait)
        try:
            said[0] = await work()
        except Exception as error:  # out of the nursery it would be a group
            raised.append(error)
        nursery.cancel_scope.cancel()
    if raised:
        raise raised.pop()
    return said[0]
