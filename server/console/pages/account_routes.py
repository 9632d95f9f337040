"""The pages of an account and the buttons of their sections; passkeys have a blueprint of their own."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.pages.account import (
    account_page,
    api_key_section,
    browser_section,
    connection_section,
    consent_section,
    login_section,
    money_section,
    passphrase_section,
    waiting_device_section,
)
from server.console.pages.door_routes import show

account = Blueprint("account", __name__)


@account.get("/account/access")
async def show_access() -> Response:
    return await show(account_page.show_access)


@account.get("/account/you")
async def show_you() -> Response:
    return await show(account_page.show_you)


@account.post("/account/logins/deny")
async def deny_device() -> Response:
    return await show(waiting_device_section.deny)


@account.post("/account/logins/end")
async def end_login() -> Response:
    return await show(login_section.end)


@account.post("/account/keys/end")
async def end_key() -> Response:
    return await show(api_key_section.end)


@account.post("/account/browsers/end")
async def end_browser() -> Response:
    return await show(browser_section.end)


@account.post("/account/connections/end")
async def end_connection() -> Response:
    return await show(connection_section.end)


@account.post("/account/consents/forget")
async def forget_consent() -> Response:
    return await show(consent_section.forget)


@account.post("/account/money/redeem")
async def redeem_voucher() -> Response:
    return await show(money_section.redeem)


@account.post("/account/money/cap")
async def set_cap() -> Response:
    return await show(money_section.cap)


@account.post("/account/money/uncap")
async def remove_cap() -> Response:
    return await show(money_section.uncap)


@account.get("/account/passphrase")
async def show_passphrase() -> Response:
    return await show(passphrase_section.show)


@account.post("/account/passphrase")
async def change_passphrase() -> Response:
    return await show(passphrase_section.change)
