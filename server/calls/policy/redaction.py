"""Redaction: what must not leave is blotted out of whatever a tool says: answers, errors, progress, messages for the log, texts of
resources.

A text is looked through in pieces, with a breath between them, so that a long one holds up nobody else, and a call's deadline counts here
as well. Structured content stays JSON: its texts and numbers are blotted out. Not looked into: images, sound and other bytes, and
addresses of resources. Redaction keeps what is known by its shape from slipping out; against a tool that means to tell it is no wall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec
import trio
from msgspec import UNSET

from server.agents.base.backend import ProtocolFailure
from server.calls.policy.patterns import read_pattern
from server.calls.policy.redaction_sets import SECRET_MARK, SETS, Blot, is_named_secret, plain
from server.mcp.call_outlet import LogMessage, Outlet, Progress
from server.mcp.call_questions import Question
from server.mcp.messages import (
    Block,
    Content,
    EmbeddedResource,
    PromptMessage,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from server.mcp.result_encoding import CompletionResult, PromptResult, ToolResult
from server.settings.rule_settings import RedactConfig

# As much as is looked through in one go.
WINDOW: Final = 8 * 1024
# Of values that are each short.
_BREATH: Final = 200
_LEAST_DIGITS: Final = 12  # of a number that could be more than a number

_BLANKS: Final = " \t\r\n\ufeff"  # before JSON; the last one some programs write, and others overlook

AnyBlock = TypeVar("AnyBlock", bound=Block)


class Unredactable(Exception):
    """A value that is nested too deeply to be looked through."""


class Redactor:
    """The patterns of some settings. Raises `BadPattern`, which the settings have been asked about before."""

    def __init__(self, settings: Sequence[RedactConfig]) -> None:
        named = dict.fromkeys(name for each in settings for name in each.sets)
        written = dict.fromkeys(text for each in settings for text in each.patterns)
        self._blots: tuple[Blot, ...] = (
            *(blot for name, blots in SETS.items() if name in named for blot in blots),
            *(plain(read_pattern(text)) for text in written),
        )

        self._secrets = "secrets" in named

    async def member(self, name: str, value: str) -> str:
        """Redact a text that has a name in an object."""
        return SECRET_MARK if self._secrets and is_named_secret(name, value) else await self.text(value)

    async def text(self, text: str) -> str:
        for blot in self._blots:
            text = _swept(blot, text) if len(text) <= WINDOW else await _swept_in_pieces(blot, text)
        return text

    async def value(self, value: Any) -> Any:
        """Redact what becomes JSON. Raises `Unredactable`."""
        try:
            return await _Walk(self).value(msgspec.to_builtins(value))
        except RecursionError:
            raise Unredactable from None

    async def result(self, answer: ToolResult) -> ToolResult:
        """Redact the answer of a tool. Raises `Unredactable`."""
        content = [await self._block(block) for block in answer.content]
        structured = UNSET if answer.structured is UNSET else await self.value(answer.structured)
        meta = await self.value(answer.meta) if answer.meta else answer.meta
        further = await self.value(answer.further) if answer.further else answer.further
        return msgspec.structs.replace(
            answer, content=content, structured=structured, meta=meta, further=further
        )

    async def library(self, found: Any) -> Any:
        """Redact a prompt, a completion, or the contents of a resource. Raises `Unredactable`."""
        if isinstance(found, PromptResult):
            messages = [
                PromptMessage(role=message.role, content=await self._block(message.content))
                for message in found.messages
            ]
            told = None if found.description is None else await self.text(found.description)
            return PromptResult(messages=messages, description=told)
        if isinstance(found, CompletionResult):
            values = [await self.text(value) for value in found.values]
            return msgspec.structs.replace(found, values=values)
        return [await self._contents(each) for each in found]

    async def error(self, error: Exception) -> None:
        """Let an error have other words from now on."""
        if error.args:
            error.args = (await self.text(str(error.args[0])), *error.args[1:])
        if isinstance(error, ProtocolFailure) and error.data is not None:
            error.data = await self.value(error.data)

    async def _block(self, block: Content) -> Content:
        if isinstance(block, TextContent):
            block = msgspec.structs.replace(block, text=await self._written(block.text))
        elif isinstance(block, EmbeddedResource):
            block = msgspec.structs.replace(block, resource=await self._contents(block.resource))
        elif isinstance(block, ResourceLink):
            words = {name: getattr(block, name) for name in ("name", "title", "description")}
            block = msgspec.structs.replace(
                block, **{name: await self.text(word) for name, word in words.items() if word is not UNSET}
            )
        if block.meta is not UNSET:
            block = msgspec.structs.replace(block, meta=await self.value(block.meta))
        if block.further is not UNSET:
            block = msgspec.structs.replace(block, further=await self.value(block.further))
        return block

    async def _contents(self, found: ResourceContents) -> ResourceContents:
        if found.text is not UNSET:
            found = msgspec.structs.replace(found, text=await self._written(found.text))
        if found.meta is not UNSET:
            found = msgspec.structs.replace(found, meta=await self.value(found.meta))
        if found.further is not UNSET:
            found = msgspec.structs.replace(found, further=await self.value(found.further))
        return found

    async def _written(self, text: str) -> str:
        """Redact a text. One that is JSON is looked through as what it means: an escape does not hide anything there."""
        bare = text.lstrip(_BLANKS)
        if bare[:1] in ("{", "[", '"'):
            try:
                value = msgspec.json.decode(bare)
            except (ValueError, RecursionError):
                return await self.text(text)
            redacted = await self.value(value)
            if redacted != value:
                text = msgspec.json.encode(redacted).decode()
        return await self.text(text)


class RedactingOutlet:
    """The outlet of a caller, except that what it hears is looked through. A text that comes in pieces is not passed on before the answer:
    what is to be blotted out may begin in one piece and end in the next."""

    def __init__(self, outlet: Outlet, redactor: Redactor) -> None:
        self._outlet = outlet
        self._redactor = redactor

    async def emit(self, event: Progress | LogMessage) -> None:
        try:
            await self._outlet.emit(await self._clear(event))
        except Unredactable:
            return

    async def _clear(self, event: Progress | LogMessage) -> Progress | LogMessage:
        if isinstance(event, LogMessage):
            return msgspec.structs.replace(event, data=await self._redactor.value(event.data))
        if event.joins:
            return msgspec.structs.replace(event, message=None, joins=False, name=None, data=None)
        if event.name is not None:
            event = msgspec.structs.replace(event, data=await self._redactor.value(event.data))
        if event.message is None:
            return event
        return msgspec.structs.replace(event, message=await self._redactor.text(event.message))

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        return await self._outlet.ask({key: await self._question(each) for key, each in questions.items()})

    async def _question(self, question: Question) -> Question:
        """Redact a question. A form's fields are what is answered by: they stay."""
        params = dict(question.params)
        for name in ("message", "messages", "systemPrompt"):
            if name in params:
                params[name] = await self._redactor.value(params[name])
        return Question(method=question.method, params=params)

    async def checkpoint(self, data: Any) -> None:
        await self._outlet.checkpoint(data)

    async def become_task(self) -> bool:
        return await self._outlet.become_task()

    async def close_stream(self) -> None:
        await self._outlet.close_stream()


