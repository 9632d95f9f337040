"""Connecting: programs to this server, and an account that somebody has elsewhere (what it means, away, and back)."""

from __future__ import annotations

from quart import Blueprint, Response

from auth import connecting, front
from server.http.pages.door import show

connect = Blueprint("connect", __name__)


@connect.get("/connect")
async def show_ways() -> Response:
    return await show(front.connect)


@connect.get("/connect/<server>/<agent>")
async def show_connecting() -> Response:
    return await show(connecting.show)


@connect.post("/connect/<server>/<agent>")
async def leave() -> Response:
    return await show(connecting.leave)


@connect.get("/connect/<server>/<agent>/callback")
async def come_back() -> Response:
    return await show(connecting.come_back)
