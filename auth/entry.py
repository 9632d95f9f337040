"""The door to every browser endpoint: their table, and what is checked before any of them runs.

HTML is served over https or on loopback only; a POST must come from one of our own pages; fields are bounded and come once.
The endpoints are in the modules that the table names. GET changes nothing that a person would miss: at most it
counts a wrong code, or sends a program the code that its person agreed to before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from auth import pages
from auth.account import api_keys as account_keys
from auth.account import browsers as account_browsers
from auth.account import consents as account_consents
from auth.account import logins as account_logins
from auth.account import page as account
from auth.account import passphrase as account_passphrase
from auth.account import people as account_people
from auth.authorize import consent_page
from auth.authorize import page as authorize_page
from auth.authorize import request as authorize
from auth.device import code_entry, decision
from auth.pages import Frame
from auth.passkeys import ceremony
from auth.passkeys import pages as passkey_pages
from auth.people import claiming, inviting, links, proof, sessions, signing_in
from auth.requester import Requester
from auth.upstream import pages as upstream_pages
from auth.visit import Parts, Step, Visit
from auth.wire import Reply, Request

FIELD_CHARACTERS: Final = 2_048  # the longest honest field is a passphrase of 1 024 bytes
# But for a program's whole request, which sign-in and the consent page carry along, and what an authenticator says.
LONG_FIELDS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "next": authorize.CHARACTERS,
        "request": authorize.CHARACTERS,
        "credential": ceremony.ANSWER_CHARACTERS,
        proof.CREDENTIAL: ceremony.ANSWER_CHARACTERS,
    }
)
FIELDS: Final = 64

ENDPOINTS: Final[Mapping[str, Mapping[str, Step]]] = MappingProxyType(
    {
        "/claim/{token}": {"GET": claiming.show, "POST": claiming.claim},
        "/invite/{token}": inviting.steps(links.INVITE),
        "/reset/{token}": inviting.steps(links.RESET),
        "/welcome": {"GET": claiming.welcome},
        "/signin": {"GET": signing_in.show, "POST": signing_in.sign_in},
        "/signin/passkey": {"POST": passkey_pages.sign_in},
        "/signin/with/{name}": {"POST": upstream_pages.leave},
        "/signin/with/{name}/callback": {"GET": upstream_pages.come_back},
        "/passkey/options": {"POST": passkey_pages.options},
        "/signout": {"POST": signing_in.sign_out},
        "/account": {"GET": account.show},
        "/account/logins/end": {"POST": account_logins.end},
        "/account/keys/revoke": {"POST": account_keys.revoke},
        "/account/browsers/end": {"POST": account_browsers.end},
        "/account/consents/forget": {"POST": account_consents.forget},
        "/account/passkeys": {"POST": passkey_pages.add},
        "/account/passkeys/new": {"POST": passkey_pages.begin},
        "/account/passkeys/remove": {"POST": passkey_pages.remove},
        "/account/people": {"POST": account_people.switch},
        "/account/passphrase": {"GET": account_passphrase.show, "POST": account_passphrase.change},
        "/device": {"GET": code_entry.show, "POST": code_entry.enter},
        "/device/decide": {"POST": decision.decide},
        authorize.PATH: {"GET": authorize_page.show},
        consent_page.DECIDE: {"POST": consent_page.decide},
    }
)


_PATTERNS: Final = tuple((row, row.split("/")) for row in ENDPOINTS if "{" in row)


def endpoint_of(path: str) -> str | None:
    """The row of the table that serves `path`; also what a log may write instead of the path, which can hold a token."""
    if path in ENDPOINTS and "{" not in path:
        return path
    parts = path.split("/")
    return next((row for row, pattern in _PATTERNS if _fits(parts, pattern)), None)


def _fits(parts: list[str], pattern: list[str]) -> bool:
    """A `{part}` of a row stands for one segment that is not empty."""
    return len(parts) == len(pattern) and all(
        part != "" if want.startswith("{") else part == want
        for part, want in zip(parts, pattern, strict=True)
    )


async def handle(request: Request, parts: Parts) -> Reply | None:
    """The page for a request, or None if its path is none of ours."""
    endpoint = endpoint_of(request.path)
    if endpoint is None:
        return None
    frame = pages.frame_for(request.origin, parts.entropy(pages.NONCE_BYTES))
    reply = await _answer(request, parts, frame, ENDPOINTS[endpoint])
    return replace(reply, body=b"") if request.method == "HEAD" else reply


async def _answer(request: Request, parts: Parts, frame: Frame, steps: Mapping[str, Step]) -> Reply:
    if not frame.secure and not (parts.site.loopback and is_loopback(request.origin)):
        return _needs_https(frame)
    step = steps.get("GET" if request.method == "HEAD" else request.method)
    if step is None:
        return _wrong_method(frame, steps)
    if request.method == "POST" and not sessions.sent_by_own_page(request.headers, request.origin):
        return _foreign_form(frame)
    form = _read_form(request.form)
    if form is None:
        return _unreadable_form(frame)
    cookie = sessions.read_cookie(request.headers, frame.secure)
    visit = Visit(
        request=request,
        parts=parts,
        now=parts.clock(),
        who=Requester.of(request),
        frame=frame,
        cookie=cookie or sessions.cookie_from(parts.entropy(sessions.COOKIE_BYTES)),
        fresh=cookie is None,
        form=form,
        scopes=tuple(value for name, value in request.form if name == "scope"),
    )
    return await step(visit)


def is_loopback(origin: str) -> bool:
    host = urlsplit(origin).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _read_form(fields: tuple[tuple[str, str], ...]) -> Mapping[str, str] | None:
    """Each field once, `scope` apart; None for anything that none of our forms sends."""
    if len(fields) > FIELDS or any(
        len(value) > LONG_FIELDS.get(name, FIELD_CHARACTERS) for name, value in fields
    ):
        return None
    single = [(name, value) for name, value in fields if name != "scope"]
    form = dict(single)
    return MappingProxyType(form) if len(form) == len(single) else None


# ---------------------------------------------------------------- refusals


def _needs_https(frame: Frame) -> Reply:
    return pages.error_page(
        400,
        "This page needs https",
        "A passphrase typed here could be read on its way.",
        "Open the server’s https address, or approve the login on the machine itself with `ostiary approve`.",
        frame,
    )


def _wrong_method(frame: Frame, steps: Mapping[str, Step]) -> Reply:
    allowed = [*steps, "HEAD"] if "GET" in steps else [*steps]
    return pages.error_page(
        405,
        "There is nothing to see here",
        "This address only takes forms that another page sends.",
        "To let a device in, enter its code.",
        frame,
        headers=(("allow", ", ".join(allowed)),),
        back=("/device", "Enter a code"),
    )


def _foreign_form(frame: Frame) -> Reply:
    return pages.error_page(
        403,
        "This form came from another site",
        "Some other page tried to send it in your name. Nothing was changed.",
        "If that was you, open the page here and send it from there.",
        frame,
        back=("/device", "Enter a code"),
    )


def _unreadable_form(frame: Frame) -> Reply:
    return pages.error_page(
        400,
        "This form cannot be read",
        "A field is too long or comes twice. Nothing was changed.",
        "Load the page again and send it once more.",
        frame,
        back=("/device", "Start again"),
    )
