"""Claiming the server: the one-time link, the owner's name, passkey or passphrase, and the first signed-in page.

Following the link shows a form and uses nothing up; the POST does, once. Who makes links, and what a claim writes, is in
auth/people/one_time_links.py and auth/people/user_accounts.py.
"""

from __future__ import annotations

from functools import partial

from auth.context.identity_parts import HashingBusy
from auth.pages import passkey_forms, reauthentication_proof
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit
from auth.pages.passkey_forms import PasskeyOffer
from auth.people import browser_sessions, one_time_links, passkeys, user_accounts
from auth.people.browser_sessions import cookie_from, set_cookie
from auth.people.passkeys import NotAdded, PasskeyToAdd
from auth.people.user_accounts import ClaimedServer, LinkIsOver, NameTaken, UnfitEntry
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.requester import Requester


async def show(visit: PageVisit) -> WireReply:
    token = one_time_links.token_of(visit.request.path)
    find = partial(one_time_links.find, kind=one_time_links.CLAIM, token=token, now=visit.now)
    if await visit.parts.store.read(find) is None:
        return _link_is_over(visit)
    return _form(visit, token, name="", problem="")


async def claim(visit: PageVisit) -> WireReply:
    token = one_time_links.token_of(visit.request.path)
    if not visit.shows(_purpose(token)):
        return visit.stale_form()
    until = await visit.parts.store.write(partial(one_time_links.admit, who=visit.who, now=visit.now))
    if until:
        return visit.too_many(until, back=(one_time_links.path_of(token), "Back"))
    find = partial(one_time_links.find, kind=one_time_links.CLAIM, token=token, now=visit.now)
    link = await visit.parts.store.read(find)
    if link is None:  # before hashing: only the link's holder may cost us a hash
        await visit.parts.store.write(partial(user_accounts.not_claimed, who=visit.who, now=visit.now))
        return _link_is_over(visit)
    typed = visit.form.get("name", "")
    name = user_accounts.fit_name(typed)
    if isinstance(name, UnfitEntry):
        return _form(visit, token, name=typed, problem=name.sentence, about="name")
    new: PasskeyToAdd | None = None
    hashed: str | None = None
    if visit.form.get("credential"):
        made = passkey_forms.new_passkey(visit, link.user_id)
        if isinstance(made, str):
            return _form(visit, token, name=typed, problem=made)
        new = made
    else:
        passphrase = user_accounts.fit_passphrase(visit.form.get("passphrase", ""))
        if isinstance(passphrase, UnfitEntry):
            return _form(visit, token, name=typed, problem=passphrase.sentence, about="passphrase")
        if passphrase != user_accounts.fit_passphrase(visit.form.get("passphrase_again", "")):
            return _form(visit, token, name=typed, problem=user_accounts.DIFFER, about="passphrase_again")
        try:
            hashed = await reauthentication_proof.hashed(visit, passphrase)
        except HashingBusy:
            return visit.hashing_busy(back=(one_time_links.path_of(token), "Back"))

    cookie = cookie_from(visit.parts.entropy(browser_sessions.COOKIE_BYTES))
    outcome = await visit.parts.store.write(
        partial(
            _claim_and_sign_in,
            token=token,
            name=name,
            passphrase_hash=hashed,
            new=new,
            cookie=cookie,
            replaces=visit.cookie,
            who=visit.who,
            now=visit.parts.clock(),
        )
    )
    match outcome:
        case LinkIsOver():
            return _link_is_over(visit)
        case NotAdded():
            return _form(visit, token, name=typed, problem=outcome.sentence)
        case NameTaken():
            return _form(
                visit, token, name=typed, problem="Somebody here has this name already.", about="name"
            )
        case ClaimedServer():
            cookies = (set_cookie(cookie, visit.secure, keep=True), visit.remember_for(outcome.user.id))
            return redirect("/welcome", headers=cookies)


def _claim_and_sign_in(
    db: Db,
    *,
    token: str,
    name: str,
    passphrase_hash: str | None,
    new: PasskeyToAdd | None,
    cookie: str,
    replaces: str,
    who: Requester,
    now: Millis,
) -> ClaimedServer | LinkIsOver | NameTaken | NotAdded:
    if new is not None:
        added = passkeys.add(db, new, who=who, now=now)
        if isinstance(added, NotAdded):
            return added
    outcome = user_accounts.claim(
        db, token=token, name=name, passphrase_hash=passphrase_hash, who=who, now=now
    )
    if isinstance(outcome, ClaimedServer):
        browser_sessions.begin(
            db, cookie=cookie, replaces=replaces, user_id=outcome.user.id, who=who, now=now
        )
    elif new is not None:
        passkeys.take_back(db, new, who=who, now=now)
    return outcome


def _purpose(token: str) -> str:
    return f"claim {token}"


def _form(visit: PageVisit, token: str, *, name: str, problem: str, about: str = "") -> WireReply:
    passkey = passkey_forms.link_offer(visit, token)
    return reauthentication_proof.scripted(visit, isinstance(passkey, PasskeyOffer)).page(
        "claim.html",
        title="Claim this server",
        status=400 if problem else 200,
        form_token=visit.token(_purpose(token)),
        action=one_time_links.path_of(token),
        name=name[: user_accounts.NAME_CHARACTERS],
        passkey=passkey,
        problem=problem,
        about=about,
    )


def _link_is_over(visit: PageVisit) -> WireReply:
    return visit.error(
        410,
        "This link no longer works",
        "A claim link works once, for 30 minutes, and only the newest one does.",
        "If this server is yours, run `ostiary claim` on the machine it runs on. If you have claimed it already, sign in.",
        back=("/signin", "Sign in"),
    )


async def welcome(visit: PageVisit) -> WireReply:
    session = await visit.session()
    if session is None:
        return redirect("/signin?next=/welcome")
    site = visit.parts.site
    return visit.of(session).page(
        "welcome.html",
        title="Welcome",
        account=session.user.name,
        command=site.login_at(site.public(visit.request.origin)),
    )
