"""The pages of an upstream (`ui://…`): which there are, and each of them as a value that can be pinned.

A host draws a page beside what a tool answers, and lets it call tools. So its owner accepts a page with the definitions, by the digest of its
content, and each time that a caller reads it the content is compared. Spec: ext-apps, "UI Resource Format", "Resource Discovery".
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import trio
from msgspec import UNSET

from server.agents.mcp import upstream_results
from server.agents.mcp.offer_guard import ToolPage, UpstreamLists
from server.agents.mcp.page_bounds import PageBounds
from server.client.mcp_session.session_link import NO_HEADERS, Link
from server.client.mcp_session.session_messages import ServerRefusal
from server.client.mcp_session.streamable_http import name_header
from server.lib.shortened import short_name, short_reason
from server.mcp.app_pages import is_page, pages_in
from server.mcp.call_failures import BackendError
from server.mcp.carried_extensions import PAGE_TYPE
from server.mcp.messages import Resource, ResourceContents

PAGES: Final = 64
PAGE_BYTES: Final = 8 * 1024 * 1024
NAME_CHARACTERS: Final = 100
TOLD: Final = 5  # hosts of one page


def has_pages(offered: UpstreamLists) -> bool:
    """Return whether there is any page, listed or named by a tool."""
    named = (tool.meta for tool in offered.tools if tool.meta is not UNSET)
    return any(is_page(each.uri) for each in offered.resources) or any(any(pages_in(meta)) for meta in named)


def undecided(offered: UpstreamLists) -> list[str]:
    """Tell what its pages ask for and do not get, for an owner who has said nothing of it."""
    found: list[str] = []
    nothing = PageBounds((), ())
    for resource in offered.resources:
        cut: list[str] = []
        page = offered.pages.get(resource.uri)
        said: Sequence[Any] = () if page is None else page.said["_meta"]
        for meta in (resource.meta, *said):
            if isinstance(meta, Mapping):
                nothing.meta(cast("Mapping[str, Any]", meta), cut)
        if cut:
            wanted = ", ".join(short_name(each) for each in list(dict.fromkeys(cut))[:TOLD])
            found.append(
                f"page {short_name(resource.uri)}: it asks for {wanted}, and gets none of it before page_hosts says of which hosts it may"
            )
    return found


def with_named_pages(offered: UpstreamLists) -> UpstreamLists:
    """Return the lists with the pages as resources that only tools name: a server need not list such."""
    known = {each.uri for each in offered.resources}
    named = dict.fromkeys(
        page for tool in offered.tools if tool.meta is not UNSET for page in pages_in(tool.meta)
    )
    unlisted = [
        Resource(uri=page, name=page.rpartition("/")[2][:NAME_CHARACTERS] or page, mime_type=PAGE_TYPE)
        for page in named
        if page not in known and page.isprintable()
    ]
    return msgspec.structs.replace(offered, resources=[*offered.resources, *unlisted])


async def read_pages(link: Link, offered: UpstreamLists, *, seconds: float) -> UpstreamLists:
    """Return the lists with each page as it is now. A page that cannot be read, or not in this time, is left out and told."""
    addresses = [each.uri for each in offered.resources if is_page(each.uri)]
    pages: dict[str, ToolPage] = {}
    out = [f"page {short_name(uri)}: it is one of more than {PAGES}" for uri in addresses[PAGES:]]
    with trio.move_on_after(seconds) as slow:
        for uri in addresses[:PAGES]:
            try:
                headers = name_header(uri) if link.agreement.modern else NO_HEADERS
                raw = await link.request("resources/read", {"uri": uri}, headers=headers)
                pages[uri] = page_of(uri, upstream_results.contents(raw))
            except (BackendError, ServerRefusal, ValueError) as error:
                out.append(f"page {short_name(uri)}: {short_reason(error)}")
    if slow.cancelled_caught:
        out.append(f"pages: they could not all be read within {seconds:g} s")
    return msgspec.structs.replace(offered, pages=pages, left_out=[*offered.left_out, *out])


def page_of(uri: str, contents: Sequence[ResourceContents]) -> ToolPage:
    """Return the page that these contents are. Raises `ValueError` for what is too large, or no page."""
    if not contents:
        raise ValueError("it has no content")
    try:
        text = msgspec.json.encode(contents, order="deterministic")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if len(text) > PAGE_BYTES:
        raise ValueError(f"it is larger than {PAGE_BYTES // 1024} KiB")
    said: Mapping[str, Any] = {
        "mimeType": [None if each.mime_type is UNSET else each.mime_type for each in contents],
        "_meta": [None if each.meta is UNSET else each.meta for each in contents],
    }
    return ToolPage(uri=uri, digest=hashlib.sha256(text).hexdigest(), size=len(text), said=said)
