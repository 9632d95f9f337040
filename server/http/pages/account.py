"""The pages of an account and the buttons of their sections; passkeys have a blueprint of their own."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.account import (
    api_keys,
    browsers,
    connections,
    consents,
    logins,
    money,
    page,
    passphrase,
    waiting,
)
from server.http.pages.door import show

account = Blueprint("account", __name__)


@account.get("/account/access")
async def show_access() -> Response:
    return await show(page.show_access)


@account.get("/account/you")
async def show_you() -> Response:
    return await show(page.show_you)


@account.post("/account/logins/deny")
async def deny_device() -> Response:
    return await show(waiting.deny)


@account.post("/account/logins/end")
async def end_login() -> Response:
    return await show(logins.end)


@account.post("/account/keys/end")
async def end_key() -> Response:
    return await show(api_keys.end)


@account.post("/account/browsers/end")
async def end_browser() -> Response:
    return await show(browsers.end)


@account.post("/account/connections/end")
async def end_connection() -> Response:
    return await show(connections.end)


@account.post("/account/consents/forget")
async def forget_consent() -> Response:
    return await show(consents.forget)


@account.post("/account/money/redeem")
async def redeem_voucher() -> Response:
    return await show(money.redeem)


@account.post("/account/money/cap")
async def set_cap() -> Response:
    return await show(money.cap)


@account.post("/account/money/uncap")
async def remove_cap() -> Response:
    return await show(money.uncap)


@account.get("/account/passphrase")
async def show_passphrase() -> Response:
    return await show(passphrase.show)


@account.post("/account/passphrase")
async def change_passphrase() -> Response:
    return await show(passphrase.change)
