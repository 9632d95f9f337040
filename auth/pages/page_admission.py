"""The door to every page of a person: what is checked before any of them runs.

HTML is served over https or on loopback only; a POST must come from one of our own pages; fields are bounded and come once.
Which path and method lead to which page is not here: those are the routes in `server/console/pages`. GET changes nothing that a
person would miss: at most it counts a wrong code, or sends a program the code that its person agreed to before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from auth.authorization import authorization_request as authorize
from auth.context.identity_parts import Parts
from auth.pages import html_shell, reauthentication_proof
from auth.pages.html_shell import ErrorMark, ErrorReply, Frame
from auth.pages.page_visit import PageVisit, way_out
from auth.people import browser_sessions, webauthn_ceremony
from auth.values.database import NotStored
from auth.values.http_messages import WireReply, WireRequest
from auth.values.requester import Requester

FIELD_CHARACTERS: Final = 2_048  # the longest honest field is a passphrase of 1 024 bytes
# But for a program's whole request, which sign-in and the consent page carry along, and what an authenticator says.
LONG_FIELDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "next": authorize.CHARACTERS,
        "request": authorize.CHARACTERS,
        "credential": webauthn_ceremony.ANSWER_CHARACTERS,
        reauthentication_proof.CREDENTIAL: webauthn_ceremony.ANSWER_CHARACTERS,
    }
)
FIELDS: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class FormBounds:
    """The bounds of a page's forms: so many fields, each of so many characters unless it is one of `LONG_FIELDS`."""

    fields: int = FIELDS
    characters: int = FIELD_CHARACTERS


OURS: Final = FormBounds()


def admit(request: WireRequest, parts: Parts, bounds: FormBounds = OURS) -> PageVisit | WireReply:
    """Make the visit that a page is given, or the page that says why there is none. The method is the route's to judge."""
    frame = html_shell.frame_for(request.origin, parts.entropy(html_shell.NONCE_BYTES))
    if not _is_private(frame, request, parts):
        return _refuse(frame, NEEDS_HTTPS)
    if request.method == "POST" and not browser_sessions.sent_by_own_page(request.headers, request.origin):
        return _refuse(frame, FOREIGN_FORM)
    form = _read_form(request.form, bounds)
    if form is None:
        return _refuse(frame, UNREADABLE_FORM)
    cookie = browser_sessions.read_cookie(request.headers, frame.secure)
    return PageVisit(
        request=request,
        parts=parts,
        now=parts.clock(),
        who=Requester.of(request),
        frame=frame,
        cookie=cookie or browser_sessions.cookie_from(parts.entropy(browser_sessions.COOKIE_BYTES)),
        fresh=cookie is None,
        form=form,
        scopes=tuple(value for name, value in request.form if name == "scope"),
    )


def refuse_method(request: WireRequest, parts: Parts, allowed: Sequence[str]) -> WireReply:
    """Answer for a page that has no such method. `allowed`: those that it has."""
    frame = html_shell.frame_for(request.origin, parts.entropy(html_shell.NONCE_BYTES))
    if not _is_private(frame, request, parts):
        return _refuse(frame, NEEDS_HTTPS)
    return html_shell.error_page(
        405,
        "There is nothing to see here",
        "This address only takes forms that another page sends.",
        "If you have loaded a page again, go back to where you came from.",
        frame,
        headers=(("allow", ", ".join(allowed)),),
        back=way_out(request.path),
    )


async def recognised(reply: WireReply, visit: PageVisit) -> WireReply:
    """Draw an error page for who reads it, as every other page is drawn."""
    if not isinstance(reply, ErrorReply) or reply.frame.account is not None:
        return reply
    try:
        session = await visit.session()
    except NotStored:
        return reply
    return reply if session is None else reply.within(visit.of(session).frame)


def _is_private(frame: Frame, request: WireRequest, parts: Parts) -> bool:
    """Return whether nobody on the way can read along."""
    return frame.secure or (parts.site.loopback and is_loopback(request.origin))


def is_loopback(origin: str) -> bool:
    host = urlsplit(origin).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _read_form(fields: tuple[tuple[str, str], ...], bounds: FormBounds) -> Mapping[str, str] | None:
    """Read each field, which comes once, `scope` apart; None for anything that none of our forms sends."""
    if len(fields) > bounds.fields or any(
        len(value) > LONG_FIELDS.get(name, bounds.characters) for name, value in fields
    ):
        return None
    single = [(name, value) for name, value in fields if name != "scope"]
    form = dict(single)
    return MappingProxyType(form) if len(form) == len(single) else None


# ---------------------------------------------------------------- refusals


class PageRefusal(NamedTuple):
    status: int
    title: str
    what_happened: str
    what_next: str
    back: tuple[str, str] | None = ("/", "To the front page")
    mark: ErrorMark | None = None


NEEDS_HTTPS: Final = PageRefusal(
    400,
    "This page needs https",
    "A passphrase typed here could be read on its way.",
    "Open the server’s https address, or approve the login on the machine itself with `ostiary approve`.",
    back=None,
)
FOREIGN_FORM: Final = PageRefusal(
    403,
    "This form came from another site",
    "Some other page tried to send it in your name. Nothing was changed.",
    "If that was you, open the page here and send it from there.",
)
UNREADABLE_FORM: Final = PageRefusal(
    400,
    "This form cannot be read",
    "A field is too long or comes twice. Nothing was changed.",
    "Load the page again and send it once more.",
    mark="lost",
)


def _refuse(frame: Frame, why: PageRefusal) -> WireReply:
    return html_shell.error_page(*why[:4], frame, back=why.back, mark=why.mark)
