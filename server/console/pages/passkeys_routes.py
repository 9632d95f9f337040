"""Passkeys: signing in with one, and those of an account. `/passkey/options` says what a browser is to ask its authenticator."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.pages import passkey_pages
from server.console.pages.door_routes import show

passkeys = Blueprint("passkeys", __name__)


@passkeys.post("/signin/passkey")
async def sign_in() -> Response:
    return await show(passkey_pages.sign_in)


@passkeys.post("/passkey/options")
async def tell_options() -> Response:
    return await show(passkey_pages.options)


@passkeys.get("/account/passkeys/new")
async def come_again() -> Response:
    return await show(passkey_pages.come_again)


@passkeys.post("/account/passkeys/new")
async def begin() -> Response:
    return await show(passkey_pages.begin)


@passkeys.post("/account/passkeys")
async def add() -> Response:
    return await show(passkey_pages.add)


@passkeys.post("/account/passkeys/remove")
async def remove() -> Response:
    return await show(passkey_pages.remove)
