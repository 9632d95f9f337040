"""Connecting: programs to this server, and an account that somebody has elsewhere (what it means, away, and back)."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.pages import connecting_accounts, front_page
from server.console.pages.door_routes import show

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
