"""The front page, which is there also where nobody logs in."""

from __future__ import annotations

from quart import Blueprint, Response

from auth import front as front_page
from auth.parts import Parts
from server.http.pages import door

PATH = front_page.PATH


def make_front(parts: Parts, *, needs_login: bool) -> Blueprint:
    front = Blueprint("front", __name__)

    @front.get(PATH)
    async def show_front() -> Response:
        return door.page(await front_page.show(door.asked(), parts, needs_login=needs_login))

    if not needs_login:  # else it is a page like any other

        @front.get(front_page.CONNECT)
        async def show_connect() -> Response:
            return door.page(front_page.for_anybody(door.asked(), parts))

    return front
