"""Sampling: what may be asked of the client's model, and whether what it answered is an answer.

Deprecated since 2026-07-28, and still what tools use where a client has it. Spec: client/sampling, schema
`CreateMessageRequestParams`, `CreateMessageResult`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from server.mcp.messages import AudioContent, Content, ImageContent, TextContent

MAX_MESSAGES: Final = 256
MAX_TOOLS: Final = 128


class ToolUse(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class ToolOutcome(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", tag="tool_result"
):
    tool_use_id: str
    content: list[Content]
    is_error: bool = False


_Block: TypeAlias = TextContent | ImageContent | AudioContent | ToolUse | ToolOutcome


class SamplingMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["user", "assistant"]
    content: _Block | list[_Block]

    @property
    def blocks(self) -> list[_Block]:
        return self.content if isinstance(self.content, list) else [self.content]


class _OfferedTool(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    input_schema: dict[str, Any]


class _ToolChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: Literal["auto", "required", "none"] = "auto"


class Sampling(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The parameters of `sampling/createMessage`."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: dict[str, Any] | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    # Other values need a capability of their own (`sampling.context`) and are on their way out of the protocol.
    include_context: Literal["none"] | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    stop_sequences: list[str] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    tools: list[_OfferedTool] | UnsetType = UNSET
    tool_choice: _ToolChoice | UnsetType = UNSET


class Sampled(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The model's answer."""

    role: Literal["user", "assistant"]
    content: _Block | list[_Block]
    model: str
    stop_reason: str | None = None


_convert: Final = msgspec.convert


def fault_in_sampling(sampling: Sampling) -> str | None:
    """What its author has to change."""
    if sampling.max_tokens < 1:
        return "maxTokens is not greater than 0"
    if not 1 <= len(sampling.messages) <= MAX_MESSAGES:
        return f"there are not 1 to {MAX_MESSAGES} messages"
    if sampling.tools is not UNSET:
        if not 1 <= len(sampling.tools) <= MAX_TOOLS:
            return f"there are not 1 to {MAX_TOOLS} tools"
        if len({tool.name for tool in sampling.tools}) != len(sampling.tools):
            return "two tools have the same name"
        if any(tool.input_schema.get("type") != "object" for tool in sampling.tools):
            return 'a tool\'s inputSchema must have "type": "object" at its root'
    return _loop_fault(sampling.messages)


def problem_in_sampled(params: Mapping[str, Any], answer: Any) -> str | None:
    """Why the answer is none. Says nothing of what the model wrote."""
    try:
        sampled = _convert(answer, Sampled)
    except (msgspec.ValidationError, RecursionError):
        # The decoder's own words may quote what was sent.
        return "the answer is not a message: it needs role, content and model"
    blocks = sampled.content if isinstance(sampled.content, list) else [sampled.content]
    if any(isinstance(block, ToolOutcome) for block in blocks):
        return "a model's answer holds no results of tools"
    if any(isinstance(block, ToolUse) for block in blocks) and not params.get("tools"):
        return "the model uses tools, and was offered none"
    return None


def one_block_each(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages as before 2025-11-25, when a message had one block of content."""
    split: list[Mapping[str, Any]] = []
    for message in messages:
        content = message["content"]
        blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
        split += [{**message, "content": block} for block in blocks]
    return split


def _loop_fault(messages: Iterable[SamplingMessage]) -> str | None:
    """Every use of a tool is answered at once, by a message of the user with nothing but results."""
    open_uses: set[str] = set()
    for message in messages:
        uses = [block.id for block in message.blocks if isinstance(block, ToolUse)]
        results = [block.tool_use_id for block in message.blocks if isinstance(block, ToolOutcome)]
        if not message.blocks:
            return "a message has no content"
        if uses and message.role != "assistant":
            return "a tool_use belongs in a message of the assistant"
        if results and (message.role != "user" or len(results) != len(message.blocks)):
            return "tool_result belongs in a message of the user that holds nothing else"
        if sorted(results) != sorted(open_uses):
            return "every tool_use is answered by its tool_result in the next message, and nothing else is"
        open_uses = set(uses)
        if len(open_uses) != len(uses):
            return "two tool_use blocks have the same id"
    return "the last tool_use has no tool_result" if open_uses else None
