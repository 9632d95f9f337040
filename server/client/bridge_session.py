"""The side of a bridge that speaks MCP's handshake era (2024-11-05 to 2025-11-25, "Streamable HTTP") with the server, in one session.

A session that was lost is begun again with the parameters of the client's own `initialize`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import trio

from server.client.bridge_messages import (
    BridgedNotice,
    BridgedRequest,
    asking_for,
    decode,
    is_header_safe,
    one_line,
)
from server.client.bridge_relay import Relay, Revise
from server.client.client_errors import NotLoggedIn, ScopeNeeded
from server.client.mcp_session.http_answers import LONGEST_WAIT_SECONDS, Sleep, listen
from server.client.mcp_session.http_changes import until
from server.client.mcp_session.http_sessions import HttpSession, HttpSessions, say_in, shake_hands
from server.client.mcp_session.http_wire import HttpWire, SessionGone
from server.client.mcp_session.session_messages import ServerRefusal
from server.client.mcp_session.streamable_http import INITIALIZED
from server.client.stdio_lines import Write
from server.lib.json_objects import mapping
from server.mcp.call_failures import BackendError

# Notifications that mean something in the session alone in which they were to be said, as answers do.
NOT_REPEATED = frozenset({"", "notifications/initialized", "notifications/cancelled"})


class _NotBegun(Exception):
    """The signal that an `initialize` was refused, so that no session came of it."""


class SessionSide:
    """The side of a bridge that keeps a session with a server of the handshake era.

    `run` must be running: it keeps the GET stream. `say` is called with what no MCP message can say.
    """

    def __init__(
        self, wire: HttpWire, write: Write, *, say: Callable[[str], None], sleep: Sleep = trio.sleep
    ) -> None:
        self._wire = wire
        self._write = write
        self._say = say
        self._sleep = sleep
        self._sessions = HttpSessions(wire, self._begin_again)
        self._own_ids = (f"ostiary-connect-{number}" for number in itertools.count(1))
        self._opening: BridgedRequest | None = None
        self._initialized = False
        self._ready = trio.Event()  # a session wants its GET stream

    @property
    def begun(self) -> bool:
        return self._opening is not None

    async def ask(self, asking: BridgedRequest, revise: Revise | None = None) -> None:
        """Send a request or a batch, and return when all is answered. Raise `BackendError`s."""
        if asking.method == "initialize":
            await self._begin(asking)
            return
        relay = Relay(asking, self._write, revise=revise)
        try:
            await self._sessions.ask(asking.line, b"", None, relay.take, sleep=self._sleep)
        except ServerRefusal as refusal:
            await relay.refused(refusal)

    async def tell(self, telling: BridgedNotice) -> None:
        again = telling.method not in NOT_REPEATED
        try:
            await self._sessions.say(telling.line, None, again=again)
        except SessionGone:
            if again:
                raise
        if telling.method == "notifications/initialized" and self.begun and not self._initialized:
            self._initialized = True
            self._ready.set()

    async def run(self) -> None:
        """Keep the GET stream of the current session, whichever that is, until cancelled."""
        while True:
            await self._ready.wait()
            ready = self._ready = trio.Event()
            session = self._sessions.own
            hear = partial(
                listen,
                self._wire,
                session.head,
                self._relay_unasked,
                in_session=session.id is not None,
                missed=lambda _: None,
                sleep=self._sleep,
            )
            try:
                lost = await until(ready, hear)
            except (NotLoggedIn, ScopeNeeded):
                continue  # the next message says so where the client sees it
            except BackendError:  # a message that is too large, for one: what comes after it is to be heard
                await self._sleep(LONGEST_WAIT_SECONDS)
                self._ready.set()
                continue
            with suppress(BackendError):  # the next message tries again, and says so where the client sees it
                if lost and not ready.is_set():
                    await self._sessions.renew(session, None)

    async def end(self) -> None:
        """End the session at the server. This takes a bounded time, and the server's errors are ignored."""
        await self._sessions.end()

    async def _begin(self, opening: BridgedRequest) -> None:
        """Perform the client's `initialize`. If there is a session already, the new one replaces it."""
        try:
            await self._sessions.begin(partial(self._shake_hands, opening, self._write))
        except _NotBegun:
            return
        self._opening, self._initialized = opening, False

    async def _begin_again(self, session: HttpSession) -> None:
        """Begin this session as the client began the one that is lost."""
        assert self._opening is not None  # only a session can be lost
        request_id, params = next(self._own_ids), self._opening.params
        body = {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params}
        opening = asking_for(msgspec.json.encode(body), (request_id,), "initialize", params, modern=False)
        try:
            await self._shake_hands(opening, _swallow, session)
        except _NotBegun:
            raise SessionGone("forgot this session and begins no new one") from None
        if self._initialized:
            await say_in(self._wire, session, INITIALIZED, None)
            self._ready.set()
        self._say(
            "the server forgot this session; a new one was begun, without what was subscribed to before"
        )

    async def _shake_hands(self, opening: BridgedRequest, write: Write, session: HttpSession) -> None:
        """Send an `initialize`, give its answer to `write`, and note in `session` what was agreed on."""
        answers: list[Mapping[str, Any]] = []
        relay = Relay(opening, write, answers.append)
        try:
            await shake_hands(self._wire, session, opening.line, relay.take)
        except ServerRefusal as refusal:
            await relay.refused(refusal)
        result = mapping(answers[0].get("result") if answers else None)
        if not result:
            raise _NotBegun
        version = result.get("protocolVersion")
        session.agreed(version if is_header_safe(version) else "")

    async def _relay_unasked(self, data: bytes) -> None:
        if isinstance(decode(data), dict | list):
            await self._write(one_line(data))


async def _swallow(line: bytes) -> None:
    """Drop an answer that the client must not see: it did not make this request."""
