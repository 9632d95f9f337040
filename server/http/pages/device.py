"""Login by code (RFC 8628 §3.3): a person enters the code, looks, and decides."""

from __future__ import annotations

from quart import Blueprint, Response

from auth.device import code_entry, decision
from server.http.pages.door import show

device = Blueprint("device", __name__)


@device.get("/device")
async def show_code_entry() -> Response:
    return await show(code_entry.show)


@device.post("/device")
async def enter_code() -> Response:
    return await show(code_entry.enter)


@device.post("/device/decide")
async def decide() -> Response:
    return await show(decision.decide)
