"""The front page, and connecting: programs to this server, and an account that somebody has elsewhere (what it means, away, and back).

The views of `make_front` are there also where nobody logs in.
"""

from __future__ import annotations

from quart import Blueprint, Response

from auth.context.identity_parts import Parts
from auth.pages import connecting_accounts, front_page
from server.console.pages import door_routes
from server.console.pages.door_routes import show

PATH = front_page.PATH

connect = Blueprint("connect", __name__)


@connect.get("/connect")
async def show_ways() -> Response:
    return await show(front_page.connect)


@connect.get("/connect/<server>/<agent>")
async def show_connecting() -> Response:
    return await show(connecting_accounts.show)


@connect.post("/connect/<server>/<agent>")
async def leave() -> Response:
    return await show(connecting_accounts.leave)


@connect.get("/connect/<server>/<agent>/callback")
async def come_back() -> Response:
    return await show(connecting_accounts.come_back)


def make_front(parts: Parts, *, needs_login: bool) -> Blueprint:
    front = Blueprint("front", __name__)

    @front.get(PATH)
    async def show_front() -> Response:
        return door_routes.page(await front_page.show(door_routes.asked(), parts, needs_login=needs_login))

    if not needs_login:  # else it is a page like any other

        @front.get(front_page.CONNECT)
        async def show_connect() -> Response:
            return door_routes.page(front_page.for_anybody(door_routes.asked(), parts))

    return front
