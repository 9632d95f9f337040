"""The pages of the links that people get: accepting an invitation, and choosing a new passphrase.

Following a link shows a form and uses nothing up; the POST does, once, and signs the browser in. Links are made at the terminal and on the
page People; their effect is in auth/administration/guest_accounts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec

from auth.administration import guest_accounts as people
from auth.pages import chosen_credentials, navigation, opened_servers, passkey_forms, reauthentication_proof
from auth.pages.html_shell import clock
from auth.pages.page_visit import PageStep, PageVisit
from auth.pages.passkey_forms import PasskeyOffer
from auth.people import one_time_links, user_accounts
from auth.people.passkeys import NotAdded
from auth.people.user_accounts import LinkIsOver, User
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of link."""

    template: str
    title: str
    take: Callable[..., User | LinkIsOver]  # the job that uses it up
    lands: str
    over: str  # what is said once it does not work any more
    passkey: bool  # whether it can be answered with a new passkey


KINDS: Final[Mapping[str, _Kind]] = MappingProxyType(
    {
        one_time_links.INVITE: _Kind(
            template="invite.html",
            title="You are invited",
            take=people.accept,
            lands="/connect?joined=1",
            over="An invitation works once and until it runs out, and only the newest one does.",
            passkey=True,
        ),
        one_time_links.RESET: _Kind(
            template="reset.html",
            title="Choose a new passphrase",
            take=people.take_new_passphrase,
            lands=f"{navigation.YOU}?did=passphrase-changed",
            over="Such a link works once, for 30 minutes, and only the newest one does.",
            passkey=False,
        ),
    }
)


class _Guest(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a link, and who sent it."""

    user: User
    invited_by: str


def _find(db: Db, *, kind: str, token: str, now: Millis) -> _Guest | None:
    """Find who holds a link, as a job; the account's state and end count too, so that nobody fills in a form for nothing."""
    link = one_time_links.find(db, kind=kind, token=token, now=now)
    user = None if link is None else user_accounts.find(db, link.user_id)
    fits = user is not None and (
        user.state == "invited" if kind == one_time_links.INVITE else user.state == "enabled"
    )
    if user is None or not fits or user.over(now):
        return None
    host = user_accounts.find(db, user.invited_by or "") or user_accounts.owner(db)
    claimed = host is not None and host.state != "unclaimed"
    return _Guest(user=user, invited_by=host.name if host is not None and claimed else "")


async def _show(visit: PageVisit, *, kind: str) -> WireReply:
    token = one_time_links.token_of(visit.request.path)
    guest = await visit.read(_find, kind=kind, token=token, now=visit.now)
    return _link_is_over(visit, kind) if guest is None else _form(visit, kind, token, guest, problem="")


async def _take(visit: PageVisit, *, kind: str) -> WireReply:
    token = one_time_links.token_of(visit.request.path)
    if not visit.shows(purpose(kind, token)):
        return visit.stale_form()
    path = one_time_links.path_of(token, kind)
    until = await visit.write(one_time_links.admit, who=visit.who, now=visit.now)
    if until:
        return visit.too_many(until, back=(path, "Back"))
    guest = await visit.read(_find, kind=kind, token=token, now=visit.now)
    if guest is None:  # before hashing: only the link's holder may cost us a hash
        await visit.write(people.link_is_over, kind=kind, who=visit.who, now=visit.now)
        return _link_is_over(visit, kind)
    again, what = partial(_form, visit, kind, token, guest), KINDS[kind]
    chosen = await chosen_credentials.choose(
        visit, guest.user.id, passkey=what.passkey, back=path, again=again
    )
    if isinstance(chosen, WireReply):
        return chosen
    fresh, take = visit.new_session(), partial(what.take, token=token)
    outcome = await visit.write(chosen_credentials.take_and_sign_in, take=take, chosen=chosen, fresh=fresh)
    if isinstance(outcome, LinkIsOver):
        return _link_is_over(visit, kind)
    if isinstance(outcome, NotAdded):
        return again(problem=outcome.sentence)
    return visit.lead_on(what.lands, fresh, known_as=outcome.id)


def purpose(kind: str, token: str) -> str:
    """Return what the form's token is for."""
    return f"{kind} {token}"


def _form(
    visit: PageVisit, kind: str, token: str, guest: _Guest, *, problem: str, about: str = ""
) -> WireReply:
    what = KINDS[kind]
    passkey = passkey_forms.link_offer(visit, token) if what.passkey else None
    return reauthentication_proof.scripted(visit, isinstance(passkey, PasskeyOffer)).page(
        what.template,
        title=what.title,
        status=400 if problem else 200,
        form_token=visit.token(purpose(kind, token)),
        action=one_time_links.path_of(token, kind),
        token=token,
        passkey=passkey,
        name=guest.user.name,
        invited_by=guest.invited_by,
        may=people.in_words(visit.parts.site.scopes, guest.user.scope),
        some_tools=guest.user.tools != "",
        host=visit.frame.host,
        places=opened_servers.places_of(visit, guest.user),
        until="" if guest.user.expires_at is None else clock(guest.user.expires_at),
        problem=problem,
        about=about,
    )


def _link_is_over(visit: PageVisit, kind: str) -> WireReply:
    return visit.error(
        410,
        "This link no longer works",
        KINDS[kind].over,
        "If you have used it already, sign in. If not, ask whoever sent it for another one.",
        back=("/signin", "Sign in"),
    )


def steps(kind: str) -> Mapping[str, PageStep]:
    """Return the step for each method of a link of this kind."""
    return MappingProxyType({"GET": partial(_show, kind=kind), "POST": partial(_take, kind=kind)})
