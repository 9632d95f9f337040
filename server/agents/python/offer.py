"""What an agent's process says it offers, taken as that of a stranger: bounded, checked, and made into MCP's nouns.

A tool's schemas are compiled here too, so that an agent whose tools could not be offered is refused as a whole, with the
reason, while its predecessor goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw

from server.lib.shortened import short_name
from server.mcp.messages import Prompt, Resource, ResourceTemplate, Tool, ToolExecution
from server.mcp.schema import BadTool, ToolSchema

CATALOG_BYTES: Final = 4 * 1024 * 1024
ENTRIES: Final = 1000  # of one kind; no client shows and no model reads as many
NAME_CHARACTERS: Final = 256
URI_CHARACTERS: Final = 2048
# The longest that one tool may ask to be given. The server's own net hangs a little below it.
LONGEST_SECONDS: Final = 24 * 3600.0


class BadOffer(ValueError):
    """What is offered cannot be; the text says what to change."""


class AgentOffer(msgspec.Struct, frozen=True, kw_only=True):
    tools: Sequence[Tool] = ()
    deadlines: Mapping[str, float] = MappingProxyType({})  # of the tools that have one of their own
    resources: Sequence[Resource] = ()
    resource_templates: Sequence[ResourceTemplate] = ()
    prompts: Sequence[Prompt] = ()
    completes: frozenset[tuple[str, str]] = frozenset()
    price_functions: frozenset[str] = frozenset()
    curious: frozenset[str] = frozenset()  # tools whose functions ask who calls
    lenient: frozenset[str] = frozenset()  # tools that take a text for what it says


NOTHING: Final = AgentOffer()


class _Tool(Tool, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    task_by_hand: bool = False
    deadline_seconds: Annotated[float, Meta(gt=0, le=LONGEST_SECONDS)] | None = None
    wants_caller: bool = False
    coerces: bool = False


_List = Meta(max_length=ENTRIES)


class _Catalog(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    tools: Annotated[list[_Tool], _List] = []
    resources: Annotated[list[Resource], _List] = []
    resource_templates: Annotated[list[ResourceTemplate], _List] = []
    prompts: Annotated[list[Prompt], _List] = []
    completes: Annotated[list[tuple[str, str]], Meta(max_length=2 * ENTRIES)] = []  # prompts and templates
    price_functions: Annotated[list[str], _List] = []


_decode: Final = msgspec.json.Decoder(_Catalog).decode


def read_offer(catalog: Raw) -> AgentOffer:
    """Raises `BadOffer`."""
    if len(catalog) > CATALOG_BYTES:
        raise BadOffer(f"what it offers takes more than {CATALOG_BYTES // 1024} KiB to say")
    try:
        given = _decode(catalog)
    except (ValueError, RecursionError) as error:
        raise BadOffer(f"what it offers cannot be read: {error}") from error
    _check_names("tool", (tool.name for tool in given.tools))
    _check_names("prompt", (prompt.name for prompt in given.prompts))
    _check_names("resource", (resource.uri for resource in given.resources), URI_CHARACTERS)
    _check_names("template", (each.uri_template for each in given.resource_templates), URI_CHARACTERS)
    tools = [_tool(tool) for tool in given.tools]
    for tool in tools:
        try:
            ToolSchema(tool)
        except BadTool as error:
            raise BadOffer(str(error)) from error
    return AgentOffer(
        tools=tools,
        deadlines={t.name: t.deadline_seconds for t in given.tools if t.deadline_seconds is not None},
        resources=given.resources,
        resource_templates=given.resource_templates,
        prompts=given.prompts,
        completes=frozenset(given.completes),
        price_functions=frozenset(given.price_functions),
        lenient=frozenset(t.name for t in given.tools if t.coerces),
        curious=frozenset(t.name for t in given.tools if t.wants_caller),
    )


def _tool(given: _Tool) -> Tool:
    fields: dict[str, Any] = {name: getattr(given, name) for name in Tool.__struct_fields__}
    if given.task_by_hand:
        fields["execution"] = ToolExecution(task_support="optional", by_hand=True)
    return Tool(**fields)


def _check_names(what: str, names: Iterable[str], longest: int = NAME_CHARACTERS) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or len(name) > longest:
            raise BadOffer(f"it offers a {what} whose name is empty or longer than {longest} characters")
        if name in seen:
            raise BadOffer(f"it offers the {what} {short_name(name)} twice")
        seen.add(name)
