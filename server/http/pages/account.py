"""The account page and the buttons of its sections; passkeys have a blueprint of their own."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.account import api_keys, browsers, connections, consents, logins, money, passphrase, people
from auth.account import page as overview
from server.http.pages.door import show

account = Blueprint("account", __name__)
# Where no overview is made, as with the pages of auth alone.
account_alone = Blueprint("account_alone", __name__)


@account_alone.get("/account")
async def show_account() -> Response:
    return await show(overview.show)


@account.post("/account/logins/end")
async def end_login() -> Response:
    return await show(logins.end)


@account.post("/account/keys/revoke")
async def revoke_key() -> Response:
    return await show(api_keys.revoke)


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


@account.post("/account/people")
async def switch_person() -> Response:
    return await show(people.switch)


@account.get("/account/passphrase")
async def show_passphrase() -> Response:
    return await show(passphrase.show)


@account.post("/account/passphrase")
async def change_passphrase() -> Response:
    return await show(passphrase.change)
