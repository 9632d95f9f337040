"""MCP's nouns as structs, and the one place where bytes become a JSON-RPC message.

A message keeps its `params` raw: the method's own type decodes them once (method_table.py). The names and omissions of each revision
are result_encoding.py's. Spec: schema 2026-07-28; JSON-RPC 2.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType, field

from server.lib.surrogates import decode_mended, mended
from server.mcp.errors import InvalidRequest, McpError, ParseError

# A name that is sent back with every message about it: longer than a client makes one, and nothing to multiply a body by.
MAX_NAME: Final = 1024
# Where members are kept that are not known here; nothing that comes or goes on a wire has it.
FURTHER: Final = "io.ostiary/further"

RequestId: TypeAlias = int | Annotated[str, Meta(max_length=MAX_NAME)]
ProgressToken: TypeAlias = int | Annotated[str, Meta(max_length=MAX_NAME)]


class Annotations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    audience: Sequence[Literal["user", "assistant"]] | UnsetType = UNSET
    priority: float | UnsetType = UNSET
    last_modified: str | UnsetType = UNSET


class Icon(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    src: str
    mime_type: str | UnsetType = UNSET
    sizes: Sequence[str] | UnsetType = UNSET
    theme: Literal["light", "dark"] | UnsetType = UNSET


class Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag_field="type"):
    """The members that every kind of content may have. `further`: those that are not known here (further_members.py)."""

    annotations: Annotations | UnsetType = UNSET
    meta: Mapping[str, Any] | UnsetType = field(default=UNSET, name="_meta")
    further: Mapping[str, Any] | UnsetType = field(default=UNSET, name=FURTHER)


class TextContent(Block, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag="text"):
    text: str


class ImageContent(Block, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag="image"):
    data: str  # base64
    mime_type: str


class AudioContent(Block, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag="audio"):
    data: str  # base64
    mime_type: str


class ResourceContents(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Exactly one of `text` and `blob` (base64)."""

    uri: str
    mime_type: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    blob: str | UnsetType = UNSET
    meta: Mapping[str, Any] | UnsetType = field(default=UNSET, name="_meta")
    further: Mapping[str, Any] | UnsetType = field(default=UNSET, name=FURTHER)


class EmbeddedResource(Block, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag="resource"):
    resource: ResourceContents


class ResourceLink(Block, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag="resource_link"):
    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    icons: Sequence[Icon] | UnsetType = UNSET


Content: TypeAlias = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink


class ToolAnnotations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


class ToolExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The tool's word on whether a call can be a task (2025-11-25; the extension of 2026-07-28 leaves it to the server)."""

    task_support: Literal["forbidden", "optional", "required"] = "forbidden"
    by_hand: bool = False  # ours, never sent: it begins as a call, and the tool says when it becomes a task


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    icons: Sequence[Icon] | UnsetType = UNSET
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | UnsetType = UNSET
    annotations: ToolAnnotations | UnsetType = UNSET
    execution: ToolExecution | UnsetType = UNSET
    meta: Mapping[str, Any] | UnsetType = field(default=UNSET, name="_meta")
    further: Mapping[str, Any] | UnsetType = field(default=UNSET, name=FURTHER)


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET
    icons: Sequence[Icon] | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: Mapping[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class ResourceTemplate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    uri_template: str  # RFC 6570
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    icons: Sequence[Icon] | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    meta: Mapping[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class Prompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    arguments: Sequence[PromptArgument] | UnsetType = UNSET
    icons: Sequence[Icon] | UnsetType = UNSET
    meta: Mapping[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class PromptMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    role: Literal["user", "assistant"]
    content: Content


class Implementation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    name: str
    version: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    icons: Sequence[Icon] | UnsetType = UNSET
    website_url: str | UnsetType = UNSET


class RequestMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: RequestId
    method: str
    params: Raw


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    params: Raw


class ResponseMessage(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to a request of ours: its result, or else its error."""

    id: RequestId | None
    result: Raw | None = None
    error: Raw | None = None


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """Not a message. `id` is what could still be read of it, so that the refusal can name it."""

    error: McpError
    id: RequestId | None = None


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    items: Sequence[Raw]


Message: TypeAlias = RequestMessage | Notification | ResponseMessage | Malformed


class _Envelope(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    id: RequestId | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Loose(msgspec.Struct):
    """The part of a bad message that its refusal can use."""

    id: Any = None
    method: Any = None


EMPTY_PARAMS: Final = Raw(b"{}")
_NULL: Final = Raw(b"null")
_decode_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_decode_loose: Final = msgspec.json.Decoder(_Loose).decode
_decode_items: Final = msgspec.json.Decoder(list[Raw]).decode


def decode(body: bytes) -> Message | Batch:
    """Decode one JSON text to a message, or to the items of a batch (each goes through `decode_one`). This never raises."""
    # Fields that are skipped are not checked for UTF-8 by the decoder.
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError:
            return Malformed(error=ParseError("the body is not UTF-8"))
    if body[:1] != b"{" and body.lstrip(b" \t\r\n")[:1] == b"[":
        try:
            return Batch(items=decode_mended(_decode_items, body))
        except (msgspec.DecodeError, RecursionError):
            return Malformed(error=ParseError("the body is not JSON, or is nested too deeply"))
    try:
        envelope = _decode_envelope(body)
    except (msgspec.DecodeError, RecursionError):
        return decode_one(mended(body))
    params = envelope.params
    # The usual message; every other kind goes the long way.
    if envelope.method is UNSET or envelope.id is UNSET or params is UNSET or params == _NULL:
        return decode_one(body)
    return RequestMessage(id=envelope.id, method=envelope.method, params=params)


def decode_one(body: bytes | Raw) -> Message:
    try:
        envelope = _decode_envelope(body)
    except msgspec.ValidationError as error:
        return _malformed(body, str(error))
    except (msgspec.DecodeError, RecursionError):
        return Malformed(error=ParseError("the body is not JSON, or is nested too deeply"))
    method, request_id, params = envelope.method, envelope.id, envelope.params
    if method is UNSET:
        if envelope.result is UNSET and envelope.error is UNSET:
            return Malformed(
                error=InvalidRequest("neither a request, a notification nor a response"),
                id=None if request_id is UNSET else request_id,
            )
        return ResponseMessage(
            id=None if request_id is UNSET else request_id,
            result=None if envelope.result is UNSET else envelope.result,
            error=None if envelope.error is UNSET else envelope.error,
        )
    # `params: null` is sent by clients that serialise what they do not have.
    if params is UNSET or params == _NULL:
        params = EMPTY_PARAMS
    if request_id is UNSET:
        return Notification(method=method, params=params)
    return RequestMessage(id=request_id, method=method, params=params)


def _malformed(body: bytes | Raw, reason: str) -> Malformed:
    try:
        loose = _decode_loose(body)
    except (msgspec.DecodeError, RecursionError):
        return Malformed(error=InvalidRequest(f"not a JSON-RPC 2.0 message: {reason}"))
    readable = (isinstance(loose.id, int) and not isinstance(loose.id, bool)) or (
        isinstance(loose.id, str) and len(loose.id) <= MAX_NAME
    )
    return Malformed(
        error=InvalidRequest(f"not a JSON-RPC 2.0 message: {reason}"), id=loose.id if readable else None
    )
