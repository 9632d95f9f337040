"""The account page: what has access, which browsers are signed in, what was agreed to, how one signs in.

It is made of sections, a row each in the table below; a section reads in its own module and does what its buttons say there.
Everything works without script. What the page says after an act is in notices.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec
from markupsafe import Markup

from auth import pages
from auth.account import api_keys as account_keys
from auth.account import browsers as account_browsers
from auth.account import connections as account_connections
from auth.account import consents as account_consents
from auth.account import logins as account_logins
from auth.account import money as account_money
from auth.account import notices
from auth.account import passphrase as account_passphrase
from auth.account import people as account_people
from auth.device.code_entry import sign_in_then
from auth.pages import redirect
from auth.passkeys import forms as passkey_forms
from auth.people import guests as people
from auth.people import sessions
from auth.people.sessions import BrowserSession
from auth.people.users import User
from auth.values.wire import WireReply
from auth.visit import PageVisit


class AccountSection(msgspec.Struct, frozen=True):
    """`look` reads what the template shows under the name `it`; None leaves the section out."""

    template: str
    look: Callable[[PageVisit, BrowserSession], Awaitable[object | None]]


SECTIONS: Final = (
    AccountSection("account_logins.html", account_logins.look),
    AccountSection("account_keys.html", account_keys.look),
    AccountSection("account_money.html", account_money.look),
    AccountSection("account_earnings.html", account_money.look_at_earnings),
    AccountSection("account_browsers.html", account_browsers.look),
    AccountSection("account_consents.html", account_consents.look),
    AccountSection("account_connections.html", account_connections.look),
    AccountSection("account_people.html", account_people.look),
    AccountSection("account_passkeys.html", passkey_forms.look),
    AccountSection("account_passphrase.html", account_passphrase.look),
)


NOTHING_ABOVE: Final = Markup("")


async def show(visit: PageVisit, *, above: Markup = NOTHING_ABOVE) -> WireReply:
    """`above`: what somebody else has to say first, as HTML."""
    session = await visit.session()
    if session is None:
        user = await visit.parts.store.read(partial(sessions.barred, cookie=visit.cookie, now=visit.now))
        return redirect(sign_in_then("/account")) if user is None or visit.fresh else _barred(visit, user)
    visit, user = visit.of(session), session.user
    shown = [(section.template, await section.look(visit, session)) for section in SECTIONS]
    return visit.page(
        "account.html",
        title="Your account",
        session_user=user,
        may=people.in_words(visit.parts.site.scopes, user.scope),
        until="" if user.expires_at is None else pages.clock(user.expires_at),
        notice=notices.of(visit.query("did")),
        above=above,
        sections=[(template, it) for template, it in shown if it is not None],
    )


def _barred(visit: PageVisit, user: User) -> WireReply:
    """For a browser that was signed in: it learns nothing that it could not have seen before."""
    if user.state == "enabled" and user.expires_at is not None:
        happened = (
            f"It was open until {pages.clock(user.expires_at)}. Nothing that it had let in works any more."
        )
        return visit.error(403, "This account is over", happened, "Ask whoever invited you for more time.")
    return visit.error(
        403,
        "This account is switched off",
        "Whoever runs this server has disabled it. Nothing that it had let in works now.",
        "Ask them about it.",
    )
