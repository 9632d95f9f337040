"""Results, from what a handler returns to the bytes of its era: which fields a revision has, and what it wants added.

Handlers return the structs below and know no era. Spec: basic/index "Responses" (2026-07-28), and the tables of what
each revision added. Legacy results carry none of the modern fields: clients compare some of them to `{}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from server.mcp.call_questions import Question
from server.mcp.errors import WIRE, AgentError, McpError
from server.mcp.further_members import flat
from server.mcp.messages import (
    AudioContent,
    Content,
    Implementation,
    ProgressToken,
    Prompt,
    PromptMessage,
    RequestId,
    Resource,
    ResourceContents,
    ResourceLink,
    ResourceTemplate,
    TextContent,
    Tool,
    ToolExecution,
)
from server.mcp.method_params import Level
from server.mcp.skills_extension import SKILLS_EXTENSION
from server.mcp.versions import MODERN_VERSIONS, PAYMENT_EXTENSION, TASKS_EXTENSION, Revision

SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

# How long a client may keep a list without asking again. A change notification overrides it for those who listen; this
# bounds how stale the others get.
LIST_TTL_MS: Final = 60_000
# What is offered may depend on who asks, so nothing is shared between users.
CACHE_SCOPE: Final = "private"


class ServerIdentity:
    """The identity of this server, encoded once for as long as it stays the same. `info` is its owner's, for pages and documents of ours;
    `shown` what clients are told, which may be the words of somebody behind us; `brief` the same without pictures, for every result."""

    __slots__ = ("_further", "_instructions", "_introduce", "brief", "info", "meta", "shown")

    def __init__(
        self,
        info: Implementation,
        *,
        instructions: str | None = None,
        further: Callable[[], str] = str,
        introduce: Callable[[], Implementation] | None = None,
    ) -> None:
        """Keep the parts. `further` and `introduce` return what somebody behind us says today: instructions, and who we are with that."""
        self.info = info
        self._instructions = instructions
        self._further = further
        self._introduce = introduce
        self.refresh()

    def refresh(self) -> None:
        """Ask again who we are."""
        self.shown = self.info if self._introduce is None else self._introduce()
        self.brief = msgspec.structs.replace(self.shown, icons=UNSET)
        self.meta = Raw(_encode({SERVER_INFO: self.brief}))

    def take(self, newer: ServerIdentity) -> None:
        """Take another identity from now on."""
        self.info, self._introduce = newer.info, newer._introduce
        self._instructions, self._further = newer._instructions, newer._further
        self.refresh()

    @property
    def instructions(self) -> str | None:
        further = self._further()
        if self._instructions is None:
            return further or None
        return f"{self._instructions}\n\n{further}" if further else self._instructions


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """The offer of the server to this caller on this wire: what it declares, and which methods it knows."""

    resources: bool = False
    subscribe: bool = False  # to changes of resources
    prompts: bool = False
    completions: bool = False
    logging: bool = False
    tasks: bool = False
    skills: bool = False  # Agent Skills, as the extension has them
    payments: bool = False  # asks to be paid by a kind of result of its own (2026-07-28)
    wasmagent: bool = False  # the handshake era's tasks are those of `compat.tasks = "wasmagent"`
    task_list: bool = True
    changes: bool = True  # the caller has a way to hear of changed lists
    instructions: bool = True  # and is told what its owner says of it
    extensions: Mapping[str, Mapping[str, Any]] = MappingProxyType({})  # those of its agents


class EmptyResult(msgspec.Struct, frozen=True):
    """Done, and there is nothing to say (`ping`)."""


class InitializeResult(msgspec.Struct, frozen=True):
    """The handshake's answer; the revision it is shaped for is the negotiated one."""

    offers: Offers


class DiscoverResult(msgspec.Struct, frozen=True):
    offers: Offers


class ListResult(msgspec.Struct, frozen=True):
    """One page of a list; `kind` is its key in the result."""

    kind: str
    items: Sequence[Tool | Resource | ResourceTemplate | Prompt]
    next_cursor: str | None = None


class ReadResourceResult(msgspec.Struct, frozen=True):
    contents: Sequence[ResourceContents]


class PromptResult(msgspec.Struct, frozen=True):
    messages: Sequence[PromptMessage]
    description: str | None = None


class CompletionResult(msgspec.Struct, frozen=True):
    values: Sequence[str]
    total: int | None = None
    has_more: bool | None = None


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    content: Sequence[Content]
    structured: Any = UNSET
    is_error: bool = False
    meta: Mapping[str, Any] | None = None
    # Members of the result that are not known here; not None where a block has such, too (further_members.py).
    further: Mapping[str, Any] | None = None
    # What is structured is no answer of the tool but asks for payment: clients of every revision look for it there.
    asks_payment: bool = False


def text_result(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),))


