"""`discovery = "search"`: two tools in place of a long list. One finds tools of this server, the other calls one by its name.

A caller finds what its own list would have. A call by name becomes the call of that tool before anything looks at it, so rights, rules,
price and records are the real tool's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import UNSET

from auth.values.identity_model import Principal
from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Source, ToolEntry
from server.calls.rights.standing import Standing
from server.lib.json_objects import mapping
from server.lib.text_ranking import TextRanking
from server.mcp.call_outlet import Outlet
from server.mcp.inbound_messages import Headers
from server.mcp.messages import TextContent, Tool, ToolAnnotations
from server.mcp.method_params import CallToolParams, RequestMeta
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import PRICE_META, CallTerms
from server.mcp.tool_names import CALL_TOOL, FIND_TOOLS

if TYPE_CHECKING:
    from server.calls.servers.endpoint import Endpoint

# By this a client that searches by itself gets the whole list; in `_meta` it is "io.ostiary/discovery".
HEADER: Final = b"ostiary-discovery"
FOUND: Final = 5
MOST_FOUND: Final = 20
QUESTION_CHARACTERS: Final = 1000
# Names of agents that the description tells.
AREAS: Final = 30
# A tool's name says most of what it does; what its arguments are about is a hint.
# Of one description, and of all that a tool says of its arguments: agents of others may say much more, and it is counted at once.
COUNTED_CHARACTERS: Final = 1000
MOST_ARGUMENTS: Final = 50
_NAME, _TITLE, _DESCRIPTION, _ARGUMENTS = 3.0, 2.0, 1.0, 0.4


class ToolSearch:
    """Implements `Backend`, and `HasFreeTools`."""

    costless: Final = True

    def __init__(self, areas: Sequence[str], endpoint: Callable[[], Endpoint]) -> None:
        """Keep the parts. `areas`: what the tools are of, for a model that wonders whether to search here."""
        self._endpoint = endpoint
        self._tools = _tools_of(areas)
        self._ranked: Sequence[ToolEntry] = ()
        self._ranking = TextRanking(())

    def tools(self) -> Sequence[Tool]:
        return self._tools

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        if call.tool == CALL_TOOL:  # one that names no other tool; all others became that tool's call
            text = f"Name the tool to call, as {FIND_TOOLS} gives it, and its arguments."
            return ToolResult(content=(TextContent(text=text),), is_error=True)
        found = self._find(call.arguments["question"], cast("Principal", call.caller))
        if not found:
            text = "No tool fits. Try other words: what is to be done, and with what."
            return ToolResult(content=(TextContent(text=text),))
        most = call.arguments.get("most", FOUND)
        tools = [_shown(entry.tool) for entry in found[:most]]
        more = [entry.tool.name for entry in found[most : most + MOST_FOUND]]
        return ToolResult(content=(), structured={"tools": tools, **({"alsoNamed": more} if more else {})})

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""

    def _find(self, question: str, caller: Principal) -> Sequence[ToolEntry]:
        endpoint = self._endpoint()
        entries = endpoint.catalog.entries()
        if entries is not self._ranked:
            self._ranking = TextRanking(_words_of(entry.tool) for entry in entries)
            self._ranked = entries
        standing = endpoint.rights.standing
        best = (entries[place] for place in self._ranking.best(question))
        return [
            each
            for each in best
            if each.backend is not self
            and not each.for_pages
            and standing(caller, each) is not Standing.HIDDEN
        ]


def search(areas: Sequence[str], endpoint: Callable[[], Endpoint]) -> Source:
    """Return the two tools as an agent of the server."""
    return Source(name='discovery = "search"', backend=ToolSearch(areas, endpoint), terms=CallTerms())


def listed_for(
    endpoint: Endpoint, principal: Principal, headers: Headers | None, meta: RequestMeta, *, pages: bool
) -> Callable[[ToolEntry], bool]:
    """Return which tools a list shows: the two, or all the others to a caller who wants them or may not search. Tools for pages alone are shown
    to clients that draw `pages`."""
    standing = endpoint.rights.standing
    finder = endpoint.catalog.tools[FIND_TOOLS]
    asked = meta.discovery
    if asked is UNSET and headers is not None:
        asked = headers.get(HEADER, b"").decode("latin-1")
    if not isinstance(finder.backend, ToolSearch):  # an agent's tool of that name
        return lambda entry: (
            (pages or not entry.for_pages) and standing(principal, entry) is not Standing.HIDDEN
        )
    if asked == "list" or standing(principal, finder) is Standing.HIDDEN:
        return lambda entry: (
            not isinstance(entry.backend, ToolSearch)
            and (pages or not entry.for_pages)
            and standing(principal, entry) is not Standing.HIDDEN
        )
    return lambda entry: (
        isinstance(entry.backend, ToolSearch)
        or (pages and entry.for_pages and standing(principal, entry) is not Standing.HIDDEN)
    )


def named_by(params: CallToolParams, endpoint: Endpoint) -> CallToolParams:
    """Return the call that a call of `call_tool` stands for, or the call itself if it names none."""
    entry = endpoint.catalog.tools.get(CALL_TOOL)
    given = params.arguments or {}
    name, arguments = given.get("name"), given.get("arguments", {})
    if entry is None or not isinstance(entry.backend, ToolSearch):
        return params
    if not isinstance(name, str) or name == CALL_TOOL or not isinstance(arguments, dict):
        return params
    return msgspec.structs.replace(params, name=name, arguments=cast("dict[str, Any]", arguments))


def _tools_of(areas: Sequence[str]) -> Sequence[Tool]:
    named = ", ".join(areas[:AREAS])
    of = f" Here are tools of: {named}{', …' if len(areas) > AREAS else ''}." if named else ""
    return (
        Tool(
            name=FIND_TOOLS,
            title="Find tools",
            description=f"Finds tools of this server by what they do.{of} Each comes with its description and the schema of its arguments;"
            f" {CALL_TOOL} calls it.",
            input_schema={
                "type": "object",
                "properties": {
                    "question": {
                        "type": "string",
                        "description": "What is to be done, in a few words, such as: create a calendar event",
                        "minLength": 1,
                        "maxLength": QUESTION_CHARACTERS,
                    },
                    "most": {
                        "type": "integer",
                        "description": "How many tools to describe at most",
                        "minimum": 1,
                        "maximum": MOST_FOUND,
                        "default": FOUND,
                    },
                },
                "required": ["question"],
                "additionalProperties": False,
            },
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        ),
        Tool(
            name=CALL_TOOL,
            title="Call a tool",
            description=f"Calls a tool that {FIND_TOOLS} has found, and answers what that tool answers.",
            input_schema={
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "The name of the tool", "maxLength": 128},
                    "arguments": {"type": "object", "description": "Its arguments, as its schema has them"},
                },
                "required": ["name"],
                "additionalProperties": False,
            },
            # It may be any tool.
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
        ),
    )


def _shown(tool: Tool) -> Mapping[str, Any]:
    shown: dict[str, Any] = {"name": tool.name}
    if tool.description is not UNSET:
        shown["description"] = tool.description
    shown["inputSchema"] = tool.input_schema
    if tool.meta is not UNSET and PRICE_META in tool.meta:
        shown["_meta"] = {PRICE_META: tool.meta[PRICE_META]}
    return shown


def _words_of(tool: Tool) -> Sequence[tuple[str, float]]:
    said: list[str] = []
    for name, schema in islice(mapping(tool.input_schema.get("properties")).items(), MOST_ARGUMENTS):
        said.append(f"{name} {mapping(schema).get('description', '')}"[:COUNTED_CHARACTERS])
    return (
        (tool.name, _NAME),
        ("" if tool.title is UNSET else tool.title[:COUNTED_CHARACTERS], _TITLE),
        ("" if tool.description is UNSET else tool.description[:COUNTED_CHARACTERS], _DESCRIPTION),
        (" ".join(said)[:COUNTED_CHARACTERS], _ARGUMENTS),
    )
