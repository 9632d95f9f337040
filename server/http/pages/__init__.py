"""The pages of people, as Quart blueprints: one for each noun, and `make_pages`, which puts them together.

A view names the function of auth that makes its page; methods and paths are its route's. What every page shares is in door.py.
Blueprints are filled while their modules are imported, and never after: Quart's way, and the one place where a module here keeps what
its decorators gathered.
"""

from __future__ import annotations

from typing import Any, Final

from quart import Blueprint, Response, g

from auth import entry
from auth.values.wire import WireReply
from auth.visit import Parts
from server.http.pages import door
from server.http.pages.account import account
from server.http.pages.authorize import authorize
from server.http.pages.connect import connect
from server.http.pages.device import device
from server.http.pages.links import links
from server.http.pages.overview import make_overview
from server.http.pages.passkeys import passkeys
from server.http.pages.sign_in import sign_in
from server.http.pages.upstream import upstream
from server.overview.pages import OverviewPages

NAME: Final = "pages"  # comes first in the name of every endpoint: "pages.device.show_code_entry"
BLUEPRINTS: Final = (sign_in, passkeys, upstream, links, account, connect, device, authorize)


def make_pages(parts: Parts, overview: OverviewPages) -> Blueprint:
    """All of them, each visit admitted by auth before its view runs."""
    pages = Blueprint(NAME, __name__)

    async def admit() -> Response | None:
        visit = entry.admit(door.asked(), parts)
        if isinstance(visit, WireReply):
            return door.page(visit)
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
