"""The pages of people, as Quart blueprints: one for each noun, and `make_pages`, which puts them together.

A view names the function of auth that makes its page; methods and paths are its route's. What every page shares is in door_routes.py.
Blueprints are filled while their modules are imported, and never after: Quart's way, and the one place where a module here keeps what
its decorators gathered.
"""

from __future__ import annotations

from typing import Any, Final

from quart import Blueprint, Response, g

from auth.pages import page_admission
from auth.pages.page_visit import Parts
from auth.values.http_messages import WireReply
from server.console.overview.overview_pages import OverviewPages
from server.console.pages import door_routes
from server.console.pages.account_routes import account
from server.console.pages.front_routes import connect
from server.console.pages.links_routes import links
from server.console.pages.login_routes import authorize, device
from server.console.pages.owner_routes import make_overview
from server.console.pages.passkeys_routes import passkeys
from server.console.pages.sign_in_routes import sign_in, upstream

NAME: Final = "pages"  # comes first in the name of every endpoint: "pages.device.show_code_entry"
BLUEPRINTS: Final = (sign_in, passkeys, upstream, links, account, connect, device, authorize)


def make_pages(parts: Parts, overview: OverviewPages) -> Blueprint:
    """All of them, each visit admitted by auth before its view runs."""
    pages = Blueprint(NAME, __name__)

    async def admit() -> Response | None:
        visit = page_admission.admit(door_routes.asked(), parts)
        if isinstance(visit, WireReply):
            return door_routes.page(visit)
        g.visit = visit
        return None

    pages.url_value_preprocessor(_leave_to_auth)
    pages.before_request(admit)
    for blueprint in BLUEPRINTS:
        pages.register_blueprint(blueprint)
    pages.register_blueprint(make_overview(overview))
    return pages


def _leave_to_auth(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """A link's token and a provider's name are read by auth, of the path: no view has an argument for them."""
    del endpoint
    if values is not None:
        values.clear()
