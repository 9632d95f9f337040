"""One JSON-RPC request over HTTP while it runs: what its handler is lent, and what comes of it.

Implements `server.mcp.handlers.Call`. Who calls and what is called is settled before; writing the answer is reply.py's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import trio
from msgspec import UNSET
from structlog.typing import FilteringBoundLogger

from auth.model import Principal, PrincipalKind
from server.calls import Asked, Calls
from server.http.sse import KEEP_ALIVE_SECONDS, Emit, Ping
from server.mcp.errors import InternalError, McpError
from server.mcp.inbound import Headers, Route
from server.mcp.messages import ProgressToken, RequestId, Tool
from server.mcp.params import CallToolParams
from server.mcp.results import (
    Server,
    ToolResult,
    encode_error,
    encode_notification,
    encode_progress,
    encode_result,
)
from server.subscriptions import Subscription, Subscriptions


class Lent(msgspec.Struct, frozen=True, kw_only=True):
    """What every request of one endpoint uses."""

    server: Server
    calls: Calls
    subscriptions: Subscriptions
    log: FilteringBoundLogger


class Outcome(msgspec.Struct, frozen=True):
    """The bytes of the answer, and the error in it, if it is one: the status is the table's to say."""

    body: bytes
    error: McpError | None = None


async def unheard(_message: bytes) -> None:
    """Where events go of a caller who takes none."""


async def unseen() -> None:
    """Where signs of life go of what does not live long enough to show any."""


class Exchange:
    """`still_allowed` asks again whether the caller may be here; only a subscription outlives the first answer to that."""

    __slots__ = (
        "_emit",
        "_lent",
        "_ping",
        "_still_allowed",
        "_subscription",
        "call_id",
        "headers",
        "principal",
        "route",
    )

    def __init__(
        self,
        route: Route,
        principal: Principal,
        lent: Lent,
        *,
        headers: Headers,
        call_id: str,
        still_allowed: Callable[[], Awaitable[bool]],
    ) -> None:
        self.route = route
        self.principal = principal
        self.headers = headers
        self.call_id = call_id
        self._lent = lent
        self._still_allowed = still_allowed
        self._emit: Emit = unheard
        self._ping: Ping = unseen
        self._subscription: Subscription | None = None

    @property
    def id(self) -> RequestId:
        return self.route.id

    async def run(self, emit: Emit = unheard, ping: Ping = unseen) -> Outcome:
        """The answer, whatever happens: errors are answers too. `emit` takes what is sent before it; without it the caller
        hears nothing but the answer. `ping` takes a subscription's signs of life. Cancelling it stops the work."""
        self._emit = emit
        self._ping = ping
        route = self.route
        try:
            result = await route.method.handler(route.params, self)
            return Outcome(encode_result(route.id, result, route.revision, self._lent.server))
        except McpError as error:
            return Outcome(encode_error(route.id, error), error)
        except Exception:
            self._lent.log.exception("mcp.crashed", method=route.method.name, request=self.call_id)
            error = InternalError(self.call_id)
            return Outcome(encode_error(route.id, error), error)

    def tools(self) -> Sequence[Tool]:
        return self._lent.calls.tools(self.principal)

    async def call_tool(self, params: CallToolParams) -> ToolResult:
        token = params.meta.progress_token
        return await self._lent.calls.call(
            Asked(
                self.principal,
                params.name,
                params.arguments or {},
                self.call_id,
                self.headers if self.route.revision.modern else None,
                None if token is UNSET or self._emit is unheard else partial(self._report, token),
            )
        )

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._emit(encode_notification(method, params))

    @contextmanager
    def subscribe(self, kinds: frozenset[str]) -> Generator[_Feed]:
        # Callers without a login are all one subject, so a cap for each would be a cap for all of them.
        known = self.principal.kind not in (PrincipalKind.ANONYMOUS, PrincipalKind.PAYER)
        caller = f"{self.principal.kind.value}:{self.principal.subject}" if known else None
        with self._lent.subscriptions.open(caller, kinds) as subscription:
            self._subscription = subscription
            yield _Feed(subscription, self._still_allowed, self._ping)

    def end(self) -> None:
        """The server is going away: a subscription ends, with its result. Calls run to theirs."""
        if self._subscription is not None:
            self._subscription.end()

    async def _report(
        self, token: ProgressToken, progress: float, total: float | None, message: str | None
    ) -> None:
        revision = self.route.revision
        await self._emit(encode_progress(token, revision, progress=progress, total=total, message=message))


class _Feed:
    """A subscription with its signs of life, at each of which it is asked whether its caller may still be here: a token
    that has run out, or a login that was ended, ends it, since no further request would."""

    __slots__ = ("_due_at", "_ping", "_still_allowed", "_subscription")

    def __init__(
        self, subscription: Subscription, still_allowed: Callable[[], Awaitable[bool]], ping: Ping
    ) -> None:
        self._subscription = subscription
        self._still_allowed = still_allowed
        self._ping = ping
        self._due_at = trio.current_time() + KEEP_ALIVE_SECONDS

    async def next_change(self) -> str | None:
        while True:
            with trio.move_on_at(self._due_at):
                return await self._subscription.next_change()
            if not await self._still_allowed():
                return None
            await self._ping()
            self._due_at = trio.current_time() + KEEP_ALIVE_SECONDS
