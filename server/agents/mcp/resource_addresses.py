"""Addresses of an upstream's resources, here and there.

Most are kept: they name what they name for whoever reads them. One that another server has already is offered with the `id` before its
scheme (`shop+note://1`). A page (`ui://…`) is always offered below the `id` (`ui://shop/…`), in lists and in answers: a host draws it beside
what a tool answers and lets it call tools, so no upstream may have one at an address of another's. One without an `id` keeps its own; what it answers of another's page
is offered where nobody's is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from server.mcp.app_pages import SCHEME, Change, authority_of, is_page, with_pages
from server.mcp.messages import (
    Block,
    Content,
    EmbeddedResource,
    Prompt,
    Resource,
    ResourceContents,
    ResourceLink,
    ResourceTemplate,
    Tool,
)
from server.mcp.result_encoding import PromptResult, ToolResult

T = TypeVar("T", Tool, Prompt, Resource, ResourceTemplate, ResourceContents, Content)


NOBODYS: Final = f"{SCHEME}_/"  # no `id` is written so


class UpstreamAddresses:
    """The addresses of one upstream. Without an `id` there is nothing to tell it from others by, and all of them are kept."""

    # Whether an address is one that another agent alone may have; None: there is no other.
    anothers: Callable[[str], bool] | None = None

    def __init__(self, upstream: str) -> None:
        """Keep the `id` of the upstream."""
        self._id = upstream
        self._pages: Final = f"{SCHEME}{upstream}/" if upstream else ""
        self._other = upstream.replace("_", "-") + "+" if upstream else ""

    # ── an address ───────────────────────────────────────────────────────────────────────────────────────────────────

    def ours(self, theirs: str) -> str:
        if self._pages and is_page(theirs):
            return self._pages + theirs[len(SCHEME) :]
        return theirs

    def answered(self, theirs: str) -> str:
        """Return the same of an answer, which nobody has looked at yet: without an `id`, another's page is not theirs to name."""
        if self._pages or self.anothers is None or not is_page(theirs) or not self.anothers(theirs):
            return self.ours(theirs)
        return NOBODYS + theirs[len(SCHEME) :]

    def theirs(self, ours: str) -> str:
        if self._pages:
            if ours.startswith(self._pages):
                return SCHEME + ours[len(self._pages) :]
            return ours.removeprefix(self._other)
        return ours

    def other(self, ours: str) -> str | None:
        """Return a second address for what is offered at one that is taken; None: there is none."""
        return self._other + ours if self._other and not is_page(ours) else None

    def owns(self, ours: str) -> bool:
        """Say whether nobody else may offer anything there."""
        return bool(self._id) and authority_of(ours) == self._id

    # ── what names addresses ─────────────────────────────────────────────────────────────────────────────────────────

    def tool(self, tool: Tool) -> Tool:
        return self._meta(tool)

    def resource(self, resource: Resource) -> Resource:
        return self._meta(msgspec.structs.replace(resource, uri=self.ours(resource.uri)))

    def template(self, template: ResourceTemplate) -> ResourceTemplate:
        uri_template = self.ours(template.uri_template)
        return self._meta(msgspec.structs.replace(template, uri_template=uri_template))

    def prompt(self, prompt: Prompt) -> Prompt:
        return self._meta(prompt)

    def contents(self, contents: Sequence[ResourceContents], read: str) -> Sequence[ResourceContents]:
        """Return contents with the addresses that they have here. `read`: the one by which they were asked for."""
        theirs = self.theirs(read)
        if self._keeps_all:
            return contents
        return [
            self._said(
                msgspec.structs.replace(each, uri=read if each.uri == theirs else self.answered(each.uri))
            )
            for each in contents
        ]

    def tool_result(self, result: ToolResult) -> ToolResult:
        if self._keeps_all or (
            result.meta is None and result.further is None and not any(map(_names_any, result.content))
        ):
            return result
        meta: Mapping[str, Any] | None = with_pages(result.meta, self.answered)
        further: Mapping[str, Any] | None = with_pages(result.further, self.answered)
        content = [self._block(each) for each in result.content]
        return msgspec.structs.replace(result, content=content, meta=meta, further=further)

    def prompt_result(self, result: PromptResult) -> PromptResult:
        if self._keeps_all:
            return result
        messages = [
            msgspec.structs.replace(each, content=self._block(each.content)) for each in result.messages
        ]
        return msgspec.structs.replace(result, messages=messages)

    @property
    def _keeps_all(self) -> bool:
        return not self._pages and self.anothers is None

    def _block(self, block: Content) -> Content:
        if isinstance(block, ResourceLink):
            block = msgspec.structs.replace(block, uri=self.answered(block.uri))
        elif isinstance(block, EmbeddedResource):
            inner = msgspec.structs.replace(block.resource, uri=self.answered(block.resource.uri))
            block = msgspec.structs.replace(block, resource=self._said(inner))
        return self._said(block)

    def _said(self, named: T) -> T:
        return _with_pages(named, self.answered)

    def _meta(self, named: T) -> T:
        return _with_pages(named, self.ours) if self._pages else named


def _with_pages(named: T, change: Change) -> T:
    """Return it with the pages changed that its `_meta` names, or members that are not known here."""
    if named.meta is not UNSET:
        named = msgspec.structs.replace(named, meta=with_pages(named.meta, change))
    if isinstance(named, Tool | Block | ResourceContents) and named.further is not UNSET:
        named = msgspec.structs.replace(named, further=with_pages(named.further, change))
    return named


def _names_any(block: Content) -> bool:
    named = block.meta is not UNSET or block.further is not UNSET
    return named or isinstance(block, ResourceLink | EmbeddedResource)
