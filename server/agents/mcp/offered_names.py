"""The names that the tools, prompts and resources of an upstream have here, and the choice of its tools.

With an `id` a name gets it in front: `files__read`, or keeps such a name ready for where another has the first (`prefix = "on collision"`). Addresses are resource_addresses.py's,
and what pages may reach page_bounds.py's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, Self

import msgspec
from msgspec import UNSET, UnsetType

from server.agents.base.backend import Feature
from server.agents.mcp.asked_prices import AskedPrice, read_mark_up, tag_of
from server.agents.mcp.given_addresses import scheme_of
from server.agents.mcp.mcp_settings import McpConfig
from server.agents.mcp.offer_guard import BY_HAND, UpstreamLists
from server.agents.mcp.offered_pages import has_pages
from server.agents.mcp.page_bounds import PageBounds
from server.agents.mcp.resource_addresses import UpstreamAddresses
from server.mcp.app_pages import is_for, pages_in
from server.mcp.messages import Implementation, Prompt, Resource, ResourceTemplate, Tool
from server.mcp.schema import ToolSchema
from server.mcp.tool_names import MOST_LEGAL, LegalNames, legal

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class NamedLists(msgspec.Struct, frozen=True, kw_only=True):
    """The lists of an upstream as they are offered here, and what each entry is called there: by either of its names, where it has two."""

    tools: Sequence[Tool] = ()
    resources: Sequence[Resource] = ()
    resource_templates: Sequence[ResourceTemplate] = ()
    prompts: Sequence[Prompt] = ()
    tool_names: Mapping[str, str] = _NONE
    prompt_names: Mapping[str, str] = _NONE
    # The second names, for where another has the first: by "tool" and "prompt".
    seconds: Mapping[str, Mapping[str, str]] = MappingProxyType({"tool": _NONE, "prompt": _NONE})
    # Of tools some of whose arguments are repeated in headers.
    input_schemas: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    tasks: Mapping[str, str] = _NONE  # in the stateless era
    session_tasks: Mapping[str, str] = _NONE  # in the handshake era
    page_names: Mapping[str, str] = _NONE  # tools that its pages may call, by their names there
    completes: frozenset[tuple[str, str]] = frozenset()
    features: frozenset[Feature] = frozenset()
    schemes: frozenset[str] = frozenset()  # of the addresses that are listed, as they are there
    pages: frozenset[str] = frozenset()  # that its tools name
    instructions: str = ""
    introduction: Implementation | None = None
    prices: Mapping[str, AskedPrice] = MappingProxyType({})  # what it asks for them, by their names here

    @classmethod
    def of(cls, lists: UpstreamLists, config: McpConfig) -> Self:
        """Name what is in `lists` as the settings say."""
        prefix = "" if config.gives_way else config.front
        addresses = UpstreamAddresses(config.id)
        within = bounds_of(config).of
        mark_up = read_mark_up(config.mark_up) if config.mark_up else None
        banner = f"[{config.id}] " if config.banner and config.id else ""
        names, tools = LegalNames(), dict[str, Tool]()
        stateless, sessions = (lists.tasks, lists.session_tasks) if lists.modern else (_NONE, lists.tasks)
        tool_names: dict[str, str] = {}
        for tool in lists.tools:
            if not selected(tool.name, config.tools):
                continue
            name = names.give(prefix + legal(config.rename.get(tool.name, tool.name)))
            price = lists.prices.get(tool.name)
            meta = tool.meta
            if mark_up is not None and price is not None:
                meta = {**({} if meta is UNSET else meta), **tag_of(price, mark_up)}
            tools[name] = within(
                addresses.tool(
                    msgspec.structs.replace(
                        tool,
                        name=name,
                        title=tool.name
                        if tool.title is UNSET and not name.endswith(tool.name)
                        else tool.title,
                        description=_with_banner(tool.description, banner),
                        meta=meta,
                        execution=BY_HAND if tool.name in sessions else tool.execution,
                    )
                )
            )
            tool_names[name] = tool.name
        prompts = {
            prefix + prompt.name: addresses.prompt(
                msgspec.structs.replace(
                    prompt, name=prefix + prompt.name, description=_with_banner(prompt.description, banner)
                )
            )
            for prompt in lists.prompts
        }
        seconds: dict[str, dict[str, str]] = {"tool": {}, "prompt": {}}
        prompt_names = {prefix + prompt.name: prompt.name for prompt in lists.prompts}
        schemas = {name: tool.input_schema for name, tool in tools.items() if ToolSchema(tool).mirrored}
        if config.gives_way:
            for name, theirs in list(tool_names.items()):
                second = names.give(config.front + legal(config.rename.get(theirs, theirs)))
                seconds["tool"][name], tool_names[second] = second, theirs
                if name in schemas:
                    schemas[second] = schemas[name]
            seconds["prompt"] = {name: config.front + name for name in prompts}
            prompt_names |= {second: prompt_names[name] for name, second in seconds["prompt"].items()}
        templates = [within(addresses.template(each)) for each in lists.resource_templates]
        completes: set[tuple[str, str]] = set()
        if "completions" in lists.features:
            completes |= {("prompt", name) for name in prompt_names}
            completes |= {("resource", each.uri_template) for each in templates}
        return cls(
            tools=list(tools.values()),
            resources=[within(addresses.resource(each)) for each in lists.resources],
            resource_templates=templates,
            prompts=list(prompts.values()),
            tool_names=tool_names,
            prompt_names=prompt_names,
            seconds=seconds,
            tasks={name: stateless[theirs] for name, theirs in tool_names.items() if theirs in stateless},
            session_tasks={
                name: sessions[theirs] for name, theirs in tool_names.items() if theirs in sessions
            },
            page_names={
                theirs: name
                for name, theirs in tool_names.items()
                if name in tools and is_for(tools[name].meta, "app")
            }
            if has_pages(lists)
            else _NONE,
            completes=frozenset(completes),
            features=lists.features,
            schemes=frozenset(
                scheme_of(address)
                for address in (
                    *(each.uri for each in lists.resources),
                    *(each.uri_template for each in lists.resource_templates),
                )
            ),
            pages=frozenset(page for tool in tools.values() for page in pages_in(tool.meta)),
            input_schemas=schemas,
            instructions=lists.instructions,
            # Nobody has accepted anything of it where it has nothing to offer.
            introduction=lists.introduction if tools or prompts or templates or lists.resources else None,
            prices={
                name: lists.prices[theirs] for name, theirs in tool_names.items() if theirs in lists.prices
            },
        )


NO_NAMED_LISTS: Final = NamedLists()


def bounds_of(config: McpConfig) -> PageBounds:
    return PageBounds(config.page_hosts or (), config.page_permissions)


def is_called(name: str, theirs: str, config: McpConfig) -> bool:
    """Say whether a tool of the upstream would have this name here, but for a number behind it."""
    own = legal(config.rename.get(theirs, theirs))
    fronts = ("", config.front) if config.gives_way else (config.front,)
    return any(name == (front + own)[:MOST_LEGAL] for front in fronts)


def chosen(lists: UpstreamLists, config: McpConfig) -> UpstreamLists:
    """Return the lists without the tools that the settings leave out."""
    if not config.tools:
        return lists
    tools = [tool for tool in lists.tools if selected(tool.name, config.tools)]
    return msgspec.structs.replace(lists, tools=tools)


def selected(name: str, words: Sequence[str]) -> bool:
    """Return whether a tool is offered: the last word that fits counts. Where the first takes away, it takes from all there are."""
    if not words:
        return True
    found = words[0].startswith("!")
    for word in words:
        if fnmatchcase(name, word.removeprefix("!")):
            found = not word.startswith("!")
    return found


def _with_banner(description: str | UnsetType, banner: str) -> str | UnsetType:
    if not banner:
        return description
    return (banner + ("" if description is UNSET else description)).rstrip()
