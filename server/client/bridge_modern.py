"""The side of a bridge that speaks MCP's stateless era (2026-07-28) with the server: each request is one POST, with all that it needs
in its own `_meta`.

The one thing remembered between requests is which tools want arguments repeated in headers (`x-mcp-header`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Raw

from server.client.bridge_messages import (
    BridgedNotice,
    BridgedRequest,
    argument_headers,
    asking_for,
    modern_headers,
)
from server.client.bridge_relay import Patience, Relay, Revise, refusal
from server.client.carrier import Carrier, broken_off
from server.client.mcp_session.list_pages import ENTRIES, list_pages
from server.client.mcp_session.upstream_messages import (
    EMPTY,
    HEADER_MISMATCH,
    Answered,
    members,
    read_message,
)
from server.client.stdio_lines import Write
from server.lib.json_objects import mapping
from server.lib.server_sent_events import EventDecoder
from server.mcp.call_failures import BackendError

if TYPE_CHECKING:
    from server.client.bridge_paying import Purse


class ModernSide:
    def __init__(
        self, carrier: Carrier, write: Write, patience: Patience, *, purse: Purse | None = None
    ) -> None:
        self._carrier = carrier
        self._write = write
        self._patience = patience
        self._purse = purse
        # Only what such a tool's headers are made of is kept; None: a tool that wants none.
        self._schemas: dict[str, Any] = {}

    async def ask(self, asking: BridgedRequest) -> None:
        """Send a request, paid for from the purse if there is one, and return when it is answered. Raise `ClientError`s.

        Cancelling this cancels the request at the server.
        """
        purchase = None if self._purse is None else await self._purse.purchase(asking)
        if purchase is None:
            await self._ask(asking)
            return
        await self._ask(purchase.turn(), purchase.revise)
        while purchase.again:
            await self._ask(purchase.turn(), purchase.revise)

    async def _ask(self, asking: BridgedRequest, revise: Revise | None = None) -> None:
        headers = self._headers(asking)
        refused = await self._exchange(asking, headers, revise)
        if refused is None:
            return
        if _code(refused) == HEADER_MISMATCH and asking.method == "tools/call":
            await self._learn_all(asking)
            renewed = self._headers(asking)
            if renewed != headers:
                refused = await self._exchange(asking, renewed, revise)
                if refused is None:
                    return
        await Relay(asking, self._carrier, self._write).refuse(refused)

    async def tell(self, telling: BridgedNotice) -> None:
        async with self._carrier.open(
            "POST", modern_headers(telling), body=telling.line, silence_seconds=self._patience.telling_seconds
        ) as response:
            if response.status >= 300:
                raise self._carrier.problem(response)

    async def _exchange(
        self, asking: BridgedRequest, headers: Mapping[str, str], revise: Revise | None
    ) -> Mapping[str, Any] | None:
        """Send a request once and relay its answer; return None, or the refusal if that came as an HTTP error."""

        def learn(answer: Mapping[str, Any]) -> None:
            if asking.method == "tools/list":
                tools = mapping(answer.get("result")).get("tools")
                self._learn(map(mapping, cast("list[Any]", tools) if isinstance(tools, list) else []))

        relay = Relay(asking, self._carrier, self._write, learn, revise=revise)
        patience = self._patience.stream_seconds if asking.listening else self._patience.answer_seconds
        async with self._carrier.open(
            "POST", headers, body=asking.line, silence_seconds=patience
        ) as response:
            if response.status >= 300:
                return await refusal(response, self._carrier)
            if not await relay.hear(response, EventDecoder()):
                raise broken_off(self._carrier.host)
        if asking.listening:
            # A subscription that the server ends: on stdio its result is followed by this (MCP cancellation).
            (request_id,) = asking.ids
            ended = {"requestId": request_id, "reason": "the server ended the subscription"}
            notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": ended}
            await self._write(msgspec.json.encode(notification))
        return None

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
            lines: list[bytes] = []  # not the client's: it did not make this request

            async def keep(line: bytes) -> None:
                lines.append(line)

            relay = Relay(listing, self._carrier, keep)
            async with self._carrier.open(
                "POST",
                modern_headers(listing),
                body=listing.line,
                silence_seconds=self._patience.telling_seconds,
            ) as response:
                if response.status >= 300 or not await relay.hear(response, EventDecoder()):
                    raise self._carrier.problem(response)
            answer = read_message(lines[-1])
            return (answer.result or EMPTY) if isinstance(answer, Answered) else EMPTY

        with suppress(BackendError):
            async for page in list_pages(ask, "tools/list", "tools"):
                self._learn(members(entry) for entry in page)


def _code(message: Mapping[str, Any]) -> object:
    return mapping(message.get("error")).get("code")
