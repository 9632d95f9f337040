"""The answers and refusals of an upstream, in the back-ends' own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from server.agents.base.backend import BadArguments, NoSuchResource, ProtocolFailure
from server.agents.mcp.forwarded_meta import passed_on
from server.agents.python import call_endings
from server.client.mcp_session.credential_wire import UNPAID_MORE
from server.client.mcp_session.session_messages import (
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    UNPAID,
    ServerFailure,
    ServerRefusal,
    members,
)
from server.lib.shortened import short_reason
from server.mcp.call_failures import BackendError, CannotAsk
from server.mcp.further_members import Furthered, further_in_result, further_members
from server.mcp.messages import (
    AudioContent,
    Content,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextContent,
)
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult
from server.mcp.terms import SIGNED_RECEIPT

LEGACY_NOT_FOUND: Final = -32002
FURTHER_BYTES: Final = 64 * 1024  # of one answer's members that are not known here
PAYMENT_REQUIRED: Final = "payment_required"  # a kind of result
PAYMENT_CODES: Final = (402, -32042)  # of errors, the second also for pages that have to be opened first


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    content: list[Content] = []
    structured_content: Any = UNSET
    is_error: bool = False
    result_type: str = "complete"
    meta: Mapping[str, Any] | UnsetType = field(default=UNSET, name="_meta")


class _Completion(msgspec.Struct, frozen=True):
    completion: Raw


class _ReceiptMeta(msgspec.Struct, frozen=True):
    receipt: str = field(default="", name=SIGNED_RECEIPT)


class _Receipted(msgspec.Struct, frozen=True):
    meta: _ReceiptMeta = field(default_factory=_ReceiptMeta, name="_meta")


class _PlainText(TextContent, frozen=True, kw_only=True, tag="text", forbid_unknown_fields=True):
    pass


class _PlainImage(ImageContent, frozen=True, kw_only=True, tag="image", forbid_unknown_fields=True):
    pass


class _PlainAudio(AudioContent, frozen=True, kw_only=True, tag="audio", forbid_unknown_fields=True):
    pass


class _PlainAnswer(_Answer, frozen=True, forbid_unknown_fields=True):
    """An answer as almost all are: it links to nothing, and has no member that is not known here."""

    content: list[_PlainText | _PlainImage | _PlainAudio] = []  # type: ignore[assignment]


_decode_plain: Final = msgspec.json.Decoder(_PlainAnswer).decode
_decode_receipted: Final = msgspec.json.Decoder(_Receipted).decode
_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


def tool_result(raw: Raw) -> ToolResult:
    """Read the result of a tool. Raises `ServerFailure`, like the others."""
    further: dict[str, Any] | None = None
    try:
        given: _Answer = _decode_plain(raw)
        for block in given.content:
            if block.annotations is not UNSET or block.further is not UNSET:
                given, further = _open_answer(raw)
                break
    except (ValueError, RecursionError):
        given, further = _open_answer(raw)
    if (given.is_error or given.result_type == PAYMENT_REQUIRED) and _asks_payment(raw):
        # It is ours to pay, or nobody's: whoever calls us could pay somebody whom they do not call.
        raise ServerFailure(UNPAID, more=UNPAID_MORE)
    structured = given.structured_content
    return ToolResult(
        content=given.content,
        structured=UNSET if structured is None else structured,
        is_error=given.is_error,
        meta=None if given.meta is UNSET else passed_on(given.meta),
        further=further,
    )


def _open_answer(raw: Raw) -> tuple[_Answer, dict[str, Any] | None]:
    """Read an answer of any kind: with its members that are not known here, and None where it has none or too much of them. Raises
    `ServerFailure`."""
    try:
        answer = _decode_answer(raw)
    except (ValueError, RecursionError) as error:
        raise _none(error) from error
    given = members(raw)
    further = further_in_result(given)
    content, size = _with_further(answer.content, given.get("content"))
    if (further or size) and (size + len(msgspec.json.encode(further)) > FURTHER_BYTES or _asks_payment(raw)):
        (content, size), further = _with_further(answer.content, None), {}
    return msgspec.structs.replace(answer, content=content), further if further or size else None


def _with_further(content: Sequence[Furthered], given: object) -> tuple[list[Any], int]:
    """Return content with its members that are not known here, and how many bytes these take. `given`: the same as it came."""
    came = cast("list[Any]", given) if isinstance(given, list) else []
    found: list[Any] = []
    size = 0
    for place, block in enumerate(content):
        said: Any = came[place] if place < len(came) else None
        further = further_members(said, type(block))
        size += len(msgspec.json.encode(further)) if further else 0
        block = msgspec.structs.replace(block, further=further or UNSET)
        if isinstance(block, EmbeddedResource):
            inner = cast("Mapping[str, Any]", said).get("resource") if isinstance(said, Mapping) else None
            (resource,), more = _with_further([block.resource], [inner])
            block = msgspec.structs.replace(block, resource=resource)
            size += more
        found.append(block)
    return found, size


def _bounded(content: Sequence[Furthered], given: object) -> list[Any]:
    """Return content with its members that are not known here, if these are not too many."""
    found, size = _with_further(content, given)
    return found if size <= FURTHER_BYTES else _with_further(content, None)[0]


def signed_receipt(raw: Raw) -> str:
    """Read the receipt that goes with an answer; empty where there is none."""
    try:
        return _decode_receipted(raw).meta.receipt
    except (ValueError, RecursionError):
        return ""


def _asks_payment(raw: Raw) -> bool:
    from server.payments.x402.in_band import find_challenge

    return find_challenge(members(raw)) is not None


def _error_asks_payment(refusal: ServerRefusal) -> bool:
    from server.payments.x402.in_band import find_challenge_in_error

    return find_challenge_in_error({"code": refusal.code, "data": refusal.data}) is not None


def contents(raw: Raw) -> Sequence[ResourceContents]:
    try:
        found = call_endings.contents(raw)
    except BackendError as error:
        raise _none(error) from error
    return [
        each if each.meta is UNSET else msgspec.structs.replace(each, meta=passed_on(each.meta) or UNSET)
        for each in _bounded(found, members(raw).get("contents"))
    ]


def prompt_result(raw: Raw) -> PromptResult:
    try:
        found = call_endings.prompt(raw)
    except BackendError as error:
        raise _none(error) from error
    given: Any = members(raw).get("messages")
    content = _bounded([each.content for each in found.messages], [each.get("content") for each in given])
    messages = [
        msgspec.structs.replace(each, content=block)
        for each, block in zip(found.messages, content, strict=True)
    ]
    return msgspec.structs.replace(found, messages=messages)


def completion(raw: Raw) -> CompletionResult:
    try:
        return call_endings.completion(msgspec.json.decode(raw, type=_Completion).completion)
    except (BackendError, ValueError, RecursionError) as error:
        raise _none(error) from error


def error_of(refusal: ServerRefusal, *, about: str) -> BackendError:
    """Return the error for a refusal. `about`: "tool", "resource" or "prompt"."""
    text, code = str(refusal), refusal.code
    if code in PAYMENT_CODES and _error_asks_payment(refusal):
        return BackendError(f"the upstream {UNPAID}")
    if code == MISSING_CAPABILITY:
        required: object = None if refusal.data is None else refusal.data.get("requiredCapabilities")
        if isinstance(required, Mapping):
            return CannotAsk(text, cast("Mapping[str, Any]", required))
        return CannotAsk(text)
    if about == "resource" and code in (LEGACY_NOT_FOUND, INVALID_PARAMS):
        return NoSuchResource(text)
    if code == INVALID_PARAMS:
        return BadArguments(text)
    if -32768 <= code <= -32000:  # what JSON-RPC keeps for itself
        return BackendError(text)
    return ProtocolFailure(text, code, refusal.data)


def _none(error: Exception) -> ServerFailure:
    return ServerFailure("gave a result that is none", more=f": {short_reason(error)}")