def members_of(result: ToolResult) -> dict[str, Any]:
    """Return the members of a result, but for `_meta`."""
    content = result.content if result.further is None else [flat(block) for block in result.content]
    members = {**(result.further or {}), "content": content, "isError": result.is_error}
    if result.structured is not UNSET:
        members["structuredContent"] = result.structured
    return members


def failed_result(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),), is_error=True)


class RawResult(msgspec.Struct, frozen=True):
    """A result whose fields are already those of its method; what every modern result has is added."""

    fields: Mapping[str, Any]
    result_type: str = "complete"


class InputRequiredResult(msgspec.Struct, frozen=True):
    """Ask the client this, and let it send the request again with the answers (2026-07-28)."""

    requests: Mapping[str, Question]
    state: str


class ListenResult(msgspec.Struct, frozen=True):
    subscription_id: RequestId


Result: TypeAlias = (
    EmptyResult
    | InitializeResult
    | DiscoverResult
    | ListResult
    | ReadResourceResult
    | PromptResult
    | CompletionResult
    | ToolResult
    | RawResult
    | InputRequiredResult
    | ListenResult
)


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


def encode_result(request_id: RequestId, result: Result, revision: Revision, server: ServerIdentity) -> bytes:
    """Encode a result. Raises what msgspec raises when a back-end put something into its answer that JSON does not have."""
    if type(result) is not ToolResult:
        return _encode(_Response(request_id, _shape(result, revision, server)))
    if result.further is not None:
        return _encode(_Response(request_id, _open_tool_result(result, revision, server)))
    if not revision.modern:
        return _encode(_Response(request_id, _older_tool_result(result, revision)))
    meta = server.meta if result.meta is None else {**result.meta, SERVER_INFO: server.brief}
    return _encode(
        _Response(
            request_id,
            _ToolResult(result.content, result.is_error, result.structured, "complete", meta),
        )
    )


def code_of(error: McpError, revision: Revision) -> int:
    if isinstance(error, AgentError):
        return error.code
    row = WIRE[type(error)]
    return row.code if revision.modern or row.legacy_code is None else row.legacy_code


def encode_error(request_id: RequestId | None, error: McpError, revision: Revision) -> bytes:
    shown = _Error(code_of(error, revision), str(error), error.data)
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


def encode_log(level: Level, data: Any, logger: str | None) -> bytes:
    told: dict[str, Any] = {"level": level, "data": data}
    if logger is not None:
        told["logger"] = logger
    return _encode(_Notification("notifications/message", told))


def _open_tool_result(result: ToolResult, revision: Revision, server: ServerIdentity) -> Mapping[str, Any]:
    """Return a result with members that are not known here, in every revision where they came."""
    if revision.modern:
        meta = {**(result.meta or {}), SERVER_INFO: server.brief}
        return {**members_of(result), "resultType": "complete", "_meta": meta}
    older = _older_tool_result(result, revision)
    members = members_of(
        msgspec.structs.replace(result, content=older.content, structured=older.structured_content)
    )
    return members if result.meta is None else {**members, "_meta": result.meta}


def _older_tool_result(result: ToolResult, revision: Revision) -> _ToolResult:
    structured = result.structured
    spoken = revision.structured or result.asks_payment
    if not spoken or (structured is not UNSET and not isinstance(structured, Mapping)):
        structured = UNSET  # the text block carries it
    content = result.content
    if not revision.icons:
        content = [_older(block, revision) for block in content]
    return _ToolResult(
        content, result.is_error, structured, UNSET, UNSET if result.meta is None else result.meta
    )


def _older(block: Content, revision: Revision) -> Content:
    """Turn kinds of content that a revision does not know into text that says the same; icons are left out."""
    if isinstance(block, ResourceLink):
        if revision.structured:
            return block if block.icons is UNSET else msgspec.structs.replace(block, icons=UNSET)
        return TextContent(text=f"{block.title or block.name}: {block.uri}")
    if isinstance(block, AudioContent) and not revision.annotations:
        return TextContent(text=f"[audio, {block.mime_type}: this protocol version cannot carry it]")
    return block


