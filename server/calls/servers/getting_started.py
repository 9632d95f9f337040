"""`getting_started`: a tool that tells a model, in words, what there is on this server for its caller.

The words are made of what the caller could find out otherwise: the tools that it may know of, what they cost it and how often it may call
them, resources, prompts. The same catalogue and the same caller get the same words. It reads nothing but memory, so it is quick.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import UNSET

from auth.values.identity_model import Principal
from server.agents.base.backend import ToolCall
from server.agents.base.catalog import AnyEntry, Source, ToolEntry
from server.calls.rights.standing import Standing
from server.calls.rights.visitors import is_visitor
from server.lib.counted import counted
from server.mcp.call_outlet import Outlet
from server.mcp.messages import TextContent, Tool, ToolAnnotations
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import PRICE_META, CallTerms

if TYPE_CHECKING:
    from server.calls.servers.endpoint import Endpoint

NAME: Final = "getting_started"
# As many as a model reads with some profit; the rest is in the list.
MOST_TOOLS: Final = 100
MOST_CHARACTERS: Final = 200

_SENTENCE: Final = re.compile(r".*?[.!?](?=\s|$)", re.DOTALL)


class GettingStarted:
    """Implements `Backend`, and `HasFreeTools`."""

    costless: Final = True

    def __init__(self, name: str, endpoint: Callable[[], Endpoint]) -> None:
        self._endpoint = endpoint
        self._tool = Tool(
            name=name,
            title="Getting started",
            description="Tells what this server offers you, what it costs, and how often you may call it. Call it first.",
            input_schema={"type": "object", "properties": {}, "additionalProperties": False},
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        )

    def tools(self) -> Sequence[Tool]:
        return (self._tool,)

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        caller = cast("Principal", call.caller)
        return ToolResult(content=(TextContent(text=words_for(self._endpoint(), caller, self._tool.name)),))

    async def aclose(self) -> None:
        """Nothing is held."""


def guide(name: str, endpoint: Callable[[], Endpoint]) -> Source:
    """`name`: the tool's, if it is to have another than it has by itself."""
    return Source(
        name="getting_started",
        backend=GettingStarted(name or NAME, endpoint),
        terms=CallTerms(quick=True),
    )


def words_for(endpoint: Endpoint, caller: Principal, itself: str) -> str:
    catalog, info = endpoint.catalog, endpoint.identity.info
    known = [
        (entry, standing)
        for entry in catalog.entries()
        if entry.tool.name != itself and (standing := _stands(endpoint, caller, entry)) is not Standing.HIDDEN
    ]
    title = endpoint.name if info.title is UNSET else info.title
    said = [f"{title} offers you {_many(len(known), 'tool')}."]
    if info.description is not UNSET:
        said.append(info.description)
    # What its owner says to models is for those who may come in at all: whoever may know of some tools alone is told of these.
    if endpoint.identity.instructions is not None and not is_visitor(caller):
        said.append(endpoint.identity.instructions)
    if known:
        said.append("\n".join(_line(endpoint, entry, standing) for entry, standing in known[:MOST_TOOLS]))
    if len(known) > MOST_TOOLS:
        said.append(f"And {len(known) - MOST_TOOLS} more, which tools/list has.")
    quota = _quota(endpoint)
    if quota:
        said.append(quota)
    library = [
        (_seen(endpoint, caller, catalog.resources()), "resource"),
        (_seen(endpoint, caller, catalog.templates()), "resource template"),
        (_seen(endpoint, caller, catalog.prompts()), "prompt"),
    ]
    there = [_many(count, noun) for count, noun in library if count]
    if there:
        said.append(f"There {'is' if there[0].startswith('1 ') else 'are'} also {_joined(there)}.")
    return "\n\n".join(said)


def _line(endpoint: Endpoint, entry: ToolEntry, standing: Standing) -> str:
    tool, terms = entry.tool, entry.terms
    said = [f"- {tool.name}: {_first_sentence(tool.description)}" if tool.description else f"- {tool.name}"]
    if standing is Standing.GRANTABLE:
        said.append("Your login does not cover it yet: calling it asks for more.")
    if terms.tier == "financial":
        said.append("It moves money.")
    if entry.price is not None:
        price: Mapping[str, Any] = {} if tool.meta is UNSET else tool.meta.get(PRICE_META, {})
        said.append(f"It costs {price.get('words', 'something')}.")
    bounds = None if endpoint.limits is None else endpoint.limits.bounds
    if bounds is not None and (told := bounds.words(tool.name)):
        said.append(f"It may be called {told}.")
    return " ".join(said)


def _quota(endpoint: Endpoint) -> str:
    bounds = None if endpoint.limits is None else endpoint.limits.bounds
    return (
        ""
        if bounds is None or not bounds.quota
        else f"All tools together: {counted(bounds.quota, 'call')} a day."
    )


def _first_sentence(text: str | object) -> str:
    words = " ".join(str(text).split())
    found = _SENTENCE.match(words)
    first = words if found is None else found[0]
    return first if len(first) <= MOST_CHARACTERS else f"{first[: MOST_CHARACTERS - 1]}…"


def _seen(endpoint: Endpoint, caller: Principal, entries: Iterable[AnyEntry]) -> int:
    return sum(_stands(endpoint, caller, entry) is not Standing.HIDDEN for entry in entries)


def _stands(endpoint: Endpoint, caller: Principal, entry: AnyEntry) -> Standing:
    return endpoint.rights.standing(caller, entry)


def _many(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
