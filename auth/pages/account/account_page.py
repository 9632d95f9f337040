"""The pages of an account: Access, what may come in and what did; You, how one signs in, and what is one's own.

Each is made of sections, a row in a table below; a section reads in its own module and does what its buttons say there.
Everything works without script. Words about what was done are in auth/pages/account_notices.py; which pages there are, navigation.py's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from auth.administration import guest_accounts as people
from auth.pages import account_notices, html_shell, navigation, passkey_forms
from auth.pages.account import api_key_section as account_keys
from auth.pages.account import browser_section as account_browsers
from auth.pages.account import connection_section as account_connections
from auth.pages.account import consent_section as account_consents
from auth.pages.account import login_section as account_logins
from auth.pages.account import money_section as account_money
from auth.pages.account import passphrase_section as account_passphrase
from auth.pages.account import waiting_device_section as account_waiting
from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit, sign_in_then
from auth.people import browser_sessions
from auth.people.browser_sessions import BrowserSession
from auth.people.user_accounts import User
from auth.values.http_messages import WireReply


class AccountSection(msgspec.Struct, frozen=True):
    """A section: `look` reads what the template shows under the name `it`; None leaves the section out."""

    template: str
    look: Callable[[PageVisit, BrowserSession], Awaitable[object | None]]


class OwnRights(msgspec.Struct, frozen=True, kw_only=True):
    """The ceiling of somebody, for themselves to read."""

    owner: bool
    may: tuple[str, ...]
    tools: str
    until: str


async def _rights(visit: PageVisit, session: BrowserSession) -> OwnRights:
    user = session.user
    return OwnRights(
        owner=user.role == "owner",
        may=people.in_words(visit.parts.site.scopes, user.scope),
        tools=user.tools,
        until="" if user.expires_at is None else html_shell.clock(user.expires_at),
    )


ACCESS: Final = (
    AccountSection("account_waiting.html", account_waiting.look),
    AccountSection("account_logins.html", account_logins.look),
    AccountSection("account_keys.html", account_keys.look),
    AccountSection("account_browsers.html", account_browsers.look),
    AccountSection("account_consents.html", account_consents.look),
)
YOU: Final = (
    AccountSection("account_rights.html", _rights),
    AccountSection("account_passkeys.html", passkey_forms.look),
    AccountSection("account_passphrase.html", account_passphrase.look),
    AccountSection("account_connections.html", account_connections.look),
    AccountSection("account_money.html", account_money.look),
)


# From an account that is closed: where anybody can go.
OUT: Final = ("/", "To the front page")


async def show_access(visit: PageVisit) -> WireReply:
    return await _show(visit, navigation.ACCESS, "Access", ACCESS)


async def show_you(visit: PageVisit) -> WireReply:
    return await _show(visit, navigation.YOU, "You", YOU)


async def _show(visit: PageVisit, path: str, title: str, sections: tuple[AccountSection, ...]) -> WireReply:
    session = await visit.session()
    if session is None:
        return await not_signed_in(visit, path)
    visit, user = visit.of(session), session.user
    shown = [(section.template, await section.look(visit, session)) for section in sections]
    return visit.page(
        "account.html",
        title=title,
        heading=title if path == navigation.ACCESS else user.name,
        owns=user.role == "owner" and path == navigation.ACCESS,
        notice=account_notices.of(visit),
        sections=[(template, it) for template, it in shown if it is not None],
    )


async def not_signed_in(visit: PageVisit, path: str) -> WireReply:
    """Lead to the sign-in page, and back to this path; or say to a browser whose account is closed that it is."""
    user = await visit.read(browser_sessions.barred, cookie=visit.cookie, now=visit.now)
    return redirect(sign_in_then(path)) if user is None or visit.fresh else _barred(visit, user)


def _barred(visit: PageVisit, user: User) -> WireReply:
    """Answer a browser that was signed in, which learns nothing that it could not have seen before."""
    if user.state == "enabled" and user.expires_at is not None:
        happened = (
            f"It was open until {html_shell.clock(user.expires_at)}. What it had let in no longer works."
        )
        return visit.error(
            403, "This account has ended", happened, "Ask whoever invited you for more time.", back=OUT
        )
    return visit.error(
        403,
        "This account is disabled",
        "Whoever runs this server has disabled it. Nothing that it let in works meanwhile.",
        "Ask them about it.",
        back=OUT,
    )
