"""A server's own account of itself and of what it has: the handshake, discovery, and the pages of each list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, Literal, TypeAlias, cast

import msgspec

from server.agents.base.catalog import ToolEntry
from server.calls.prompt_methods import visible_prompts
from server.calls.request import Request
from server.calls.resource_methods import visible_resources, visible_templates
from server.calls.rights.standing import Standing
from server.calls.rights.visitors import is_visitor
from server.mcp.carried_extensions import draws_pages
from server.mcp.errors import MethodNotFound
from server.mcp.messages import Prompt, Resource, ResourceTemplate, Tool
from server.mcp.method_params import LevelParams, ListParams
from server.mcp.result_encoding import DiscoverResult, EmptyResult, InitializeResult, ListResult, Offers
from server.mcp.task_faces import Face, wasmagent_tool
from server.mcp.tool_names import FIND_TOOLS

Listed: TypeAlias = Tool | Resource | ResourceTemplate | Prompt
ListName: TypeAlias = Literal["tools", "resources", "resourceTemplates", "prompts"]


async def initialize(request: Request) -> InitializeResult:
    return InitializeResult(_declared(request))


async def discover(request: Request) -> DiscoverResult:
    return DiscoverResult(_declared(request))


async def ping(_request: Request) -> EmptyResult:
    return EmptyResult()


async def set_level(request: Request) -> EmptyResult:
    if request.session is not None:
        request.session.set_level(cast("LevelParams", request.route.params).level)
        await request.session.shared()
    return EmptyResult()


async def list_tools(request: Request) -> ListResult:
    """List the tools, a page at a time. Raises `BadCursor`."""
    endpoint = request.endpoint
    entries, after = endpoint.cursors.cut(
        "tools",
        endpoint.catalog.entries(),
        _NAME,
        cast("ListParams", request.route.params).cursor,
        endpoint.page_size,
        _listed(request),
    )
    tools = [entry.tool for entry in entries]
    if endpoint.task_face(request.revision) is Face.WASMAGENT:
        tools = [wasmagent_tool(tool) for tool in tools]
    return ListResult("tools", tools, after)


def _listed(request: Request) -> Callable[[ToolEntry], bool]:
    """Return which tools are in the caller's list."""
    endpoint, principal = request.endpoint, request.principal
    if FIND_TOOLS in endpoint.catalog.tools:
        from server.calls.servers.tool_search import listed_for

        return listed_for(
            endpoint, principal, request.headers, request.route.params.meta, pages=draws_pages(request.can)
        )
    standing, all_of_them = endpoint.rights.standing, draws_pages(request.can)
    return lambda entry: (
        (all_of_them or not entry.for_pages) and standing(principal, entry) is not Standing.HIDDEN
    )


async def list_resources(request: Request) -> ListResult:
    return _page(request, "resources", await visible_resources(request))


async def list_templates(request: Request) -> ListResult:
    return _page(request, "resourceTemplates", visible_templates(request))


async def list_prompts(request: Request) -> ListResult:
    return _page(request, "prompts", visible_prompts(request))


def _declared(request: Request) -> Offers:
    """Return what the server has, with the extensions of its agents for whoever is no stranger."""
    offers = offers_of(request)
    if is_visitor(request.principal):
        return offers
    return msgspec.structs.replace(offers, extensions=request.endpoint.catalog.extensions())


def offers_of(request: Request) -> Offers:
    """Return what the server has for this caller on this wire: whatever any agent has now."""
    endpoint, modern = request.endpoint, request.revision.modern
    there = endpoint.catalog.features
    face = endpoint.task_face(request.revision)
    told_of_changes = modern or endpoint.sessions is not None
    if is_visitor(request.principal):
        tasks = face is not None and face is not Face.WASMAGENT
        return Offers(tasks=tasks, task_list=False, changes=False, instructions=False)
    return Offers(
        resources=endpoint.has_resources,
        prompts="prompts" in there,
        completions="completions" in there,
        subscribe=told_of_changes and "subscribe" in there,
        logging=told_of_changes and "logging" in there,
        tasks=face is not None,
        skills="skills" in there,
        payments=endpoint.x402_extension,
        wasmagent=face is Face.WASMAGENT,
        task_list=request.principal.identified,
        changes=told_of_changes,
    )


def check_offered(request: Request) -> None:
    """Refuse a method that the server does not have for this caller. A list of what is not offered is empty to clients of the handshake
    era: they ask whatever was declared, and an error there is shown to people. Raises `MethodNotFound`."""
    method = request.route.method
    if method.session and request.session is None:
        raise MethodNotFound(method.name)
    if method.feature is None or (method.params is ListParams and not request.revision.modern):
        return
    if not getattr(offers_of(request), method.feature):
        raise MethodNotFound(method.name)


def _page(request: Request, name: ListName, items: Sequence[Listed]) -> ListResult:
    """Cut a page. Raises `BadCursor`."""
    cursor = cast("ListParams", request.route.params).cursor
    endpoint = request.endpoint
    return ListResult(name, *endpoint.cursors.cut(name, items, _KEY, cursor, endpoint.page_size))


def _key_of(item: Listed) -> str:
    if isinstance(item, Resource):
        return item.uri
    return item.uri_template if isinstance(item, ResourceTemplate) else item.name


_KEY: Final[Callable[[Listed], str]] = _key_of
_NAME: Final[Callable[[ToolEntry], str]] = attrgetter("tool.name")
