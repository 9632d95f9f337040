"""The claim of the server: the one-time link, the owner's name, passkey or passphrase, and the first signed-in page.

Following the link shows a form and uses nothing up; the POST does, once. Links are made in auth/people/one_time_links.py, and a claim is
written in auth/people/user_accounts.py.
"""

from __future__ import annotations

from functools import partial

from auth.pages import chosen_credentials, passkey_forms, reauthentication_proof
from auth.pages.page_visit import PageVisit, signed_in
from auth.pages.passkey_forms import PasskeyOffer
from auth.people import one_time_links, user_accounts
from auth.people.browser_sessions import BrowserSession
from auth.people.one_time_links import OneTimeLink
from auth.people.passkeys import NotAdded
from auth.people.user_accounts import LinkIsOver, NameTaken, UnfitEntry, User
from auth.values.http_messages import WireReply


async def show(visit: PageVisit) -> WireReply:
    token = one_time_links.token_of(visit.request.path)
    if await _find(visit, token) is None:
        return _link_is_over(visit)
    return _form(visit, token, name="", problem="")


async def _find(visit: PageVisit, token: str) -> OneTimeLink | None:
    return await visit.read(one_time_links.find, kind=one_time_links.CLAIM, token=token, now=visit.now)


async def claim(visit: PageVisit) -> WireReply:
    token = one_time_links.token_of(visit.request.path)
    if not visit.shows(_purpose(token)):
        return visit.stale_form()
    path = one_time_links.path_of(token)
    until = await visit.write(one_time_links.admit, who=visit.who, now=visit.now)
    if until:
        return visit.too_many(until, back=(path, "Back"))
    link = await _find(visit, token)
    if link is None:  # before hashing: only the link's holder may cost us a hash
        await visit.write(user_accounts.not_claimed, who=visit.who, now=visit.now)
        return _link_is_over(visit)
    typed = visit.form.get("name", "")
    again = partial(_form, visit, token, name=typed)
    name = user_accounts.fit_name(typed)
    if isinstance(name, UnfitEntry):
        return again(problem=name.sentence, about="name")
    chosen = await chosen_credentials.choose(visit, link.user_id, passkey=True, back=path, again=again)
    if isinstance(chosen, WireReply):
        return chosen
    fresh, take = visit.new_session(), partial(user_accounts.claim, token=token, name=name)
    outcome = await visit.write(chosen_credentials.take_and_sign_in, take=take, chosen=chosen, fresh=fresh)
    match outcome:
        case LinkIsOver():
            return _link_is_over(visit)
        case NotAdded():
            return again(problem=outcome.sentence)
        case NameTaken():
            return again(problem="Somebody here has this name already.", about="name")
        case User():
            return visit.lead_on("/welcome", fresh, known_as=outcome.id)


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


@signed_in("/welcome")
async def welcome(visit: PageVisit, session: BrowserSession) -> WireReply:
    site = visit.parts.site
    return visit.page(
        "welcome.html",
        title="Welcome",
        account=session.user.name,
        command=site.login_at(site.public(visit.request.origin)),
    )
