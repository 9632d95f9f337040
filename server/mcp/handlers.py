"""What each method does. A handler gets its decoded parameters and what it is lent, and returns a result of no era.

It awaits only what `call` lends it, so it runs under any event loop and any wire. Which method is whose row is in
methods.py; what a result looks like on the wire, in results.py; what is about tasks, in task_handlers.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeAlias

from server.mcp.messages import Prompt, RequestId, Resource, ResourceTemplate, Tool
from server.mcp.params import (
    CallToolParams,
    CompleteParams,
    GetPromptParams,
    InitializeParams,
    Level,
    LevelParams,
    ListenFilter,
    ListenParams,
    ListParams,
    Params,
    ReadResourceParams,
    UriParams,
)
from server.mcp.results import (
    SUBSCRIPTION_ID,
    Completed,
    Discovered,
    Initialized,
    InputRequired,
    Listed,
    ListenEnded,
    Nothing,
    Offers,
    PromptResult,
    ReadResult,
    Shaped,
    ToolResult,
)

Kind: TypeAlias = Literal["tools", "resources", "resourceTemplates", "prompts"]
Item: TypeAlias = Tool | Resource | ResourceTemplate | Prompt


class Feed(Protocol):
    """An open subscription. What it is told of is in `honoured`, in the words of the filter."""

    @property
    def honoured(self) -> Mapping[str, Any]: ...

    async def next_change(self) -> tuple[str, Mapping[str, Any]] | None:
        """The next notification, method and parameters; None when the server ends the subscription."""
        ...


class Call(Protocol):
    """One request's line to the world: who calls is settled, where the answer goes is not the handler's affair."""

    @property
    def id(self) -> RequestId: ...

    @property
    def offers(self) -> Offers: ...

    def page(self, kind: Kind, cursor: str | None) -> tuple[Sequence[Item], str | None]:
        """Those this caller may know of, in an order that does not change, and the cursor of the next page. Raises
        `BadCursor`."""
        ...

    async def call_tool(self, params: CallToolParams) -> ToolResult | Shaped | InputRequired:
        """Raises `UnknownTool`, `InsufficientScope`, `BackendFailed`; a tool's own failure is a result."""
        ...

    async def read_resource(self, params: ReadResourceParams) -> ReadResult | InputRequired:
        """Raises `UnknownResource`."""
        ...

    async def get_prompt(self, params: GetPromptParams) -> PromptResult | InputRequired:
        """Raises `UnknownPrompt` and, for arguments that are missing, `BadParams`."""
        ...

    async def complete(self, params: CompleteParams) -> Completed: ...

    def listen(self, wanted: ListenFilter) -> AbstractAsyncContextManager[Feed]:
        """Registered when it returns. Raises `TooManySubscriptions`."""
        ...

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Dropped where the caller takes no stream."""
        ...

    def set_log_level(self, level: Level) -> None: ...

    def watch(self, uri: str) -> None:
        """Raises `UnknownResource`."""
        ...

    def unwatch(self, uri: str) -> None: ...


async def initialize(_params: InitializeParams, call: Call) -> Initialized:
    return Initialized(call.offers)


async def ping(_params: Params, _call: Call) -> Nothing:
    return Nothing()


async def discover(_params: Params, call: Call) -> Discovered:
    return Discovered(call.offers)


async def list_tools(params: ListParams, call: Call) -> Listed:
    return Listed("tools", *call.page("tools", params.cursor))


async def list_resources(params: ListParams, call: Call) -> Listed:
    return Listed("resources", *call.page("resources", params.cursor))


async def list_resource_templates(params: ListParams, call: Call) -> Listed:
    return Listed("resourceTemplates", *call.page("resourceTemplates", params.cursor))


async def list_prompts(params: ListParams, call: Call) -> Listed:
    return Listed("prompts", *call.page("prompts", params.cursor))


async def call_tool(params: CallToolParams, call: Call) -> ToolResult | Shaped | InputRequired:
    return await call.call_tool(params)


async def read_resource(params: ReadResourceParams, call: Call) -> ReadResult | InputRequired:
    return await call.read_resource(params)


async def get_prompt(params: GetPromptParams, call: Call) -> PromptResult | InputRequired:
    return await call.get_prompt(params)


async def complete(params: CompleteParams, call: Call) -> Completed:
    return await call.complete(params)


async def set_level(params: LevelParams, call: Call) -> Nothing:
    call.set_log_level(params.level)
    return Nothing()


async def subscribe(params: UriParams, call: Call) -> Nothing:
    call.watch(params.uri)
    return Nothing()


async def unsubscribe(params: UriParams, call: Call) -> Nothing:
    call.unwatch(params.uri)
    return Nothing()


async def listen(params: ListenParams, call: Call) -> ListenEnded:
    """Runs until the server or the client ends it. Registered before the acknowledgement goes out, so that a change
    made the moment the client has read it is not lost."""
    meta = {SUBSCRIPTION_ID: call.id}
    async with call.listen(params.notifications) as feed:
        await call.notify(
            "notifications/subscriptions/acknowledged", {"notifications": feed.honoured, "_meta": meta}
        )
        while (change := await feed.next_change()) is not None:
            method, about = change
            await call.notify(method, {**about, "_meta": meta})
    return ListenEnded(call.id)
