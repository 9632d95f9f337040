"""What has access, on the account page: each login in words, and a button that ends it.

A person sees and ends their own; the owner everybody's, after proving themselves lately. Somebody else's login and one that is
not there are one answer.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from shlex import quote
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from auth.account import notices
from auth.device.code_entry import sign_in_then
from auth.grants import admin as grants
from auth.grants.admin import LoginRecord
from auth.pages import ago, day, redirect
from auth.people import guests as people
from auth.people import proving, sessions
from auth.people.sessions import BrowserSession
from auth.values.db import Db
from auth.values.model import Millis, PrincipalKind
from auth.values.wire import WireReply
from auth.visit import PageVisit

SHOWN: Final = 200  # beyond it the page is no longer read; the terminal lists more
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
    rows: tuple[LoginRow, ...]


class LoginSection(msgspec.Struct, frozen=True, kw_only=True):
    groups: tuple[LoginGroup, ...]
    everybody: bool
    more: bool
    limit: int
    form_token: str
    command: str


async def look(visit: PageVisit, session: BrowserSession) -> LoginSection:
    user, site = session.user, visit.parts.site
    everybody = user.role == "owner"
    found = await visit.parts.store.read(
        partial(grants.sessions, now=visit.now, subject=None if everybody else user.id, limit=SHOWN + 1)
    )
    shown = sorted(found[:SHOWN], key=lambda login: _whose(login, user.id))  # stable: the last used first
    groups = [
        LoginGroup(title=title, rows=tuple(_row(visit, login) for login in logins))
        for (_, title), logins in groupby(shown, lambda login: _whose(login, user.id))
    ]
    return LoginSection(
        groups=tuple(groups),
        everybody=everybody,
        more=len(found) > SHOWN,
        limit=SHOWN,
        form_token=visit.token(PURPOSE),
        command=f"ostiary login {quote(site.public(visit.request.origin) + site.servers[site.default])}",
    )


def _whose(login: LoginRecord, mine: str) -> tuple[int, str]:
    """Where a login stands on the page, and under which title."""
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


async def end(visit: PageVisit) -> WireReply:
    session = await visit.session()
    if session is None:
        return redirect(sign_in_then("/account"))
    visit = visit.of(session)
    if not visit.shows(PURPOSE):
        return visit.stale_form()
    login = visit.form.get("login", "")
    job = partial(end_login, cookie=visit.cookie, login=login, now=visit.now)
    outcome = await visit.parts.store.write(job)
    if outcome == "prove":
        asked = await proving.ask(visit, session, "to end a login that is not yours")
        if asked is not None:
            return asked
        outcome = await visit.parts.store.write(job)
    return notices.back("login-ended" if outcome == "ended" else "gone")


def end_login(db: Db, *, cookie: str, login: str, now: Millis) -> Literal["ended", "gone", "prove"]:
    """A job. "prove": it is somebody else's, and the owner has to show first that it is them."""
    session = sessions.find(db, cookie, now)
    row = db.fetch_one("SELECT principal_kind, subject FROM grants WHERE id = ?", login)
    if session is None or row is None:
        return "gone"
    own = row["principal_kind"] == PrincipalKind.USER and row["subject"] == session.user.id
    if not own and session.user.role != "owner":
        return "gone"
    if not own and not proving.lately(session, now):
        return "prove"
    by = session.user.id
    ended = grants.revoke(db, login, reason="ended on the account page", by=by, now=now)
    return "ended" if ended else "gone"
