"""The Overview, and the pages behind it. What they show is server/overview's; each visit is admitted by auth first, as at every page."""

from __future__ import annotations

from quart import Blueprint, Response

from server.http.pages.door import show
from server.overview.pages import CALLS, PATH, OverviewPages


def make_overview(pages: OverviewPages) -> Blueprint:
    overview = Blueprint("overview", __name__)

    @overview.get(PATH)
    async def show_overview() -> Response:
        return await show(pages.overview)

    @overview.get(CALLS)
    async def show_calls() -> Response:
        return await show(pages.calls)

    return overview
