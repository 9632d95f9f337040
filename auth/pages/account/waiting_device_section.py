"""Devices that wait to be let in, on the page Access: entering a code; and for the owner, who waits, and turning one away.

The code stands on the device alone, so whoever approves has to have seen it: it is typed here, and the confirm page comes next.
To turn somebody away nobody needs it. Nothing secret is shown: a stored request does not know its code.
"""

from __future__ import annotations

from typing import Final

import msgspec

from auth.authorization import device_authorization as device
from auth.authorization.device_authorization import DeviceDenied, DeviceRequest
from auth.pages import account_notices, navigation
from auth.pages.html_shell import ago, in_words
from auth.pages.page_visit import PageVisit, signed_in
from auth.people import browser_sessions
from auth.people.browser_sessions import BrowserSession
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.ip_networks import same_network
from auth.values.requester import clean

PURPOSE: Final = "account waiting"
CODES: Final = "device"  # what the token of the form for a code is for
SHOWN: Final = 20


class WaitingRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    computer: str
    software: str
    ip: str
    near: bool
    asked: str
    left: str  # how long it goes on waiting


class WaitingSection(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[WaitingRow, ...]
    more: int
    everybody: bool  # who waits is shown: to the owner alone
    form_token: str
    code_token: str


async def look(visit: PageVisit, session: BrowserSession) -> WaitingSection:
    everybody = session.user.role == "owner"
    found = await visit.read(device.pending, now=visit.now) if everybody else []
    return WaitingSection(
        rows=tuple(_row(visit, each) for each in found[:SHOWN]),
        more=max(0, len(found) - SHOWN),
        everybody=everybody,
        form_token=visit.token(PURPOSE),
        code_token=visit.token(CODES),
    )


def _row(visit: PageVisit, ask: DeviceRequest) -> WaitingRow:
    return WaitingRow(
        id=ask.id,
        name=_named(ask),
        computer=ask.hostname,
        software=ask.user_agent,
        ip=ask.ip,
        near=same_network(ask.ip, visit.request.ip),
        asked=ago(ask.created_at, visit.now),
        left=in_words(ask.expires_at - visit.now),
    )


def _named(ask: DeviceRequest) -> str:
    return ask.client_name or ask.registered_name or "a program without a name"


@signed_in(navigation.ACCESS, PURPOSE)
async def deny(visit: PageVisit, session: BrowserSession) -> WireReply:
    if session.user.role != "owner":
        return visit.stale_form()
    request_id = visit.form.get("request", "")
    outcome = await visit.write(deny_device, cookie=visit.cookie, request_id=request_id, now=visit.now)
    if outcome is None:
        return account_notices.back(visit, navigation.ACCESS, "gone")
    ask = outcome.request
    what = clean(_named(ask), 80) + (f" on {clean(ask.hostname, 80)}" if ask.hostname else "")
    return account_notices.back(visit, navigation.ACCESS, "login-denied", what)


def deny_device(db: Db, *, cookie: str, request_id: str, now: Millis) -> DeviceDenied | None:
    """Turn a request away for the owner, as a job, as `ostiary deny` does. That gives nothing, so it needs no proof."""
    session = browser_sessions.find(db, cookie, now)
    if session is None or session.user.role != "owner":
        return None
    outcome = device.deny(db, request_id, by=session.user.id, now=now)
    return outcome if isinstance(outcome, DeviceDenied) else None
