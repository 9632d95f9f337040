"""The consent page and its answer: everything a person should see before a program gets in as them.

The choice can only be less than what was asked. GET /authorize is in authorization_endpoint.py, the jobs are in consent_decisions.py.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from auth.authorization import authorization_request as authorize
from auth.authorization.authorization_request import AuthorizationRequest, NoPlace, SendBack
from auth.clients import redirect_uris
from auth.pages import consent_decisions, opened_servers, reauthentication
from auth.pages.consent_decisions import NotAgreed, OpenedRequest, SentWithCode
from auth.pages.device_confirmation import spending
from auth.pages.html_shell import OPENS_AT_TOP, in_words, redirect
from auth.pages.page_visit import PageVisit, sign_in_then
from auth.people.browser_sessions import BrowserSession, SignedOutMeanwhile
from auth.values import scopes
from auth.values.entropy import SEED_BYTES
from auth.values.http_messages import WireReply
from auth.values.identity_model import REFRESH_TOKEN, Client, Millis
from auth.values.limits_and_lifetimes import MINUTE

DECIDE: Final = "/authorize/decide"

NOTHING_TICKED: Final = "Leave at least one thing ticked, or choose Deny."


class AskingProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The program that asks, as far as anybody knows it."""

    standing: Literal["verified", "registered", "unverified"]
    headline: str  # its domain, or what the operator calls it; empty: nobody has checked anything
    name: str  # what it calls itself
    client_id: str
    known_for: str  # since when, for one that registered itself


def program_of(client: Client, now: Millis) -> AskingProgram:
    since = now - client.created_at
    known_for = "just now" if since < MINUTE else f"{in_words(since)} ago"
    if client.kind == "document":
        standing, headline = "verified", urlsplit(client.id).hostname or ""
    elif client.kind in ("registered", "builtin"):
        standing, headline = "registered", client.name
    else:
        standing, headline = "unverified", ""
    return AskingProgram(
        standing=standing, headline=headline, name=client.name, client_id=client.id, known_for=known_for
    )


async def page(
    visit: PageVisit,
    session: BrowserSession,
    found: OpenedRequest,
    *,
    problem: str = "",
    ticked: tuple[str, ...] | None = None,
) -> WireReply:
    wanted, policy = found.wanted, visit.parts.policy.tokens
    names = consent_decisions.offered(wanted, session.user)
    offers = opened_servers.scope_offers(visit, session.user, wanted.server, names, ticked=ticked)
    stays = policy.code_login_ms if REFRESH_TOKEN in found.client.grant_types else policy.access_ms
    spends = await spending(visit, session, wanted.server, scopes.join(names))
    return _leading(visit, found).page(
        "consent.html",
        title="Let a program in?",
        headers=OPENS_AT_TOP,
        status=400 if problem else 200,
        form_token=visit.token(purpose(found.text)),
        request=found.text,
        action=DECIDE,
        account=session.user.name,
        program=program_of(found.client, visit.now),
        assured=found.assured,
        redirect_host=found.redirect_host,
        loopback=redirect_uris.is_loopback(wanted.redirect_uri),
        in_browser=wanted.redirect_uri.startswith("https:"),
        lasts=in_words(stays),
        opened=opened_servers.server_of(visit, wanted.server),
        offers=offers,
        reach=opened_servers.scope_reach(visit, session.user, wanted.server, offers),
        spends=spends,
        problem=problem,
    )


def _leading(visit: PageVisit, found: OpenedRequest) -> PageVisit:
    """Let the form of a visit's page lead back to the program."""
    targets = redirect_uris.sources_of(found.wanted.redirect_uri)
    return replace(visit, frame=replace(visit.frame, form_targets=targets))


async def decide(visit: PageVisit) -> WireReply:
    text = visit.form.get("request", "")
    asked = authorize.read_text(text)
    path = authorize.path_of(authorize.write(asked))
    session = await visit.session()
    if session is None:
        return redirect(sign_in_then(path))
    visit = visit.of(session)
    decision = visit.form.get("decision")
    if not visit.shows(purpose(text)) or decision not in ("allow", "copy", "deny"):
        return _out_of_date(visit, path)
    found = await open_request(visit, asked)
    if not isinstance(found, OpenedRequest):
        return cannot_go_on(visit, found, path)
    if decision == "deny":
        denied = await visit.write(
            consent_decisions.deny,
            cookie=visit.cookie,
            asked=asked,
            site=visit.parts.site,
            who=visit.who,
            now=visit.now,
        )
        return cannot_go_on(visit, denied, path)
    copied = decision == "copy"
    if copied and not redirect_uris.is_loopback(found.wanted.redirect_uri):
        return _out_of_date(visit, path)
    return await _allow(visit, session, found, copied=copied)


