"""GET /authorize (RFC 6749 §3.1): a browser comes with a program's request, and is led to sign-in, to the consent page, or back, with a code
for what was agreed to before or with an error.

Until somebody is signed in nothing is written and nobody is told who has an account. Requests are judged in auth/authorization/authorization_request.py;
the consent page and its answer are in consent_page.py.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from auth.authorization import authorization_request as authorize
from auth.authorization.authorization_request import AuthorizationRequest, NoPlace, SendBack, WantedAccess
from auth.clients import redirect_uris
from auth.clients.client_identifier_urls import is_document
from auth.endpoints import pushed_authorization
from auth.pages import consent_decisions, consent_page, opened_servers
from auth.pages.consent_decisions import NotAgreed, OpenedRequest, SentWithCode
from auth.pages.consent_page import (
    agree,
    away,
    cannot_go_on,
    location_of,
    no_place,
    open_request,
    send_back,
)
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit, sign_in_then
from auth.people.browser_sessions import BrowserSession
from auth.values import endpoint_paths
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import SECOND

# How old a sign-in may be where the program wants a new one: the way from the sign-in page to here, and a reload.
JUST_NOW: Final[Millis] = 60 * SECOND

# Values of `prompt` after which a person is asked whatever they said before.
ASKING: Final = frozenset({"consent", "select_account"})


async def show(visit: PageVisit) -> WireReply:
    session = await visit.session()
    asked = authorize.read(visit.request.query)
    unknown = await _no_document(visit, asked, session)
    if unknown is not None:
        return no_place(visit, NoPlace(why=f"The program that sent you here is not known: {unknown}."))
    found = await open_request(visit, asked)
    match found:
        case NoPlace():
            return no_place(visit, found)
        case SendBack():
            return _send_back(visit, session, found)
        case OpenedRequest():
            path = authorize.path_of(found.text)
    if len(quote(path)) > authorize.CHARACTERS:
        return no_place(visit, NoPlace(why="The request is too long."))
    if found.pushed and (session is not None or not pushed_authorization.is_stranger(found.client)):
        await visit.write(pushed_authorization.opened, asked=asked, now=visit.now)
    wanted, silent = found.wanted, "none" in found.wanted.prompts
    if session is None or _must_prove_again(wanted, session, visit.now):
        if silent:
            refused = wanted.refused("login_required", "nobody is signed in, or not recently")
            return _send_back(visit, session, refused)
        again = "" if session is None else "&again=1"
        return redirect(sign_in_then(path) + again)
    return await _ask(visit.of(session), session, found, silent=silent)


async def _ask(visit: PageVisit, session: BrowserSession, found: OpenedRequest, *, silent: bool) -> WireReply:
    """Lead back at once with what was agreed to before, or show the page."""
    known = not found.wanted.prompts & ASKING and await visit.read(
        consent_decisions.remembered,
        found=found,
        user=session.user,
        known=visit.parts.site.scopes,
        now=visit.now,
    )
    if known:
        outcome = await agree(visit, found, ticked=None)
        if isinstance(outcome, SentWithCode):
            return away(outcome.location)
        if not isinstance(outcome, NotAgreed):  # else something changed just now: ask
            return cannot_go_on(visit, outcome, authorize.path_of(found.text))
    if silent:
        return send_back(visit, found.wanted.refused("consent_required", "the person has to be asked"))
    return await consent_page.page(visit, session, found)


def _send_back(visit: PageVisit, session: BrowserSession | None, back: SendBack) -> WireReply:
    """Send an error to the program. Without a session, an address that only its owner vouches for is left to the person: else
    anybody could have browsers sent on to anywhere under our name."""
    if session is not None or back.vouched:
        return send_back(visit, back)
    return visit.error(
        400,
        "This sign-in cannot go on",
        f"What the program that sent you here asks for was refused: {back.description}.",
        "Nothing was allowed. Nobody here has checked the address below: go there only if that is where you came from.",
        back=(location_of(visit, back), f"Back to {redirect_uris.host_of(back.redirect_uri)}"),
    )


def _must_prove_again(wanted: WantedAccess, session: BrowserSession, now: Millis) -> bool:
    limits = [JUST_NOW] if "login" in wanted.prompts else []
    if wanted.max_age_ms is not None:
        limits.append(max(wanted.max_age_ms, JUST_NOW))
    return bool(limits) and now - session.auth_time > min(limits)


async def _no_document(
    visit: PageVisit, asked: AuthorizationRequest, session: BrowserSession | None
) -> str | None:
    """Say why there is no client behind an address that a client gives as its id; None where there is, or it gave none."""
    client_id = asked.get("client_id")
    if client_id is None or not is_document(client_id):
        return None
    return await visit.parts.documents.ensure(
        client_id, network=visit.who.network, signed_in=session is not None, now=visit.now
    )


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """The program that sends a person to sign in, and for what; `checked`: somebody here has looked at its name."""

    name: str
    checked: bool
    title: str


async def _opened_at(visit: PageVisit, landing: str) -> OpenedRequest | NoPlace | SendBack | None:
    path, _, query = landing.partition("?")
    at_authorize = path == endpoint_paths.AUTHORIZE
    return await open_request(visit, authorize.read_text(query)) if at_authorize else None


async def asker_of(visit: PageVisit, landing: str) -> Asker | None:
    match await _opened_at(visit, landing):
        case OpenedRequest(client=client, wanted=wanted) if client.name:
            checked = client.kind in ("registered", "builtin")
            return Asker(
                name=client.name, checked=checked, title=opened_servers.server_of(visit, wanted.server).title
            )
        case _:
            return None


async def targets_of(visit: PageVisit, landing: str) -> tuple[str, ...]:
    """Return where a form may lead whose answer leads to `landing`: browsers hold a form to its policy through every redirect."""
    match await _opened_at(visit, landing):
        case OpenedRequest(wanted=WantedAccess(redirect_uri=uri)) | SendBack(redirect_uri=uri):
            return redirect_uris.sources_of(uri)
        case _:
            return ()
