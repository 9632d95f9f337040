"""From what a handler returns to the bytes of its era: which fields a revision has, and what it wants added.

Handlers return the structs below and know no era. Spec: basic/index "Responses" (2026-07-28), and the tables of what
each revision added. Legacy results carry none of the modern fields: clients compare some of them to `{}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from server.mcp.errors import WIRE, McpError
from server.mcp.messages import (
    AudioContent,
    Content,
    Implementation,
    ProgressToken,
    RequestId,
    ResourceLink,
    TextContent,
    Tool,
)
from server.mcp.versions import MODERN_VERSIONS, Revision

SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

# How long a client may keep a list without asking again. A change notification overrides it for those who listen; this
# bounds how stale the others get.
LIST_TTL_MS: Final = 60_000
# What is offered may depend on who asks, so nothing is shared between users.
CACHE_SCOPE: Final = "private"


class Server:
    """Who we are, encoded once."""

    __slots__ = ("info", "instructions", "meta")

    def __init__(self, info: Implementation, *, instructions: str | None = None) -> None:
        self.info: Final = info
        self.instructions: Final = instructions
        self.meta: Final = Raw(_encode({SERVER_INFO: info}))


class Nothing(msgspec.Struct, frozen=True):
    """Done, and there is nothing to say (`ping`)."""


class Initialized(msgspec.Struct, frozen=True):
    """The handshake's answer; the revision it is shaped for is the negotiated one."""


class Discovered(msgspec.Struct, frozen=True):
    pass


class Listed(msgspec.Struct, frozen=True):
    tools: Sequence[Tool]


class EmptyList(msgspec.Struct, frozen=True):
    """The answer to a client that lists what was never offered to it."""

    key: str


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    content: Sequence[Content]
    structured: Any = UNSET
    is_error: bool = False
    meta: Mapping[str, Any] | None = None


class ListenEnded(msgspec.Struct, frozen=True):
    subscription_id: RequestId


Result: TypeAlias = Nothing | Initialized | Discovered | Listed | EmptyList | ToolResult | ListenEnded


class _Response(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    result: Any


class _Error(msgspec.Struct, omit_defaults=True):
    code: int
    message: str
    data: Mapping[str, Any] | None = None


class _ErrorResponse(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    id: RequestId | UnsetType
    error: _Error


class _Notification(msgspec.Struct, tag_field="jsonrpc", tag="2.0"):
    method: str
    params: Any


class _ToolResult(msgspec.Struct, rename="camel"):
    content: Sequence[Content]
    is_error: bool
    structured_content: Any = UNSET
    result_type: str | UnsetType = UNSET
    meta: Raw | Mapping[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class _Progress(msgspec.Struct, omit_defaults=True, rename="camel"):
    progress_token: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None


_encode: Final = msgspec.json.Encoder().encode


def encode_result(request_id: RequestId, result: Result, revision: Revision, server: Server) -> bytes:
    """Raises what msgspec raises when a back-end put something into its answer that JSON does not have."""
    shaped = (
        _tool_result(result, revision, server)
        if type(result) is ToolResult
        else _shape(result, revision, server)
    )
    return _encode(_Response(request_id, shaped))


def encode_error(request_id: RequestId | None, error: McpError) -> bytes:
    shown = _Error(WIRE[type(error)].code, str(error), error.data)
    return _encode(_ErrorResponse(UNSET if request_id is None else request_id, shown))


def encode_notification(method: str, params: Mapping[str, Any]) -> bytes:
    return _encode(_Notification(method, params))


def encode_progress(
    token: ProgressToken, revision: Revision, *, progress: float, total: float | None, message: str | None
) -> bytes:
    return _encode(
        _Notification(
            "notifications/progress",
            _Progress(token, progress, total, message if revision.annotations else None),
        )
    )


def _tool_result(result: ToolResult, revision: Revision, server: Server) -> _ToolResult:
    if revision.modern:
        meta = server.meta if result.meta is None else {**result.meta, SERVER_INFO: server.info}
        return _ToolResult(result.content, result.is_error, result.structured, "complete", meta)
    structured = result.structured
    if not revision.structured or (structured is not UNSET and not isinstance(structured, Mapping)):
        structured = UNSET  # the text block carries it
    content = result.content
    if not revision.structured:
        content = [_older(block, revision) for block in content]
    return _ToolResult(
        content, result.is_error, structured, UNSET, UNSET if result.meta is None else result.meta
    )


def _older(block: Content, revision: Revision) -> Content:
    """Kinds of content that a revision does not know become text that says the same."""
    if isinstance(block, ResourceLink):
        return TextContent(text=f"{block.title or block.name}: {block.uri}")
    if isinstance(block, AudioContent) and not revision.annotations:
        return TextContent(text=f"[audio, {block.mime_type}: this protocol version cannot carry it]")
    return block


def _shape(result: Result, revision: Revision, server: Server) -> dict[str, Any]:
    match result:
        case Initialized():
            shaped: dict[str, Any] = {
                "protocolVersion": revision.version,
                # No `listChanged`: a caller without a session has no stream on which to hear of it.
                "capabilities": {"tools": {}},
                "serverInfo": _info(server.info, revision),
            }
            if server.instructions is not None:
                shaped["instructions"] = server.instructions
        case Discovered():
            shaped = {"supportedVersions": MODERN_VERSIONS, "capabilities": {"tools": {"listChanged": True}}}
            if server.instructions is not None:
                shaped["instructions"] = server.instructions
        case Listed(tools):
            shaped = {
                "tools": tools if revision.any_structured else [_tool(tool, revision) for tool in tools]
            }
        case EmptyList(key):
            shaped = {key: []}
        case ListenEnded(subscription_id):
            shaped = {"_meta": {SUBSCRIPTION_ID: subscription_id}}
        case _:
            shaped = {}
    if not revision.modern:
        return shaped
    if isinstance(result, Listed | Discovered):
        shaped["ttlMs"] = LIST_TTL_MS
        shaped["cacheScope"] = CACHE_SCOPE
    shaped["resultType"] = "complete"
    shaped["_meta"] = {**shaped.get("_meta", {}), SERVER_INFO: server.info}
    return shaped


def _info(info: Implementation, revision: Revision) -> Implementation:
    if revision.icons:
        return info
    return Implementation(
        name=info.name, version=info.version, title=info.title if revision.structured else UNSET
    )


def _tool(tool: Tool, revision: Revision) -> Tool:
    output = tool.output_schema
    if output is not UNSET and (not revision.structured or output.get("type") != "object"):
        output = UNSET
    return msgspec.structs.replace(
        tool,
        title=tool.title if revision.structured else UNSET,
        output_schema=output,
        icons=tool.icons if revision.icons else UNSET,
        annotations=tool.annotations if revision.annotations else UNSET,
        meta=tool.meta if revision.structured else UNSET,
    )


def as_text(value: Any) -> str:
    """The JSON of a structured answer, for the text block that goes with it."""
    return _encode(value).decode()