async def open_request(visit: PageVisit, asked: AuthorizationRequest) -> OpenedRequest | NoPlace | SendBack:
    return await visit.read(
        consent_decisions.opened,
        asked=asked,
        site=visit.parts.site,
        origin=visit.request.origin,
        now=visit.now,
    )


async def agree(
    visit: PageVisit, found: OpenedRequest, *, ticked: tuple[str, ...] | None, copied: bool = False
) -> SentWithCode | NotAgreed | SignedOutMeanwhile | NoPlace | SendBack:
    parts = visit.parts
    return await visit.write(
        consent_decisions.agree,
        cookie=visit.cookie,
        asked=found.asked,
        ticked=ticked,
        copied=copied,
        site=parts.site,
        policy=parts.policy.tokens,
        who=visit.who,
        seed=parts.entropy(SEED_BYTES),
        now=parts.clock(),
    )


async def _allow(
    visit: PageVisit, session: BrowserSession, found: OpenedRequest, *, copied: bool
) -> WireReply:
    path = authorize.path_of(found.text)
    if any(visit.parts.site.scopes.financial(name) for name in visit.scopes):
        asking = await reauthentication.ask(
            _leading(visit, found), session, "to let a program move money", back=path
        )
        if asking is not None:
            return asking
    outcome = await agree(visit, found, ticked=visit.scopes, copied=copied)
    match outcome:
        case SentWithCode():
            return _to_copy(visit, found, outcome) if copied else away(outcome.location)
        case NotAgreed():
            return await page(visit, session, found, problem=NOTHING_TICKED, ticked=visit.scopes)
        case _:
            return cannot_go_on(visit, outcome, path)


def _to_copy(visit: PageVisit, found: OpenedRequest, sent: SentWithCode) -> WireReply:
    """Show the address in place of a redirect, for a program that waits on another machine."""
    scripted = replace(visit, frame=replace(visit.frame, copies=True))
    return scripted.page(
        "sent.html",
        title="Copy this address",
        location=sent.location,
        program=program_of(found.client, visit.now),
        lasts=in_words(consent_decisions.COPIED_MS),
    )


def purpose(text: str) -> str:
    """Return what a form's token is for: one request alone."""
    return "authorize " + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ---------------------------------------------------------------- ways out


def away(location: str) -> WireReply:
    """Redirect to the client. The address holds a code, or says what was wrong; neither is for anybody else."""
    return WireReply(
        status=303,
        headers=(
            ("location", location),
            ("cache-control", "no-store"),
            ("pragma", "no-cache"),
            ("referrer-policy", "no-referrer"),
        ),
    )


def cannot_go_on(visit: PageVisit, outcome: NoPlace | SendBack | SignedOutMeanwhile, path: str) -> WireReply:
    """Answer where no code was given; whoever was signed out meanwhile comes back to `path`."""
    match outcome:
        case NoPlace():
            return no_place(visit, outcome)
        case SendBack():
            return send_back(visit, outcome)
        case SignedOutMeanwhile():
            return redirect(sign_in_then(path))


def send_back(visit: PageVisit, back: SendBack) -> WireReply:
    return away(location_of(visit, back))


def location_of(visit: PageVisit, back: SendBack) -> str:
    return authorize.answer(back, issuer=visit.parts.site.public(visit.request.origin))


def no_place(visit: PageVisit, why: NoPlace) -> WireReply:
    return visit.error(
        400,
        "This sign-in cannot go on",
        why.why,
        "Go back to the program and start signing in there once more. If that does not help, remove this server from the program "
        "and add it again.",
        back=("/", "To the front page"),
    )


def _out_of_date(visit: PageVisit, path: str) -> WireReply:
    return visit.error(
        403,
        "This form is out of date",
        "Nothing was allowed. The page was opened too long ago, in another browser, or cookies are switched off.",
        "Load the page again and answer it there.",
        back=(path, "Load it again"),
        mark="lost",
    )
