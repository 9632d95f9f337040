"""Login by code (RFC 8628 §3.3): a person enters the code, looks, and decides."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.pages import device_decision, user_code_entry
from server.console.pages.door_routes import show

device = Blueprint("device", __name__)


@device.get("/device")
async def show_code_entry() -> Response:
    return await show(user_code_entry.show)


@device.post("/device")
async def enter_code() -> Response:
    return await show(user_code_entry.enter)


@device.post("/device/decide")
async def decide() -> Response:
    return await show(device_decision.decide)
