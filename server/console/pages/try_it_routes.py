"""Trying tools out. Where the settings say that nobody does, these routes are not there."""

from __future__ import annotations

from typing import Final, cast

from quart import Blueprint, Response, g

from auth.pages import page_admission
from auth.pages.page_visit import PageVisit
from auth.values.http_messages import WireReply
from server.console.pages import door_routes
from server.console.tryout.tryout_pages import BOUNDS, PATH, TryPages

NAME: Final = "try_it"


def make_try(pages: TryPages) -> Blueprint:
    """Each visit is admitted by auth first, as at every page; its forms may be larger."""
    try_it = Blueprint(NAME, __name__)

    async def admit() -> Response | None:
        visit = page_admission.admit(door_routes.asked(), pages.parts, BOUNDS)
        if isinstance(visit, WireReply):
            return door_routes.page(visit)
        g.visit = visit
        return None

    try_it.before_request(admit)

    @try_it.get(PATH)
    async def show_servers() -> Response:
        return door_routes.page(await pages.servers(_visit()))

    @try_it.get(f"/<server>{PATH}")
    async def show_tools(server: str) -> Response:
        return door_routes.page(await pages.tools(_visit(), server))

    @try_it.get(f"/<server>{PATH}/<tool>")
    async def show_tool(server: str, tool: str) -> Response:
        return door_routes.page(await pages.tool(_visit(), server, tool))

    @try_it.post(f"/<server>{PATH}/<tool>")
    async def call_tool(server: str, tool: str) -> Response:
        return door_routes.page(await pages.call(_visit(), server, tool))

    return try_it


def _visit() -> PageVisit:
    return cast("PageVisit", g.visit)
