"""The front page, which is there also where nobody logs in."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.context.identity_parts import Parts
from auth.pages import front_page
from server.console.pages import door_routes

PATH = front_page.PATH


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
