"""The front page, which there is also where nobody logs in."""

from __future__ import annotations

from collections.abc import Callable

from quart import Blueprint, Response

from server.http import landing
from server.http.pages import door
from server.settings.resolve import Resolved

PATH = "/"


def make_front(resolved: Resolved, entropy: Callable[[int], bytes]) -> Blueprint:
    front = Blueprint("front", __name__)

    @front.get(PATH)
    async def show_front() -> Response:
        return door.respond(landing.front_page(door.asked(), resolved, entropy=entropy))

    return front
