"""Resources: which ones this caller may know of, reading one, and watching it in a session. One that a caller may not know of is not
found. Spec: server/resources (2026-07-28)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from server.agents.base.backend import NO_ARGUMENTS, AgentRequest, Following, NoSuchResource, ResourceRead
from server.agents.base.catalog import ResourceEntry, TemplateEntry
from server.calls.agent_use import perform
from server.calls.question_routes import resumable
from server.calls.request import Request
from server.calls.rights.standing import Standing
from server.calls.servers.endpoint import Endpoint
from server.calls.servers.me_resource import ME, MY_TERMS, Me, is_somebody
from server.mcp.call_outlet import Outlet
from server.mcp.errors import UnknownResource
from server.mcp.messages import Resource, ResourceContents, ResourceTemplate
from server.mcp.method_params import ReadResourceParams, UriParams
from server.mcp.result_encoding import EmptyResult, InputRequiredResult, ReadResourceResult

# Longer ones are no address of anything that was listed. What a template may be compared with is shorter (uri_template.py).
LONGEST_ADDRESS: Final = 8192

_ALLOWED: Final = Standing.ALLOWED
NOBODY: Final = AgentRequest(subject="", call_id="")  # to whom no answer has named anything


async def visible_resources(request: Request) -> Sequence[Resource]:
    endpoint = request.endpoint
    me = _own(request, ME)
    own = () if me is None else me.listed
    hidden = {resource.uri for resource in own}
    # Ours comes last, and hides an agent's of the same address.
    return [
        *(
            entry.resource
            for entry in endpoint.catalog.resources()
            if entry.resource.uri not in hidden and _stands(request, entry) is not Standing.HIDDEN
        ),
        *(
            entry.resource
            for entry in await endpoint.catalog.resources_of(asking(request))
            if entry.resource.uri not in hidden and _stands(request, entry) is not Standing.HIDDEN
        ),
        *own,
    ]


def visible_templates(request: Request) -> Sequence[ResourceTemplate]:
    return [
        entry.template
        for entry in request.endpoint.catalog.templates()
        if _stands(request, entry) is not Standing.HIDDEN
    ]


def readable(request: Request, uri: str) -> bool:
    """Return whether the caller may read it, as far as can be said without reading it."""
    if _own(request, uri) is not None:
        return True
    try:
        found = _find(request.endpoint, uri) or _find_unlisted(request.endpoint, uri, asking(request, uri))
    except NoSuchResource:
        return False
    return found is not None and _stands(request, found[0]) is _ALLOWED


async def read_resource(request: Request) -> ReadResourceResult | InputRequiredResult:
    params = cast("ReadResourceParams", request.route.params)

    async def read(line: Outlet, resumed: object) -> ReadResourceResult:
        return ReadResourceResult(await _read(request, params.uri, line, resumed))

    return await resumable(request, params, {"uri": params.uri}, read)


async def subscribe(request: Request) -> EmptyResult:
    uri = cast("UriParams", request.route.params).uri
    if not readable(request, uri):
        raise UnknownResource(uri)
    if request.session is not None:
        request.session.watch(uri)
        follow(request.endpoint, uri, asking(request, uri))
        await request.session.shared()
    return EmptyResult()


def follow(endpoint: Endpoint, uri: str, asked: AgentRequest = NOBODY) -> None:
    """Tell whoever has it that somebody listens for its changes."""
    try:
        found = _find(endpoint, uri) or _find_unlisted(endpoint, uri, asked)
    except NoSuchResource:
        return
    if found is not None and isinstance(found[0].backend, Following):
        found[0].backend.follow(uri, None if asked is NOBODY else asked)


async def unsubscribe(request: Request) -> EmptyResult:
    if request.session is not None:
        request.session.unwatch(cast("UriParams", request.route.params).uri)
        await request.session.shared()
    return EmptyResult()


async def _read(request: Request, uri: str, line: Outlet, resumed: object) -> Sequence[ResourceContents]:
    me = _own(request, uri)
    if me is not None:

        async def tell(_outlet: Outlet) -> tuple[Sequence[ResourceContents], str]:
            return (await me.read(uri, request.principal),), "ok"

        return await perform(request, uri, MY_TERMS, _ALLOWED, tell, line)
    try:
        found = (
            _find(request.endpoint, uri)
            or await _find_personal(request, uri)
            or _find_unlisted(request.endpoint, uri, asking(request, uri))
        )
    except NoSuchResource as error:
        raise UnknownResource(uri, str(error)) from error
    if found is None or (standing := _stands(request, found[0])) is Standing.HIDDEN:
        raise UnknownResource(uri)
    entry, arguments = found
    template = entry.template.uri_template if isinstance(entry, TemplateEntry) else None

    async def read(outlet: Outlet) -> tuple[Sequence[ResourceContents], str]:
        question = asking(request, uri, template, arguments, resumed)
        try:
            contents = await entry.backend.read(question, outlet)
        except NoSuchResource as error:
            raise UnknownResource(uri, str(error)) from error
        if not contents:
            # An empty list would say that it is there and has no content.
            raise UnknownResource(uri)
        return contents, "ok"

    if (policy := request.endpoint.catalog.policy) is not None:
        from server.calls.policy_stage import read_through

        return await perform(
            request, template or uri, entry.terms, standing, read_through(policy, read), line
        )
    return await perform(request, template or uri, entry.terms, standing, read, line)


def _own(request: Request, uri: str) -> Me | None:
    """Return what the server itself has under this address for this caller."""
    me = request.endpoint.me
    known = me is not None and me.has(uri) and is_somebody(request.principal)
    return me if known else None


def _find(endpoint: Endpoint, uri: str) -> tuple[ResourceEntry | TemplateEntry, Mapping[str, str]] | None:
    if len(uri) > LONGEST_ADDRESS:
        return None
    catalog = endpoint.catalog
    entry = catalog.resource(uri)
    return catalog.fitting(uri) if entry is None else (entry, NO_ARGUMENTS)


async def _find_personal(request: Request, uri: str) -> tuple[ResourceEntry, Mapping[str, str]] | None:
    """Find what exists for this caller alone."""
    if len(uri) > LONGEST_ADDRESS:
        return None
    for entry in await request.endpoint.catalog.resources_of(asking(request)):
        if entry.resource.uri == uri:
            return entry, NO_ARGUMENTS
    return None


def _find_unlisted(
    endpoint: Endpoint, uri: str, asked: AgentRequest
) -> tuple[ResourceEntry, Mapping[str, str]] | None:
    """Find a resource that nobody lists. Raises `NoSuchResource`."""
    entry = None if len(uri) > LONGEST_ADDRESS else endpoint.catalog.unlisted(uri, asked)
    return None if entry is None else (entry, NO_ARGUMENTS)


def asking(
    request: Request,
    uri: str = "",
    template: str | None = None,
    arguments: Mapping[str, str] = NO_ARGUMENTS,
    resumed: object = None,
) -> ResourceRead:
    return ResourceRead(
        uri=uri,
        template=template,
        arguments=arguments,
        subject=request.principal.subject,
        sharer=request.sharer,
        caller=request.principal,
        call_id=request.call_id,
        can=request.can,
        resumed=resumed,
        wants_progress=request.wants_progress,
        log_level=request.log_level(),
        came=request.route.came,
        handshake=request.handshake,
        session_can=None if request.session is None else request.session.can,
        origin=request,
    )


def _stands(request: Request, entry: ResourceEntry | TemplateEntry) -> Standing:
    return request.endpoint.rights.standing(request.principal, entry)
