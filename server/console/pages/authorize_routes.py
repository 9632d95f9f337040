"""Login through a browser (RFC 6749 §4.1.1): a program sends a person here, who decides."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.pages import authorization_endpoint as authorize_page
from auth.pages import consent_page
from server.console.pages.door_routes import show

authorize = Blueprint("authorize", __name__)


@authorize.get("/authorize")
async def show_request() -> Response:
    return await show(authorize_page.show)


@authorize.post("/authorize/decide")
async def decide() -> Response:
    return await show(consent_page.decide)
