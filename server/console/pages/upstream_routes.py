"""Signing in with a provider that the settings name: away to it, and back."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.pages import provider_sign_in_pages
from server.console.pages.door_routes import show

upstream = Blueprint("upstream", __name__)


@upstream.post("/signin/with/<name>")
async def leave() -> Response:
    return await show(provider_sign_in_pages.leave)


@upstream.get("/signin/with/<name>/callback")
async def come_back() -> Response:
    return await show(provider_sign_in_pages.come_back)
