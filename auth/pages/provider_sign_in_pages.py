"""Signing in at a provider: the button's form leads there, and the way back ends in a session or in a page that says why not.

The button is a POST with the token of our own form, so that nobody can be signed in by a link (login CSRF); the way back counts
once, in the browser that left, and leads where that browser had been going.
"""

from __future__ import annotations

from typing import Final

from auth.pages import sign_in_page
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit
from auth.people.user_accounts import Throttled
from auth.providers import provider_requests as upstream_provider
from auth.providers import provider_sign_in as upstream
from auth.providers.browser_trips import made_up
from auth.providers.provider_sign_in import SIGN_INS, NotLetIn, Provider, ProviderLogin, ProviderNotBelieved
from auth.values.http_messages import WireReply
from server.lib.oauth_client.oauth_answers import OAuthFailure
from server.lib.secret import Secret

CODE_CHARACTERS: Final = 4_096
AGAIN: Final = ("/signin", "Back to sign in")


def _provider(visit: PageVisit) -> Provider | None:
    name = visit.request.path.removeprefix("/signin/with/").partition("/")[0]
    return visit.parts.upstreams.providers.get(name)


async def leave(visit: PageVisit) -> WireReply:
    provider = _provider(visit)
    if provider is None:
        return _no_such(visit)
    if not visit.shows("signin"):
        return visit.stale_form()
    entropy = visit.parts.entropy
    login = ProviderLogin(
        verifier=Secret(made_up(entropy)),
        nonce=Secret(made_up(entropy)),
        redirect_uri=visit.parts.site.public(visit.request.origin) + provider.callback,
        landing=sign_in_page.landing_of(visit.form.get("next", "")),
    )
    state = made_up(entropy)
    try:
        url = await visit.parts.upstreams.authorization_url(provider, login, state)
    except OAuthFailure as problem:
        return _cannot_ask(visit, provider, problem)
    throttled = await visit.write(
        upstream.begin,
        provider=provider.name,
        state=state,
        cookie=visit.cookie,
        sealed=SIGN_INS.seal(login, state, visit.parts.subkey, entropy),
        who=visit.who,
        now=visit.now,
    )
    if isinstance(throttled, Throttled):
        return visit.too_many(throttled.until, back=AGAIN)
    if upstream_provider.origin_of(url) == upstream_provider.origin_of(provider.issuer):
        return redirect(url)
    # Its sign-in page is at another host than its name, which the page that was left did not know of.
    return visit.page("upstream.html", title=f"Sign in with {provider.label}", label=provider.label, url=url)


async def come_back(visit: PageVisit) -> WireReply:
    provider = _provider(visit)
    if provider is None:
        return _no_such(visit)
    state = visit.query("state")
    login = None
    if state and not visit.fresh:
        store, subkey = visit.parts.store, visit.parts.subkey
        login = await SIGN_INS.come_back(
            store, subkey, provider.name, state=state, cookie=visit.cookie, now=visit.now
        )
    if login is None:
        return visit.error(
            400,
            "This sign-in has ended",
            "It was finished already, took more than ten minutes, or began in another browser. Nobody was signed in.",
            "Start again, and stay in one browser.",
            back=AGAIN,
        )
    code = visit.query("code")
    if visit.query("error") or not 0 < len(code) <= CODE_CHARACTERS:
        return await _came_without(visit, provider, visit.query("error"))
    try:
        person = await visit.parts.upstreams.person(provider, login, code=code, iss=visit.query("iss"))
    except OAuthFailure as problem:
        return _cannot_ask(visit, provider, problem)
    now = visit.parts.clock()
    if isinstance(person, ProviderNotBelieved):
        await visit.write(
            upstream.not_believed, provider=provider, reason=person.reason, who=visit.who, now=now
        )
        return visit.error(
            403,
            f"The answer of {provider.label} is not valid",
            "What it said about you could not be verified. Nobody was signed in.",
            "Start again. If that does not help, whoever runs this server finds the reason with `ostiary audit`.",
            back=AGAIN,
        )
    fresh = visit.new_session()
    outcome = await visit.write(
        upstream.sign_in,
        person=person,
        provider=provider,
        state=state,
        cookie=fresh.cookie,
        replaces=fresh.replaces,
        who=visit.who,
        now=now,
    )
    if isinstance(outcome, NotLetIn):
        return _not_let_in(visit, provider, outcome)
    return visit.lead_on(login.landing, fresh)


async def _came_without(visit: PageVisit, provider: Provider, error: str) -> WireReply:
    denied = error == "access_denied"
    reason = "access_denied" if denied else "no code came back"
    await visit.write(upstream.not_believed, provider=provider, reason=reason, who=visit.who, now=visit.now)
    return visit.error(
        403,
        f"Not signed in with {provider.label}",
        "You, or your account there, said no."
        if denied
        else f"{provider.label} sent you back without an answer.",
        "Try again, or sign in another way.",
        back=AGAIN,
    )


def _not_let_in(visit: PageVisit, provider: Provider, refused: NotLetIn) -> WireReply:
    happened = {
        "not listed": f"You are {refused.shown} there, and nobody of that name is let in here.",
        "no account": f"You are {refused.shown} there. The account here that is yours is not open.",
        "another person": f"You are {refused.shown} there. Somebody else came under that name before.",
    }[refused.why]
    return visit.error(
        403,
        f"{provider.label} knows you, this server does not",
        happened,
        "Ask whoever runs this server, and tell them what it says here.",
        back=AGAIN,
    )


def _cannot_ask(visit: PageVisit, provider: Provider, problem: OAuthFailure) -> WireReply:
    return visit.error(
        502,
        f"{provider.label} is not available",
        f"It {problem}. Nobody was signed in.",
        "Try again in a moment, or sign in another way.",
        back=AGAIN,
    )


def _no_such(visit: PageVisit) -> WireReply:
    return visit.error(
        404,
        "There is no such way to sign in",
        "Whoever runs this server has not set it up, or has removed it.",
        "Choose one that is on the sign-in page.",
        back=AGAIN,
    )
