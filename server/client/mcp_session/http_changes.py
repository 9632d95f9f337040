"""The news that a server over HTTP tells unasked: on a subscription in the stateless era, on a GET in the handshake era. A stream that ends is
opened again, and since nobody heard what changed meanwhile, the lists are read then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio
from msgspec import Raw

from server.client.mcp_session.agreement import Agreement, modern_params
from server.client.mcp_session.http_answers import Take, answer_of, listen
from server.client.mcp_session.http_sessions import HttpSession
from server.client.mcp_session.http_wire import HttpWire, lines_of
from server.client.mcp_session.session_link import ServerNews
from server.client.mcp_session.session_messages import ServerRefusal, request_message
from server.lib.bare_nursery import bare_nursery
from server.lib.log.logger import Logger
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
        tells: ServerNews,
        *,
        take: Callable[[int], Take[Raw]],
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
        session: Callable[[], HttpSession],
        renew: Callable[[HttpSession], Awaitable[None]],
        followed: Mapping[str, None],
    ) -> None:
        """Listen until there is nothing to listen to. `session` is the one of every request now, `renew` begins another in the place of one."""

        async def hear() -> bool:
            now = session()
            if agreement.modern:
                return await self._subscribed(agreement, now.head, followed)
            lost = await listen(
                self._wire, now.head, self._take(0), in_session=now.id is not None, missed=self._missed
            )
            if lost:
                await renew(now)
            return lost

        if not agreement.modern and not _tells_anything(agreement):
            return
        pause = FIRST_PAUSE_SECONDS
        while True:
            begun = trio.current_time()
            try:
                if not await hear():
                    return
            except (BackendError, ServerRefusal) as error:
                self._not_listening(error)
            if trio.current_time() - begun > LONGEST_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            self._tells.lists()

    def _missed(self, error: Exception | None) -> None:
        if error is not None:
            self._not_listening(error)
        self._tells.lists()

    def _not_listening(self, error: Exception) -> None:
        self._log.debug("upstream.not_listening", agent=self._name, reason=short_reason(error))

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
            if not await until(anew, self._hear(message, lines, number)):
                return False
            if not anew.is_set():
                return True

    def _hear(self, message: bytes, lines: bytes, number: int) -> Callable[[], Awaitable[bool]]:
        async def hear() -> bool:
            async with self._wire.stream(message, lines, None) as answer:
                if answer.status in (404, 405):
                    return False
                await answer_of(answer, self._wire, self._take(number))
                return True

        return hear


def _tells_anything(agreement: Agreement) -> bool:
    return agreement.has("resources", "subscribe") or any(
        agreement.has(kind, "listChanged") for kind in KINDS
    )


async def until(event: trio.Event, work: Callable[[], Awaitable[bool]]) -> bool:
    """Return what `work` says; True where the event came first. Raises what `work` raises."""
    said = [True]
    async with bare_nursery() as nursery:

        async def wait() -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        nursery.start_soon(wait)
        said[0] = await work()
    return said[0]
