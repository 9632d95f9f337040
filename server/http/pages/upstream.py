"""Signing in with a provider that the settings name: away to it, and back."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.upstream import pages
from server.http.pages.door import show

upstream = Blueprint("upstream", __name__)


@upstream.post("/signin/with/<name>")
async def leave() -> Response:
    return await show(pages.leave)


@upstream.get("/signin/with/<name>/callback")
async def come_back() -> Response:
    return await show(pages.come_back)
