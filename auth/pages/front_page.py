"""The way in: what this server is, how programs are connected to it, and where somebody signs in.

`/` is for whoever comes by; whoever is signed in is led on to their account. `/connect` is the same page for everybody: it is also what
a browser is shown at the address of a server, and what somebody sees who has accepted an invitation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from auth.context.identity_parts import Parts
from auth.pages import html_shell, page_admission
from auth.pages.html_shell import Frame, Headers, redirect
from auth.pages.opened_servers import TITLE_CHARACTERS
from auth.pages.page_visit import PageVisit
from auth.people import user_accounts
from auth.values.database import NotStored
from auth.values.http_messages import WireReply, WireRequest
from auth.values.offered_servers import ConnectWay
from auth.values.requester import clean

PATH: Final = "/"
CONNECT: Final = "/connect"
HOME: Final = "/account"
DESCRIPTION_CHARACTERS: Final = 1_000


class FrontServer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    description: str
    icon: str
    url: str
    login: bool  # whether anybody logs in there


async def show(request: WireRequest, parts: Parts, *, needs_login: bool) -> WireReply:
    """The front page, which is there also where nobody could be asked anything: over plain http, and where nobody logs in."""
    if not needs_login:
        return for_anybody(request, parts)
    visit = page_admission.admit(request, parts)
    if isinstance(visit, WireReply):
        return for_anybody(request, parts)
    try:
        session = await visit.session()
        owner = await parts.store.read(user_accounts.owner)
    except NotStored:
        return for_anybody(request, parts)
    if session is not None:
        return redirect(HOME)
    if owner is None or owner.state == "unclaimed":  # there is nobody who could sign in
        return _page(visit.frame, parts, request, unclaimed=True)
    return _page(_may_sign_in(visit.frame), parts, request)


async def connect(visit: PageVisit) -> WireReply:
    session = await visit.session()
    frame = _may_sign_in(visit.frame) if session is None else visit.of(session).frame
    joined = "" if session is None or not visit.query("joined") else session.user.name
    return _page(frame, visit.parts, visit.request, joined=joined)


def for_anybody(request: WireRequest, parts: Parts) -> WireReply:
    """Without a look at who it is."""
    return _page(html_shell.frame_for(request.origin, parts.entropy(html_shell.NONCE_BYTES)), parts, request)


def _page(
    frame: Frame,
    parts: Parts,
    request: WireRequest,
    *,
    unclaimed: bool = False,
    joined: str = "",
    headers: Headers = (),
) -> WireReply:
    """`joined`: the name of somebody who has an account since just now."""
    site = parts.site
    # Behind a proxy the request may have come by another name or scheme than callers are to use.
    origin = site.public(request.origin)
    wanted = next((value for name, value in request.query if name == "server"), "")
    chosen = wanted if wanted in site.servers else ""
    servers = [_server(parts, name, origin) for name in site.servers]
    named = next(server for server in servers if server.name == (chosen or site.default))
    ways: tuple[ConnectWay, ...] = ()
    if parts.offerings is not None:
        ways = tuple(parts.offerings.ways(named.name, origin, site.program))
    several = len(servers) > 1
    return html_shell.render(
        "front.html",
        replace(frame, copies=True, wide=True),
        title=named.title if named.title and (chosen or not several) else "Connect",
        headers=headers,
        servers=servers,
        several=several,
        chosen=chosen,
        named=named,
        ways=ways,
        program=site.program,
        unclaimed=unclaimed,
        joined=joined,
        login=len(site.without_login) < len(servers),
    )


def _may_sign_in(frame: Frame) -> Frame:
    return replace(frame, signs_in=True)


def _server(parts: Parts, name: str, origin: str) -> FrontServer:
    site = parts.site
    found = None if parts.offerings is None else parts.offerings.server(name)
    return FrontServer(
        name=name,
        title="" if found is None else clean(found.title, TITLE_CHARACTERS),
        description="" if found is None else clean(found.description, DESCRIPTION_CHARACTERS),
        icon="" if found is None else found.icon,
        url=origin + site.servers[name],
        login=name not in site.without_login,
    )
