"""What each method does. A handler gets its decoded parameters and what it is lent, and returns a result of no era.

It awaits only what `call` lends it, so it runs under any event loop and any wire. Which method is whose row is in
methods.py; what a result looks like on the wire, in results.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from server.mcp.errors import BadParams
from server.mcp.messages import RequestId, Tool
from server.mcp.params import CallToolParams, ListenParams, ListParams, Params
from server.mcp.results import (
    SUBSCRIPTION_ID,
    Discovered,
    EmptyList,
    Initialized,
    Listed,
    ListenEnded,
    Nothing,
    ToolResult,
)


class Feed(Protocol):
    async def next_change(self) -> str | None:
        """The next kind of list that changed (`tools`); None when the server ends the subscription."""
        ...


class Call(Protocol):
    """One request's line to the world: who calls is settled, where the answer goes is not the handler's affair."""

    @property
    def id(self) -> RequestId: ...

    def tools(self) -> Sequence[Tool]:
        """Those this caller may know of, in an order that does not change."""
        ...

    async def call_tool(self, params: CallToolParams) -> ToolResult:
        """Raises `UnknownTool`, `InsufficientScope`, `BackendFailed`; a tool's own failure is a result."""
        ...

    def subscribe(self, kinds: frozenset[str]) -> AbstractContextManager[Feed]:
        """Registered when it returns. Raises `TooManySubscriptions`."""
        ...

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Dropped where the caller takes no stream."""
        ...


# What may be listened for, by the name it has in the filter. What is not offered is left out of the acknowledgement.
LISTENABLE: Final = {"tools": "toolsListChanged"}


async def initialize(_params: Params, _call: Call) -> Initialized:
    return Initialized()


async def ping(_params: Params, _call: Call) -> Nothing:
    return Nothing()


async def discover(_params: Params, _call: Call) -> Discovered:
    return Discovered()


async def list_tools(params: ListParams, call: Call) -> Listed:
    _refuse_cursor(params)
    return Listed(call.tools())


async def list_resources(params: ListParams, _call: Call) -> EmptyList:
    _refuse_cursor(params)
    return EmptyList("resources")


async def list_resource_templates(params: ListParams, _call: Call) -> EmptyList:
    _refuse_cursor(params)
    return EmptyList("resourceTemplates")


async def list_prompts(params: ListParams, _call: Call) -> EmptyList:
    _refuse_cursor(params)
    return EmptyList("prompts")


async def call_tool(params: CallToolParams, call: Call) -> ToolResult:
    return await call.call_tool(params)


async def listen(params: ListenParams, call: Call) -> ListenEnded:
    """Runs until the server or the client ends it. Registered before the acknowledgement goes out, so that a change
    made the moment the client has read it is not lost."""
    kinds = frozenset({"tools"}) if params.notifications.tools_list_changed else frozenset[str]()
    meta = {SUBSCRIPTION_ID: call.id}
    with call.subscribe(kinds) as feed:
        honoured = {name: True for kind, name in LISTENABLE.items() if kind in kinds}
        await call.notify(
            "notifications/subscriptions/acknowledged", {"notifications": honoured, "_meta": meta}
        )
        while (kind := await feed.next_change()) is not None:
            await call.notify(f"notifications/{kind}/list_changed", {"_meta": meta})
    return ListenEnded(call.id)


def _refuse_cursor(params: ListParams) -> None:
    # Every list is one page, so no cursor was ever handed out; the empty string is a cursor like any other.
    if params.cursor is not None:
        raise BadParams("invalid cursor: the list has one page")
