"""Logins of programs, of which a person decides: by code (RFC 8628 §3.3; enter it, look, decide), and through a browser, to which the program
sends the person (RFC 6749 §4.1.1).
"""

from __future__ import annotations

from quart import Blueprint, Response

from auth.pages import authorization_endpoint as authorize_page
from auth.pages import consent_page, device_decision, user_code_entry
from server.console.pages.door_routes import show

device = Blueprint("device", __name__)
authorize = Blueprint("authorize", __name__)


@device.get("/device")
async def show_code_entry() -> Response:
    return await show(user_code_entry.show)


@device.post("/device")
async def enter_code() -> Response:
    return await show(user_code_entry.enter)


@device.post("/device/decide")
async def decide_device() -> Response:
    return await show(device_decision.decide)


@authorize.get("/authorize")
async def show_request() -> Response:
    return await show(authorize_page.show)


@authorize.post("/authorize/decide")
async def decide_request() -> Response:
    return await show(consent_page.decide)
