"""The Overview, and the pages behind it. What they show is server/console/overview's; each visit is admitted by auth first, as at every page."""

from __future__ import annotations

from quart import Blueprint, Response

from server.console.overview.overview_pages import CALLS, PATH, OverviewPages
from server.console.pages.door_routes import show


def make_overview(pages: OverviewPages) -> Blueprint:
    overview = Blueprint("overview", __name__)

    @overview.get(PATH)
    async def show_overview() -> Response:
        return await show(pages.overview)

    @overview.get(CALLS)
    async def show_calls() -> Response:
        return await show(pages.calls)

    return overview
