"""Connecting an account that somebody has elsewhere: a page that says what that means, the way there, and the way back.

A person who opens the address connects their own account to the one they are signed in with here, after a button of our own form. The way back
counts once, for the browser and the person that left, so that nobody finishes what another began. The accounts that are kept are the server's
(values/connected_accounts.py).
"""

from __future__ import annotations

from typing import Final

from auth.pages.html_shell import redirect
from auth.pages.page_visit import PageVisit, sign_in_then
from auth.people.browser_sessions import BrowserSession
from auth.values.connected_accounts import PREFIX, AccountPlace, CannotConnect
from auth.values.http_messages import WireReply

PURPOSE: Final = "connect"
CODE_CHARACTERS: Final = 4_096
STATE_CHARACTERS: Final = 256
NO_KEY: Final = (
    "That is no key: it is one word of letters, digits and signs. Copy it again, and nothing else."
)
ACCOUNT: Final = ("/account/you", "Your account")


async def show(visit: PageVisit) -> WireReply:
    found = await _begun(visit)
    if isinstance(found, WireReply):
        return found
    return _asking(*found)


def _asking(visit: PageVisit, session: BrowserSession, place: AccountPlace, problem: str = "") -> WireReply:
    return visit.page(
        "connect_key.html" if place.by_key else "connect.html",
        status=400 if problem else 200,
        problem=problem,
        title=f"Your key for {place.label}" if place.by_key else f"Connect {place.label}",
        label=place.label,
        name=session.user.name,
        action=place.path,
        form_token=visit.token(f"{PURPOSE} {place.path}"),
    )


async def leave(visit: PageVisit) -> WireReply:
    found = await _begun(visit)
    if isinstance(found, WireReply):
        return found
    visit, session, place = found
    if not visit.shows(f"{PURPOSE} {place.path}"):
        return visit.stale_form()
    assert visit.parts.connections is not None
    if place.by_key:
        key = visit.form.get("key", "").strip()
        if not await visit.parts.connections.keep_key(place, key, user_id=session.user.id):
            return _asking(visit, session, place, NO_KEY)
        return visit.page("connected.html", title="Your key is kept", label=place.label, by_key=True)
    try:
        url = await visit.parts.connections.leave(
            place,
            user_id=session.user.id,
            cookie=visit.cookie,
            origin=visit.parts.site.public(visit.request.origin),
        )
    except CannotConnect as problem:
        return _failed(visit, place, problem)
    # A page and no redirect: browsers hold a form's target against where its answer leads, and that is anybody's host.
    return visit.page("connect_leave.html", title=f"Off to {place.label}", label=place.label, url=url)


async def come_back(visit: PageVisit) -> WireReply:
    found = await _begun(visit)
    if isinstance(found, WireReply):
        return found
    visit, session, place = found
    state, code = visit.query("state"), visit.query("code")
    denied = visit.query("error") != "" or not 0 < len(code) <= CODE_CHARACTERS
    assert visit.parts.connections is not None
    try:
        known = 0 < len(state) <= STATE_CHARACTERS and await visit.parts.connections.come_back(
            place,
            state=state,
            code="" if denied else code,
            iss=visit.query("iss"),
            user_id=session.user.id,
            cookie=visit.cookie,
        )
    except CannotConnect as problem:
        return _failed(visit, place, problem)
    if not known:
        return visit.error(
            400,
            "This has ended",
            "It was finished already, took more than ten minutes, or began in another browser or as somebody else."
            " Nothing was connected.",
            "Start again, and stay in one browser.",
            back=(place.path, "Start again"),
        )
    if denied:
        return visit.error(
            403,
            "Nothing was connected",
            f"You, or {place.label}, said no.",
            "Try again, if that was not meant.",
            back=(place.path, "Start again"),
        )
    return visit.page("connected.html", title="Connected", label=place.label, by_key=False)


async def _begun(visit: PageVisit) -> tuple[PageVisit, BrowserSession, AccountPlace] | WireReply:
    """Return who is signed in, and the place that is meant; or the answer where one of them is not there."""
    session = await visit.session()
    if session is None:
        path = visit.request.path.removesuffix("/callback")
        return redirect(sign_in_then(path))
    visit = visit.of(session)
    server, _, rest = visit.request.path.removeprefix(PREFIX).partition("/")
    connections = visit.parts.connections
    place = None if connections is None else connections.place(server, rest.partition("/")[0])
    if place is None:
        return visit.error(
            404,
            "There is nothing to connect here",
            "Whoever runs this server has not set it up, or has removed it.",
            "Ask them about it.",
            back=ACCOUNT,
        )
    return visit, session, place


def _failed(visit: PageVisit, place: AccountPlace, problem: CannotConnect) -> WireReply:
    return visit.error(
        502,
        f"{place.label} cannot be connected",
        f"It {problem}. Nothing was connected.",
        "Try again in a moment. If that does not help, whoever runs this server finds the reason in its log.",
        back=(place.path, "Start again"),
    )
