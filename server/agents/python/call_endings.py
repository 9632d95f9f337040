"""How a call of an agent's process ended, in the back-ends' own words: its result checked for its shape, its error by kind.

A result that is none fails its call alone; the process goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from server.agents.base.backend import BadArguments, NoSuchResource, ProtocolFailure, ToolCrashed
from server.agents.python.agent_lines import CallFailed
from server.lib.shortened import short_reason
from server.mcp.call_failures import BackendError, CannotAsk, NotAnswered
from server.mcp.messages import Content, PromptMessage, ResourceContents
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult

SHOWN_CHARACTERS: Final = 2000  # of what an author says about a failure
COMPLETIONS: Final = 100

T = TypeVar("T")


class _Tool(msgspec.Struct, frozen=True, rename="camel"):
    content: list[Content]
    structured_content: Any = UNSET
    is_error: bool = False
    meta: Mapping[str, Any] | None = field(default=None, name="_meta")


class _Read(msgspec.Struct, frozen=True):
    contents: list[ResourceContents]


class _Prompt(msgspec.Struct, frozen=True):
    messages: list[PromptMessage]
    description: str | None = None


class _Complete(msgspec.Struct, frozen=True, rename="camel"):
    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class _SaidPrice(msgspec.Struct, frozen=True):
    price: str


_decode_tool: Final = msgspec.json.Decoder(_Tool).decode


def tool_answer(result: Raw) -> ToolResult:
    """Raises `BackendError`, like all of these."""
    try:
        given = _decode_tool(result)
    except (ValueError, RecursionError) as error:
        raise _no_result(error) from error
    return ToolResult(
        content=given.content,
        structured=given.structured_content,
        is_error=given.is_error,
        meta=given.meta,
    )


def contents(result: Raw) -> Sequence[ResourceContents]:
    given = _shaped(result, _Read).contents
    if any(isinstance(each.text, UnsetType) is isinstance(each.blob, UnsetType) for each in given):
        raise BackendError("the agent gave contents that have not exactly one of text and blob")
    return given


def prompt(result: Raw) -> PromptResult:
    given = _shaped(result, _Prompt)
    return PromptResult(messages=given.messages, description=given.description)


def completion(result: Raw) -> CompletionResult:
    given = _shaped(result, _Complete)
    more = True if len(given.values) > COMPLETIONS else given.has_more
    return CompletionResult(values=given.values[:COMPLETIONS], total=given.total, has_more=more)


def said_price(result: Raw) -> str:
    return _shaped(result, _SaidPrice).price


def failure(failed: CallFailed, refusal: CannotAsk | NotAnswered | None) -> BackendError:
    """`refusal` is what the function was told when it wanted to ask, and did not get over."""
    text = failed.message[:SHOWN_CHARACTERS]
    match failed.kind:
        case "refused":
            return refusal or CannotAsk(text or "the client cannot be asked")
        case "protocol":
            return ProtocolFailure(text, failed.code, _object(failed.data))
        case "not_found":
            return NoSuchResource(text)
        case "bad_arguments":
            return BadArguments(text or "these are not the arguments that it takes")
        case "cancelled":
            return BackendError("the agent gave the call up")
        case "failed":
            return ToolCrashed(text or "the agent failed")


def _object(data: object) -> Mapping[str, Any] | None:
    return cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else None


def _shaped(result: Raw, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(result, type=shape)
    except (ValueError, RecursionError) as error:
        raise _no_result(error) from error


def _no_result(error: Exception) -> BackendError:
    return BackendError(f"the agent gave a result that is none: {short_reason(error)}")