class _Walk:
    """A walk through one value."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._seen = 0

    async def value(self, value: Any) -> Any:
        self._seen += 1
        if self._seen % _BREATH == 0:
            await trio.lowlevel.checkpoint()
        if isinstance(value, str):
            return await self._redactor.text(value)
        if isinstance(value, dict):
            return await self._object(cast("dict[str, Any]", value))
        if isinstance(value, list | tuple):
            return [await self.value(each) for each in cast("list[Any]", value)]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return await self._number(value)
        return value

    async def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, each in value.items():
            name = base = await self._redactor.text(key)
            number = 1
            while name in found:  # two of them look alike now
                number += 1
                name = f"{base} {number}"
            found[name] = await (
                self._redactor.member(key, each) if isinstance(each, str) else self.value(each)
            )
        return found

    async def _number(self, value: float) -> float | str:
        """Redact a number. One that must not be shown becomes a text."""
        try:
            written = _digits(value)
        except ValueError:  # of so many digits that it is none that anybody knows
            return value
        if sum(map(str.isdigit, written)) < _LEAST_DIGITS:
            return value
        redacted = await self._redactor.text(written)
        return value if redacted == written else redacted


def _digits(value: float) -> str:
    """Write a number as people do: a whole number without a point, however large."""
    return repr(int(value) if isinstance(value, float) and value.is_integer() else value)


def _swept(blot: Blot, text: str) -> str:
    out: list[str] = []
    kept = _swept_between(blot, text, 0, len(text), 0, out)
    return "".join((*out, text[kept:])) if out else text


async def _swept_in_pieces(blot: Blot, text: str) -> str:
    """Find each match from the piece in which it begins."""
    out: list[str] = []
    kept = at = 0
    while at < len(text):
        end = at + WINDOW
        kept = _swept_between(blot, text, at, end, kept, out)
        at = max(end, kept)
        await trio.lowlevel.checkpoint()
    out.append(text[kept:])
    return "".join(out)


def _swept_between(blot: Blot, text: str, at: int, end: int, kept: int, out: list[str]) -> int:
    """Add to `out` what is in front of each match that begins between these, and what stands in its place. `kept`: up to where the text
    is there already; returns the new one."""
    for match in blot.pattern.compiled.finditer(text, at, min(len(text), end + blot.pattern.reach)):
        start = match.start()
        if start >= end:
            break
        if start < kept:  # blotted out by the one before it
            continue
        found = blot.put(match)
        if found is not None:
            stop, mark = found
            out += (text[kept:start], mark)
            kept = stop
    return kept
