"""The sign-in with name and passphrase, and the way out again.

A try is counted before it is hashed, an unknown name costs as much as a wrong passphrase, and signing in always makes a new
cookie. The page to which it leads is one of our own, put together here and never taken from the query as it came.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import parse_qs

from auth.audit import audit_trail
from auth.authorization import authorization_request as authorize
from auth.authorization import device_authorization as device
from auth.context.identity_parts import HashingBusy
from auth.pages import authorization_endpoint as authorize_page
from auth.pages import navigation, passkey_forms, reauthentication_proof, user_code_entry
from auth.pages.html_shell import redirect
from auth.pages.page_visit import ATTEMPTS_KEY, PageVisit
from auth.people import browser_sessions, user_accounts
from auth.people.browser_sessions import NewSession
from auth.people.user_accounts import CountedGuess, Throttled, UnfitEntry, User
from auth.values import connected_accounts, endpoint_paths
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import SECOND
from auth.values.requester import Requester

LANDINGS: Final = frozenset(
    {
        "/",
        "/account/audit",
        "/account/keys/new",
        "/account/passphrase",
        "/account/upstreams",
        "/device",
        "/welcome",
        *(place.path for place in navigation.PLACES),
    }
)
DEFAULT_LANDING: Final = navigation.OVERVIEW

AGAIN: Final = ("/signin", "Back to sign in")
GUESSES: Final = "\nguesses"  # where the tries of all strangers are counted

WRONG: Final = "That name and passphrase do not go together."


async def show(visit: PageVisit) -> WireReply:
    landing = landing_of(visit.query("next"))
    # `again`: a program wants its person to sign in anew, though there is a session.
    if await visit.session() is not None and not visit.query("again"):
        return redirect(landing)
    return await form(visit, landing, name="", problem="")


async def sign_in(visit: PageVisit) -> WireReply:
    if not visit.shows("signin"):
        return visit.stale_form()
    landing = landing_of(visit.form.get("next", ""))
    typed = visit.form.get("name", "")
    name = user_accounts.fit_name(typed)
    passphrase = user_accounts.fit_passphrase(visit.form.get("passphrase", ""))
    if isinstance(name, UnfitEntry) or isinstance(passphrase, UnfitEntry):
        return await form(
            visit, landing, name=typed, problem=WRONG
        )  # nothing to guess: no account can have these

    try:
        tried = await _try(visit, name, passphrase)
    except HashingBusy:
        return visit.hashing_busy(back=AGAIN)
    if isinstance(tried, Throttled):
        return visit.too_many(tried.until, back=AGAIN)
    admitted, matched = tried
    fresh = visit.new_session()
    signed_in = await visit.write(_conclude, admitted=admitted, matched=matched, fresh=fresh)
    if signed_in is None:
        return await form(visit, landing, name=typed, problem=WRONG)
    return visit.lead_on(landing, fresh, known_as=signed_in.id)


async def _try(visit: PageVisit, name: str, passphrase: str) -> tuple[CountedGuess, bool] | Throttled:
    """Return the try as it was counted, and whether the passphrase fits. Raise `HashingBusy`: then it was not counted."""
    known, throttle = visit.known(), visit.parts.throttle
    most = visit.parts.policy.limits.guesses_per_minute
    if known is None and (wait := throttle.closed_seconds(GUESSES, most, visit.now)):
        return Throttled(until=visit.now + wait * SECOND)
    with visit.parts.hashing.place(first=known is not None) as place:
        key = visit.parts.subkey(ATTEMPTS_KEY)
        admitted = await visit.write(
            user_accounts.admit, name=name, key=key, who=visit.who, now=visit.now, known=known
        )
        if isinstance(admitted, Throttled):
            return admitted
        if known is None:  # only now: who is over their own limits uses up nobody else's
            throttle.count(GUESSES, visit.now)
        await place.turn()
        return admitted, await visit.parts.hashing.verify_passphrase(passphrase, admitted.passphrase_hash)


def _conclude(db: Db, *, admitted: CountedGuess, matched: bool, fresh: NewSession) -> User | None:
    user = user_accounts.conclude(
        db, admitted, matched=matched, event="user.signed_in", who=fresh.who, now=fresh.now
    )
    if user is not None:
        fresh.begin(db, user.id)
    return user


async def form(visit: PageVisit, landing: str, *, name: str, problem: str) -> WireReply:
    owner, anybody = await visit.read(_who_is_here)
    upstreams = visit.parts.upstreams
    targets = (*await authorize_page.targets_of(visit, landing), *upstreams.origins)
    visit = replace(visit, frame=replace(visit.frame, form_targets=(*visit.frame.form_targets, *targets)))
    passkey = await passkey_forms.sign_in_offer(visit)
    return reauthentication_proof.scripted(visit, passkey is not None).page(
        "signin.html",
        title="Sign in",
        status=400 if problem else 200,
        form_token=visit.token("signin"),
        next=landing,
        for_device=landing.startswith("/device"),
        for_program=landing.startswith(endpoint_paths.AUTHORIZE),
        asker=await authorize_page.asker_of(visit, landing),
        program=visit.parts.site.program,
        unclaimed=owner is None or owner.state == "unclaimed",
        nobody=not anybody and not upstreams.providers,
        name=name[: user_accounts.NAME_CHARACTERS],
        passkey=passkey,
        providers=tuple(upstreams.providers.values()),
        problem=problem,
    )


def _who_is_here(db: Db) -> tuple[User | None, bool]:
    """Return the owner, and whether anybody could sign in, as a job that reads."""
    found = db.fetch_one(
        "SELECT id FROM users WHERE state = 'enabled' UNION ALL SELECT user_id FROM passkeys LIMIT 1"
    )
    return user_accounts.owner(db), found is not None


async def sign_out(visit: PageVisit) -> WireReply:
    if not visit.shows("signout"):
        return visit.stale_form()
    await visit.write(_end, cookie=visit.cookie, who=visit.who, now=visit.now)
    return redirect("/signin", headers=(browser_sessions.clear_cookie(visit.secure),))


def _end(db: Db, *, cookie: str, who: Requester, now: Millis) -> None:
    session = browser_sessions.find(db, cookie, now)
    browser_sessions.end(db, cookie)
    if session is not None:
        audit_trail.record(db, now, "user.signed_out", actor=audit_trail.actor(session.user.id), who=who)


def landing_of(wanted: str) -> str:
    """Return the path of ours that `wanted` names; never another host, never an unknown path."""
    path, _, query = wanted[: authorize.CHARACTERS].partition("?")
    if path == endpoint_paths.AUTHORIZE:  # judged there, as if the browser had come by itself
        return authorize.path_of(authorize.write(authorize.read_text(query)))
    if connected_accounts.is_page(path):
        return path
    if path not in LANDINGS:
        return DEFAULT_LANDING
    if path == "/device":
        typed = parse_qs(query).get("user_code", [""])[0]
        return user_code_entry.path_with(device.normalise(typed))
    return path
