"""The routes of all pages of people: tables of methods and paths, each with the function of auth, or of the owner's pages, that makes its page.

Each visit is admitted by auth first (auth/pages/page_admission.py). Every part of the table is there or not as a whole, by the settings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from quart import Blueprint, Response

from auth.context.identity_parts import Parts
from auth.pages import (
    authorization_endpoint,
    connecting_accounts,
    consent_page,
    device_decision,
    front_page,
    invitation_pages,
    page_admission,
    passkey_pages,
    provider_sign_in_pages,
    server_claim_page,
    sign_in_page,
    user_code_entry,
)
from auth.pages.account import (
    account_page,
    api_key_section,
    browser_section,
    connection_section,
    consent_section,
    login_section,
    money_section,
    passphrase_section,
    waiting_device_section,
)
from auth.pages.navigation import PEOPLE
from auth.pages.page_admission import FormBounds
from auth.people import one_time_links
from auth.values.http_messages import WireReply
from server.console.overview import overview_pages
from server.console.pages import door_routes

if TYPE_CHECKING:
    from server.console.overview.overview_pages import OverviewPages
    from server.console.owner.owner_pages import OwnerPages
    from server.console.tryout.tryout_pages import TryPages

# A visit, and what stands in the path, to the page.
MakePage: TypeAlias = Callable[..., Awaitable[WireReply]]
Route: TypeAlias = tuple[str, str, MakePage]

# The names of blueprints.
PAGES: Final = "pages"
OWNER: Final = "owner"
TRY_IT: Final = "try_it"

_INVITATION: Final = invitation_pages.steps(one_time_links.INVITE)
_RESET: Final = invitation_pages.steps(one_time_links.RESET)
# The token of a link and the name of a provider are read by auth, of the path.
ROUTES: Final[Sequence[Route]] = (
    ("GET", "/signin", sign_in_page.show),
    ("POST", "/signin", sign_in_page.sign_in),
    ("POST", "/signout", sign_in_page.sign_out),
    ("POST", "/signin/with/<name>", provider_sign_in_pages.leave),
    ("GET", "/signin/with/<name>/callback", provider_sign_in_pages.come_back),
    ("POST", "/signin/passkey", passkey_pages.sign_in),
    ("POST", "/passkey/options", passkey_pages.options),  # of a browser's question to its authenticator
    ("GET", "/account/passkeys/new", passkey_pages.come_again),
    ("POST", "/account/passkeys/new", passkey_pages.begin),
    ("POST", "/account/passkeys", passkey_pages.add),
    ("POST", "/account/passkeys/remove", passkey_pages.remove),
    # One-time links.
    ("GET", "/claim/<token>", server_claim_page.show),
    ("POST", "/claim/<token>", server_claim_page.claim),
    ("GET", "/welcome", server_claim_page.welcome),
    ("GET", "/invite/<token>", _INVITATION["GET"]),
    ("POST", "/invite/<token>", _INVITATION["POST"]),
    ("GET", "/reset/<token>", _RESET["GET"]),
    ("POST", "/reset/<token>", _RESET["POST"]),
    # The account.
    ("GET", "/account/access", account_page.show_access),
    ("GET", "/account/you", account_page.show_you),
    ("POST", "/account/logins/deny", waiting_device_section.deny),
    ("POST", "/account/logins/end", login_section.end),
    ("POST", "/account/keys/end", api_key_section.end),
    ("POST", "/account/browsers/end", browser_section.end),
    ("POST", "/account/connections/end", connection_section.end),
    ("POST", "/account/consents/forget", consent_section.forget),
    ("POST", "/account/money/redeem", money_section.redeem),
    ("POST", "/account/money/cap", money_section.cap),
    ("POST", "/account/money/uncap", money_section.uncap),
    ("GET", "/account/passphrase", passphrase_section.show),
    ("POST", "/account/passphrase", passphrase_section.change),
    # Connecting programs, and accounts that somebody has elsewhere.
    ("GET", "/connect", front_page.connect),
    ("GET", "/connect/<server>/<agent>", connecting_accounts.show),
    ("POST", "/connect/<server>/<agent>", connecting_accounts.leave),
    ("GET", "/connect/<server>/<agent>/callback", connecting_accounts.come_back),
    # Logins of programs: by code (RFC 8628 §3.3), and through a browser (RFC 6749 §4.1.1).
    ("GET", "/device", user_code_entry.show),
    ("POST", "/device", user_code_entry.enter),
    ("POST", "/device/decide", device_decision.decide),
    ("GET", "/authorize", authorization_endpoint.show),
    ("POST", "/authorize/decide", consent_page.decide),
)


def make_front(parts: Parts, *, needs_login: bool) -> Blueprint:
    """Make the pages that are there also where nobody logs in."""
    front = Blueprint("front", __name__)

    @front.get(front_page.PATH)
    async def show_front() -> Response:
        return door_routes.page(await front_page.show(door_routes.asked(), parts, needs_login=needs_login))

    if not needs_login:  # else it is a page like any other

        @front.get(front_page.CONNECT)
        async def show_connect() -> Response:
            return door_routes.page(front_page.for_anybody(door_routes.asked(), parts))

    return front


def make_pages(parts: Parts, overview: OverviewPages) -> Blueprint:
    routes = (
        *ROUTES,
        ("GET", overview_pages.PATH, overview.overview),
        ("GET", overview_pages.CALLS, overview.calls),
    )
    return _blueprint(PAGES, routes, parts, with_values=False)


def make_owner(pages: OwnerPages) -> Blueprint:
    from server.console.owner.api_key_pages import NEW
    from server.console.owner.audit_page import AUDIT
    from server.console.owner.owner_acts import for_owner
    from server.console.owner.people_page import INVITE
    from server.console.owner.upstreams_page import UPSTREAMS

    people, person, upstreams = pages.people, pages.person, pages.upstreams
    routes = (
        ("GET", PEOPLE, PEOPLE, people.show),
        ("GET", INVITE, INVITE, people.begin),
        ("POST", INVITE, INVITE, people.invite),
        ("GET", f"{PEOPLE}/<user_id>", PEOPLE, person.show),
        ("POST", f"{PEOPLE}/<user_id>", PEOPLE, person.change),
        ("POST", f"{PEOPLE}/<user_id>/<act>", PEOPLE, person.act),
        ("GET", NEW, NEW, pages.keys.begin),
        ("POST", NEW, NEW, pages.keys.make),
        ("GET", AUDIT, AUDIT, pages.trail.show),
        ("POST", f"{AUDIT}/verify", AUDIT, pages.trail.verify),
        ("GET", UPSTREAMS, UPSTREAMS, upstreams.show),
        ("GET", f"{UPSTREAMS}/look", UPSTREAMS, upstreams.look),
        ("POST", f"{UPSTREAMS}/accept", UPSTREAMS, upstreams.accept),
    )
    guarded = [(method, path, for_owner(back, make_page)) for method, path, back, make_page in routes]
    return _blueprint(OWNER, guarded, pages.parts)


def make_try(pages: TryPages) -> Blueprint:
    """Make the pages on which tools are tried out; their forms may be larger."""
    from server.console.tryout.tryout_pages import BOUNDS, PATH

    routes: Sequence[Route] = (
        ("GET", PATH, pages.servers),
        ("GET", f"/<server>{PATH}", pages.tools),
        ("GET", f"/<server>{PATH}/<name>", pages.tool),
        ("POST", f"/<server>{PATH}/<name>", pages.call),
    )
    return _blueprint(TRY_IT, routes, pages.parts, bounds=BOUNDS, recognises=pages.needs_login)


def _blueprint(
    name: str,
    routes: Sequence[Route],
    parts: Parts,
    *,
    bounds: FormBounds = page_admission.OURS,
    with_values: bool = True,
    recognises: bool = True,
) -> Blueprint:
    blueprint = Blueprint(name, __name__)
    for method, path, make_page in routes:
        view = _view(make_page, parts, bounds, with_values=with_values, recognises=recognises)
        blueprint.add_url_rule(path, f"{method} {path}", view, methods=[method])
    return blueprint


def _view(
    make_page: MakePage, parts: Parts, bounds: FormBounds, *, with_values: bool, recognises: bool
) -> Callable[..., Awaitable[Response]]:
    async def view(**values: str) -> Response:
        visit = page_admission.admit(door_routes.asked(), parts, bounds)
        if isinstance(visit, WireReply):
            return door_routes.page(visit)
        reply = await make_page(visit, **values if with_values else {})
        # Where nobody logs in, a session of other times has no pages to lead to.
        return door_routes.page(await page_admission.recognised(reply, visit) if recognises else reply)

    return view
