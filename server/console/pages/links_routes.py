"""One-time links: the owner's claim, an invitation, a new passphrase; and what follows the claim."""

from __future__ import annotations

from typing import Final

from quart import Blueprint, Response

from auth.pages import invitation_pages, server_claim_page
from auth.people import one_time_links as one_time
from server.console.pages.door_routes import show

links = Blueprint("links", __name__)
INVITATION: Final = invitation_pages.steps(one_time.INVITE)
RESET: Final = invitation_pages.steps(one_time.RESET)


@links.get("/claim/<token>")
async def show_claim() -> Response:
    return await show(server_claim_page.show)


@links.post("/claim/<token>")
async def claim() -> Response:
    return await show(server_claim_page.claim)


@links.get("/welcome")
async def welcome() -> Response:
    return await show(server_claim_page.welcome)


@links.get("/invite/<token>")
async def show_invitation() -> Response:
    return await show(INVITATION["GET"])


@links.post("/invite/<token>")
async def accept_invitation() -> Response:
    return await show(INVITATION["POST"])


@links.get("/reset/<token>")
async def show_reset() -> Response:
    return await show(RESET["GET"])


@links.post("/reset/<token>")
async def reset() -> Response:
    return await show(RESET["POST"])
