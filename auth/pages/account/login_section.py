"""Logins on the page Access: each in words, with a button that ends it.

A person sees and ends their own; the owner everybody's, after proving themselves lately. Somebody else's login and one that is
not there are one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Final, Literal
from urllib.parse import urlencode, urlsplit

import msgspec

from auth.administration import guest_accounts as people
from auth.administration import login_listing
from auth.administration.login_listing import LoginPage, Place
from auth.grants import login_records as grants
from auth.grants.login_records import LoginRecord
from auth.pages import account_notices, navigation, reauthentication
from auth.pages.html_shell import ago, day
from auth.pages.page_visit import PageVisit, signed_in
from auth.people import browser_sessions
from auth.people.browser_sessions import BrowserSession
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis, PrincipalKind

SHOWN: Final = 30  # on a page
FEW: Final = 8  # are seen at a glance
STRETCHES: Final = 4  # of very many logins, looked at for one page of those that are searched for
SEARCHED: Final = 80  # characters of what is looked for
PURPOSE: Final = "account logins"
END: Final = "/account/logins/end"


class LoginRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str  # as claimed, where `standing` says so
    standing: str
    host: str  # of a program that is known by its own address
    how: str
    computer: str
    first_ip: str
    last_ip: str
    since: str
    used: str
    until: str
    server: str  # empty where there is but one
    may: tuple[str, ...]
    paused: str


class LoginGroup(msgspec.Struct, frozen=True, kw_only=True):
    title: str  # empty: one's own
    person: bool  # it is somebody's name
    rows: tuple[LoginRow, ...]


class LoginSection(msgspec.Struct, frozen=True, kw_only=True):
    groups: tuple[LoginGroup, ...]
    everybody: bool
    searchable: bool  # there are so many that somebody would look for one
    older: str  # the address of those that come after these; "": there are none
    by_use: bool  # those that were used last come first; else those that were made last
    newest: str  # that of the first page; "": this is it
    searched: str
    form_token: str
    command: str


async def look(visit: PageVisit, session: BrowserSession) -> LoginSection:
    user, site = session.user, visit.parts.site
    everybody = user.role == "owner"
    searched = visit.query("q").strip()[:SEARCHED]
    before = read_place(visit.query("before"))
    found = await (
        _everybodys(visit, before, searched) if everybody else _own(visit, user.id, before, searched)
    )
    # Stable: in each group the last used first, or the newest.
    shown = sorted(found.logins, key=lambda login: _whose(login, user.id))
    groups = [
        LoginGroup(title=title, person=place == 1, rows=tuple(_row(visit, login) for login in logins))
        for (place, title), logins in groupby(shown, lambda login: _whose(login, user.id))
    ]
    return LoginSection(
        groups=tuple(groups),
        everybody=everybody,
        searchable=len(found.logins) > FEW or bool(searched) or before is not None,
        older="" if found.go_on is None else _address(searched, found.go_on),
        by_use=found.by_use,
        newest="" if before is None else _address(searched),
        searched=searched,
        form_token=visit.token(PURPOSE),
        command=site.login_at(site.public(visit.request.origin)),
    )


async def _everybodys(visit: PageVisit, before: Place | None, searched: str) -> LoginPage:
    """Read as many stretches as it takes to fill a page, and no more than a few."""
    logins, at, by_use = list[LoginRecord](), before, True
    for _ in range(STRETCHES):
        found = await visit.read(
            login_listing.page, now=visit.now, limit=SHOWN - len(logins), before=at, like=searched
        )
        logins += found.logins
        at, by_use = found.go_on, found.by_use
        if at is None or len(logins) >= SHOWN:
            break
    return LoginPage(logins=logins, go_on=at, by_use=by_use)


async def _own(visit: PageVisit, person: str, before: Place | None, searched: str) -> LoginPage:
    found = await visit.read(
        grants.sessions, now=visit.now, subject=person, limit=SHOWN + 1, before=before, like=searched
    )
    last = found[SHOWN - 1].grant if len(found) > SHOWN else None
    go_on = None if last is None else (last.last_used_at, last.id)
    return LoginPage(logins=found[:SHOWN], go_on=go_on, by_use=True)


def read_place(text: str) -> Place | None:
    """Read where a page of logins begins: when the last one of the page before was used or made, and its id."""
    at, dot, login = text.partition(".")
    return (int(at), login) if dot and at.isascii() and at.isdigit() and len(at) < 16 else None


def _address(searched: str, after: Place | None = None) -> str:
    return address(searched, "before", "" if after is None else f"{after[0]}.{after[1]}")


def address(searched: str, name: str, place: str) -> str:
    """Return the address of the page Access for a search, beginning at a place of it."""
    query = {key: value for key, value in (("q", searched), (name, place)) if value}
    return navigation.ACCESS + (f"?{urlencode(query)}" if query else "")


def _whose(login: LoginRecord, mine: str) -> tuple[int, str]:
    """Return where a login stands on the page, and under which title."""
    if login.grant.principal_kind != PrincipalKind.USER:
        return 2, "Machines with credentials of their own"
    return (0, "") if login.grant.subject == mine else (1, login.user_name)


def _row(visit: PageVisit, login: LoginRecord) -> LoginRow:
    grant, site = login.grant, visit.parts.site
    document = login.client_kind == "document"
    host = urlsplit(grant.client_id).hostname or "" if document else ""
    idles = grant.idle_until < grant.expires_at  # each refresh moves that on
    return LoginRow(
        id=grant.id,
        name=login.registered_name if document else grant.client_name or login.registered_name,
        standing=login.standing,
        host=host,
        how=_how(login, host),
        computer=grant.hostname,
        first_ip=grant.ip,
        last_ip=grant.last_ip if grant.last_ip != grant.ip else "",
        since=day(grant.created_at),
        used="no call yet" if grant.called_at is None else f"last call {ago(grant.called_at, visit.now)}",
        until=f"{day(grant.idle_until)} if unused" if idles else day(grant.expires_at),
        server=grant.server if len(site.servers) > 1 else "",
        may=people.in_words(site.scopes, grant.scope),
        paused=login.paused,
    )


def _how(login: LoginRecord, host: str) -> str:
    back_to = urlsplit(login.grant.redirect_host).hostname or login.grant.redirect_host
    match login.grant.how:
        case "code" if back_to not in ("", host):
            return f"through a browser, sent back to {back_to}"
        case "code":
            return "through a browser"
        case "client_credentials":
            return "with its own credentials"
        case "assertion":
            return f"by the word of {login.grant.approved_by.removeprefix('idp:')}"
        case _:
            return "with a code"


@signed_in(navigation.ACCESS, PURPOSE)
async def end(visit: PageVisit, session: BrowserSession) -> WireReply:
    job = partial(end_login, cookie=visit.cookie, login=visit.form.get("login", ""), now=visit.now)
    return await end_access(visit, session, job, of="a login", did="login-ended")


class AccessEnded(msgspec.Struct, frozen=True):
    """The end of a login or key; `what` says in words whose, and which."""

    what: str


async def end_access(
    visit: PageVisit,
    session: BrowserSession,
    job: Callable[[Db], AccessEnded | Literal["gone", "prove"]],
    *,
    of: str,
    did: str,
) -> WireReply:
    """End a login or key, after a proof where it is not one's own."""
    why = f"to end {of} that is not yours"
    outcome = await reauthentication.carry_out(visit, session, why, job, back=navigation.ACCESS)
    if isinstance(outcome, WireReply):
        return outcome
    if not isinstance(outcome, AccessEnded):
        return account_notices.back(visit, navigation.ACCESS, "gone")
    return account_notices.back(visit, navigation.ACCESS, did, outcome.what)


def end_login(db: Db, *, cookie: str, login: str, now: Millis) -> AccessEnded | Literal["gone", "prove"]:
    """End a login, as a job; return "prove" where it is somebody else's, and the owner has to show first that it is them."""
    session = browser_sessions.find(db, cookie, now)
    found = grants.find(db, login, now)
    if session is None or found is None:
        return "gone"
    grant = found.grant
    own = grant.principal_kind == PrincipalKind.USER and grant.subject == session.user.id
    if not own and session.user.role != "owner":
        return "gone"
    if not own and not reauthentication.lately(session, now):
        return "prove"
    if not grants.revoke(db, login, reason="ended on the page Access", by=session.user.id, now=now):
        return "gone"
    theirs = f"{found.user_name}’s" if grant.principal_kind == PrincipalKind.USER else "The"
    return AccessEnded(f"{'Your' if own else theirs} login of {found.named}")
