"""`read_resource`: a tool that lists and reads resources, for clients that know tools alone. A resource that somebody may not read by
`resources/read` is not had here either, nor told of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from msgspec import UNSET

from auth.values.identity_model import Principal
from server.agents.base.backend import NO_ARGUMENTS, AgentRequest, NoSuchResource, ResourceRead, ToolCall
from server.agents.base.catalog import ResourceEntry, Source, TemplateEntry
from server.calls.rights.standing import Standing, insufficient
from server.calls.servers.me_resource import is_somebody
from server.mcp.call_outlet import Outlet
from server.mcp.errors import MAX_SAID
from server.mcp.messages import (
    AudioContent,
    Content,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    Tool,
    ToolAnnotations,
)
from server.mcp.result_encoding import ToolResult
from server.mcp.terms import CallTerms

if TYPE_CHECKING:
    from server.calls.servers.endpoint import Endpoint

NAME: Final = "read_resource"
# What a list tells at once; a page of `resources/list` is as long, or longer.
MOST_LISTED: Final = 200
LONGEST_ADDRESS: Final = 8192


class ResourceReader:
    """Implements `Backend`, and `HasFreeTools`."""

    costless: Final = True

    def __init__(self, name: str, endpoint: Callable[[], Endpoint]) -> None:
        self._endpoint = endpoint
        self._tool = Tool(
            name=name,
            title="Read a resource",
            description="Reads a resource of this server by its uri. Without a uri it lists the resources that there are.",
            input_schema={
                "type": "object",
                "properties": {
                    "uri": {
                        "type": "string",
                        "description": "Which one: as it is listed, or a listed template filled in",
                        "maxLength": LONGEST_ADDRESS,
                    }
                },
                "additionalProperties": False,
            },
            annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True),
        )

    def tools(self) -> Sequence[Tool]:
        return (self._tool,)

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        """Read a resource, or list those that there are. Raises `InsufficientScope`, and what its agent raises."""
        uri = call.arguments.get("uri")
        if uri is None:
            return ToolResult(content=self._list(cast("Principal", call.caller)))
        try:
            contents = await self._read(uri, call, outlet)
        except NoSuchResource as error:
            text = (
                str(error) or "There is no such resource. Without a uri this tool lists those that there are."
            )
            return ToolResult(content=(TextContent(text=text[:MAX_SAID]),), is_error=True)
        return ToolResult(content=tuple(_as_content(each) for each in contents))

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""

    def _list(self, caller: Principal) -> Sequence[Content]:
        endpoint = self._endpoint()
        stands = endpoint.rights.standing
        own = () if endpoint.me is None or not is_somebody(caller) else endpoint.me.listed
        hidden = {resource.uri for resource in own}
        resources = [
            *(
                entry.resource
                for entry in endpoint.catalog.resources()
                if entry.resource.uri not in hidden and stands(caller, entry) is not Standing.HIDDEN
            ),
            *own,
        ]
        templates = [
            entry.template
            for entry in endpoint.catalog.templates()
            if stands(caller, entry) is not Standing.HIDDEN
        ]
        lines = [_line(each.uri, each.title, each.description) for each in resources[:MOST_LISTED]]
        lines += [_line(each.uri_template, each.title, each.description) for each in templates[:MOST_LISTED]]
        more = len(resources) + len(templates) - len(lines)
        if more:
            lines.append(f"and {more} more")
        links = [
            ResourceLink(uri=each.uri, name=each.name, mime_type=each.mime_type)
            for each in resources[:MOST_LISTED]
        ]
        return (TextContent(text="\n".join(lines) or "There are no resources."), *links)

    async def _read(self, uri: str, call: ToolCall, outlet: Outlet) -> Sequence[ResourceContents]:
        endpoint, caller = self._endpoint(), cast("Principal", call.caller)
        me = endpoint.me
        if me is not None and me.has(uri) and is_somebody(caller):
            return (await me.read(uri, caller),)
        entry: ResourceEntry | TemplateEntry | None = endpoint.catalog.resource(uri)
        arguments = NO_ARGUMENTS
        if entry is None and (fitting := endpoint.catalog.fitting(uri)) is not None:
            entry, arguments = fitting
        if entry is None and len(uri) <= LONGEST_ADDRESS:
            entry = endpoint.catalog.unlisted(uri, call)
        standing = Standing.HIDDEN if entry is None else endpoint.rights.standing(caller, entry)
        if entry is None or standing is Standing.HIDDEN:
            raise NoSuchResource("")
        if standing is Standing.GRANTABLE:
            raise insufficient(caller, entry.terms)
        asked = {name: getattr(call, name) for name in _OF_EVERY_CALL}
        template = entry.template.uri_template if isinstance(entry, TemplateEntry) else None
        question = ResourceRead(uri=uri, template=template, arguments=arguments, **asked)
        contents = await entry.backend.read(question, outlet)
        if not contents:
            raise NoSuchResource("")
        return contents


_OF_EVERY_CALL: Final = AgentRequest.__struct_fields__


def reader(name: str, endpoint: Callable[[], Endpoint]) -> Source:
    """Make the tool. `name`: its own, if it is to have another than it has by itself."""
    return Source(name="read_resource", backend=ResourceReader(name or NAME, endpoint), terms=CallTerms())


def _line(uri: str, title: object, description: object) -> str:
    words = [str(text) for text in (title, description) if text is not UNSET and text]
    return f"{uri}: {' – '.join(words)}" if words else uri


def _as_content(contents: ResourceContents) -> Content:
    """Return contents as a client shows them that knows of no resources: words as words, pictures as pictures."""
    if contents.text is not UNSET:
        return TextContent(text=contents.text)
    kind = "" if contents.mime_type is UNSET else contents.mime_type
    if contents.blob is not UNSET and kind.startswith("image/"):
        return ImageContent(data=contents.blob, mime_type=kind)
    if contents.blob is not UNSET and kind.startswith("audio/"):
        return AudioContent(data=contents.blob, mime_type=kind)
    return EmbeddedResource(resource=contents)