def _shape(result: Result, revision: Revision, server: ServerIdentity) -> dict[str, Any]:
    match result:
        case InitializeResult(offers):
            shaped: dict[str, Any] = {
                "protocolVersion": revision.version,
                "capabilities": _capabilities(offers, revision),
                "serverInfo": _info(server.shown, revision),
            }
            if server.instructions is not None and offers.instructions:
                shaped["instructions"] = server.instructions
        case DiscoverResult(offers):
            shaped = {"supportedVersions": MODERN_VERSIONS, "capabilities": _capabilities(offers, revision)}
            if server.instructions is not None and offers.instructions:
                shaped["instructions"] = server.instructions
        case ListResult(kind, items, next_cursor):
            shaped = {kind: [_item(item, revision) for item in items]}
            if next_cursor is not None:
                shaped["nextCursor"] = next_cursor
        case ReadResourceResult(contents):
            shaped = {"contents": [flat(each) for each in contents]}
        case PromptResult(messages, description):
            shaped = {"messages": [_message(message, revision) for message in messages]}
            if description is not None:
                shaped["description"] = description
        case CompletionResult(values, total, has_more):
            completion: dict[str, Any] = {"values": values}
            if total is not None:
                completion["total"] = total
            if has_more is not None:
                completion["hasMore"] = has_more
            shaped = {"completion": completion}
        case RawResult(fields):
            shaped = {**fields}
        case InputRequiredResult(requests, state):
            shaped = {"inputRequests": requests, "requestState": state}
        case ListenResult(subscription_id):
            shaped = {"_meta": {SUBSCRIPTION_ID: subscription_id}}
        case _:
            shaped = {}
    if not revision.modern:
        return shaped
    if isinstance(result, ListResult | DiscoverResult | ReadResourceResult):
        # What is read may change at any moment, so it is only good for the moment in which it was asked for.
        shaped["ttlMs"] = 0 if isinstance(result, ReadResourceResult) else LIST_TTL_MS
        shaped["cacheScope"] = CACHE_SCOPE
    shaped["resultType"] = _result_type(result)
    info = server.shown if isinstance(result, DiscoverResult) else server.brief
    shaped["_meta"] = {**shaped.get("_meta", {}), SERVER_INFO: info}
    return shaped


def _result_type(result: Result) -> str:
    if isinstance(result, RawResult):
        return result.result_type
    return "input_required" if isinstance(result, InputRequiredResult) else "complete"


def _capabilities(offers: Offers, revision: Revision) -> dict[str, Any]:
    heard = {"listChanged": True} if offers.changes else {}
    declared: dict[str, Any] = {"tools": heard}
    if offers.resources:
        declared["resources"] = {"subscribe": True, **heard} if offers.subscribe else heard
    if offers.prompts:
        declared["prompts"] = heard
    if offers.completions and revision.completions:
        declared["completions"] = {}
    if offers.logging:
        declared["logging"] = {}
    if revision.modern:
        there = {
            TASKS_EXTENSION: offers.tasks,
            SKILLS_EXTENSION: offers.skills,
            PAYMENT_EXTENSION: offers.payments,
        }
    else:  # clients of both eras look for it there
        there = {SKILLS_EXTENSION: offers.skills}
    own = {name: dict[str, Any]() for name, offered in there.items() if offered}
    if extensions := {**offers.extensions, **own}:
        declared["extensions"] = extensions
    if revision.modern:
        return declared
    listed: dict[str, Any] = {"list": {}} if offers.task_list else {}
    if not offers.tasks:
        return declared
    if offers.wasmagent:
        declared["tasks"] = {"create": {}, "cancel": {}, "respond": {}, **listed}
    elif revision.tasks:
        declared["tasks"] = {**listed, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return declared


def _message(message: PromptMessage, revision: Revision) -> Mapping[str, Any]:
    content = message.content if revision.icons else _older(message.content, revision)
    return {"role": message.role, "content": flat(content)}


def _info(info: Implementation, revision: Revision) -> Implementation:
    if revision.icons:
        return info
    return Implementation(
        name=info.name, version=info.version, title=info.title if revision.structured else UNSET
    )


def _item(item: Tool | Resource | ResourceTemplate | Prompt, revision: Revision) -> Any:
    """Leave out the fields that the revision does not know."""
    if isinstance(item, Tool):
        tool = _tool(item, revision)
        return tool if tool.further is UNSET else flat(tool)
    if revision.icons:
        return item
    if revision.structured:
        return msgspec.structs.replace(item, icons=UNSET)
    if isinstance(item, Prompt) and item.arguments is not UNSET:
        untitled = [msgspec.structs.replace(argument, title=UNSET) for argument in item.arguments]
        item = msgspec.structs.replace(item, arguments=untitled)
    return msgspec.structs.replace(item, icons=UNSET, title=UNSET, meta=UNSET)


def _tool(tool: Tool, revision: Revision) -> Tool:
    execution = tool.execution
    if revision.any_structured and execution is UNSET:
        return tool
    if execution is not UNSET and (not revision.tasks or execution.task_support == "forbidden"):
        execution = UNSET
    elif execution is not UNSET:
        execution = ToolExecution(task_support=execution.task_support)
    if revision.any_structured:
        return msgspec.structs.replace(tool, execution=execution)
    output = tool.output_schema
    if output is not UNSET and (not revision.structured or output.get("type") != "object"):
        output = UNSET
    return msgspec.structs.replace(
        tool,
        title=tool.title if revision.structured else UNSET,
        output_schema=output,
        icons=tool.icons if revision.icons else UNSET,
        annotations=tool.annotations if revision.annotations else UNSET,
        execution=execution,
        meta=tool.meta if revision.structured else UNSET,
    )


def as_text(value: Any) -> str:
    """Write the JSON of a structured answer, for the text block that goes with it."""
    return _encode(value).decode()
