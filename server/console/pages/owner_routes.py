"""The Overview and the pages behind it, and those of whoever owns the server: people, keys, the audit trail, upstreams."""

from __future__ import annotations

from typing import Final, cast

from quart import Blueprint, Response, g

from auth.pages import page_admission
from auth.pages.page_visit import PageVisit
from auth.values.http_messages import WireReply
from server.console.overview.overview_pages import CALLS, PATH, OverviewPages
from server.console.owner.owner_pages import OwnerPages
from server.console.pages import door_routes
from server.console.pages.door_routes import show

NAME: Final = "owner"


def make_owner(pages: OwnerPages) -> Blueprint:
    """Each visit is admitted by auth first, as at every page."""
    owner = Blueprint(NAME, __name__, url_prefix="/account")

    async def admit() -> Response | None:
        visit = page_admission.admit(door_routes.asked(), pages.parts)
        if isinstance(visit, WireReply):
            return door_routes.page(visit)
        g.visit = visit
        return None

    owner.before_request(admit)
    people, person = pages.people, pages.person

    @owner.get("/people")
    async def show_people() -> Response:
        return door_routes.page(await people.show(_visit()))

    @owner.get("/people/new")
    async def begin_invitation() -> Response:
        return door_routes.page(await people.begin(_visit()))

    @owner.post("/people/new")
    async def invite() -> Response:
        return door_routes.page(await people.invite(_visit()))

    @owner.get("/people/<user_id>")
    async def show_person(user_id: str) -> Response:
        return door_routes.page(await person.show(_visit(), user_id))

    @owner.post("/people/<user_id>")
    async def change_person(user_id: str) -> Response:
        return door_routes.page(await person.change(_visit(), user_id))

    @owner.post("/people/<user_id>/<act>")
    async def act_on_person(user_id: str, act: str) -> Response:
        return door_routes.page(await person.act(_visit(), user_id, act))

    @owner.get("/keys/new")
    async def begin_key() -> Response:
        return door_routes.page(await pages.keys.begin(_visit()))

    @owner.post("/keys/new")
    async def make_key() -> Response:
        return door_routes.page(await pages.keys.make(_visit()))

    @owner.get("/audit")
    async def show_audit() -> Response:
        return door_routes.page(await pages.trail.show(_visit()))

    @owner.post("/audit/verify")
    async def verify_audit() -> Response:
        return door_routes.page(await pages.trail.verify(_visit()))

    @owner.get("/upstreams")
    async def show_upstreams() -> Response:
        return door_routes.page(await pages.upstreams.show(_visit()))

    @owner.get("/upstreams/look")
    async def look_at_upstream() -> Response:
        return door_routes.page(await pages.upstreams.look(_visit()))

    @owner.post("/upstreams/accept")
    async def accept_upstream() -> Response:
        return door_routes.page(await pages.upstreams.accept(_visit()))

    return owner


def _visit() -> PageVisit:
    return cast("PageVisit", g.visit)


def make_overview(pages: OverviewPages) -> Blueprint:
    overview = Blueprint("overview", __name__)

    @overview.get(PATH)
    async def show_overview() -> Response:
        return await show(pages.overview)

    @overview.get(CALLS)
    async def show_calls() -> Response:
        return await show(pages.calls)

    return overview
