"""The side of a bridge that speaks MCP's stateless era (2026-07-28) with the server: each request is one POST, with all that it needs
in its own `_meta`.

The one thing remembered between requests is which tools want arguments repeated in headers (`x-mcp-header`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import Raw

from server.client.bridge_messages import (
    BridgedNotice,
    BridgedRequest,
    argument_headers,
    asking_for,
    modern_headers,
)
from server.client.bridge_relay import Relay, Revise
from server.client.mcp_session.http_answers import answer_of
from server.client.mcp_session.http_sessions import HttpSession, say_in
from server.client.mcp_session.http_wire import HttpWire, lines_of
from server.client.mcp_session.list_pages import ENTRIES, list_pages
from server.client.mcp_session.session_messages import (
    HEADER_MISMATCH,
    Answered,
    ServerRefusal,
    members,
    outcome,
    read_message,
)
from server.client.stdio_lines import Write
from server.lib.json_objects import mapping
from server.mcp.call_failures import BackendError


class ModernSide:
    """The side of a bridge that keeps no session."""

    def __init__(self, wire: HttpWire, write: Write) -> None:
        self._wire = wire
        self._write = write
        # Only what such a tool's headers are made of is kept; None: a tool that wants none.
        self._schemas: dict[str, Any] = {}

    async def ask(self, asking: BridgedRequest, revise: Revise | None = None) -> None:
        """Send a request, and return when it is answered. Raise `BackendError`s. Cancelling this cancels the request at the server."""
        headers = self._headers(asking)
        try:
            await self._exchange(asking, headers, revise)
        except ServerRefusal as refusal:
            if refusal.code == HEADER_MISMATCH and asking.method == "tools/call":
                await self._learn_all(asking)
                renewed = self._headers(asking)
                if renewed != headers:
                    try:
                        await self._exchange(asking, renewed, revise)
                        return
                    except ServerRefusal as another:
                        refusal = another
            await Relay(asking, self._write).refused(refusal)

    async def tell(self, telling: BridgedNotice) -> None:
        alone = HttpSession(None, lines_of(modern_headers(telling)))
        await say_in(self._wire, alone, telling.line, None)

    async def _exchange(
        self, asking: BridgedRequest, headers: Mapping[str, str], revise: Revise | None
    ) -> None:
        """Send a request once and relay its answer. Raise `ServerRefusal` for a refusal that came with a bad status."""

        def learn(answer: Mapping[str, Any]) -> None:
            if asking.method == "tools/list":
                tools = mapping(answer.get("result")).get("tools")
                self._learn(map(mapping, cast("list[Any]", tools) if isinstance(tools, list) else []))

        read = partial(answer_of, wire=self._wire, take=Relay(asking, self._write, learn, revise=revise).take)
        lines = lines_of(headers)
        if not asking.listening:
            await self._wire.ask(asking.line, lines, None, read)
            return
        async with self._wire.stream(asking.line, lines, None) as answer:
            await read(answer)
        # A subscription that the server ends: on stdio its result is followed by this (MCP cancellation).
        (request_id,) = asking.ids
        ended = {"requestId": request_id, "reason": "the server ended the subscription"}
        notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": ended}
        await self._write(msgspec.json.encode(notification))

    # ---- arguments in headers ----------------------------------------------------------------------------------------

    def _headers(self, asking: BridgedRequest) -> dict[str, str]:
        headers = modern_headers(asking)
        name = asking.params.get("name")
        if asking.method == "tools/call" and isinstance(name, str):
            headers |= argument_headers(asking, self._schemas.get(name))
        return headers

    def _learn(self, tools: Iterable[Mapping[str, Any]]) -> None:
        for tool in tools:
            name, schema = tool.get("name"), tool.get("inputSchema")
            if isinstance(name, str) and (name in self._schemas or len(self._schemas) < ENTRIES):
                self._schemas[name] = schema if b'"x-mcp-header"' in msgspec.json.encode(schema) else None

    async def _learn_all(self, asking: BridgedRequest) -> None:
        """Fetch and remember the schemas of all tools, by `tools/list` with the `_meta` of the client's request.

        If the list cannot be had, simply return: the refusal that led here says enough.
        """
        meta = {
            name: value
            for name, value in mapping(asking.params.get("_meta")).items()
            if name != "progressToken"  # it is the call's
        }
        numbers = itertools.count()

        async def ask(page: Mapping[str, Any]) -> Raw:
            own_id = f"ostiary-connect-{next(numbers)}"
            params = {"_meta": meta, **page}
            body = {"jsonrpc": "2.0", "id": own_id, "method": "tools/list", "params": params}
            listing = asking_for(msgspec.json.encode(body), (own_id,), "tools/list", params, modern=True)
            lines = lines_of(modern_headers(listing))
            async with self._wire.post(listing.line, lines, None) as answer:
                return await answer_of(answer, self._wire, _result)

        with suppress(BackendError, ServerRefusal):
            async for page in list_pages(ask, "tools/list", "tools"):
                self._learn(members(entry) for entry in page)


async def _result(data: bytes) -> Raw | None:
    """Return the result of a request of our own, of which the client sees nothing."""
    message = read_message(data)
    found = outcome(message) if isinstance(message, Answered) else None
    if isinstance(found, ServerRefusal):
        raise found
    return found
