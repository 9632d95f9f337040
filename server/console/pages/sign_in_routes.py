"""Signing in: with name and passphrase, or with a provider that the settings name (away to it, and back); and signing out."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.pages import provider_sign_in_pages, sign_in_page
from server.console.pages.door_routes import show

sign_in = Blueprint("sign_in", __name__)
upstream = Blueprint("upstream", __name__)


@sign_in.get("/signin")
async def show_sign_in() -> Response:
    return await show(sign_in_page.show)


@sign_in.post("/signin")
async def enter() -> Response:
    return await show(sign_in_page.sign_in)


@sign_in.post("/signout")
async def sign_out() -> Response:
    return await show(sign_in_page.sign_out)


@upstream.post("/signin/with/<name>")
async def leave() -> Response:
    return await show(provider_sign_in_pages.leave)


@upstream.get("/signin/with/<name>/callback")
async def come_back() -> Response:
    return await show(provider_sign_in_pages.come_back)
