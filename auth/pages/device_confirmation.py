"""The confirm page: everything an approver should see before saying yes (RFC 8628 §5.4).

The page is shown whenever a code is right, also for the complete link, and carries a token that its session only gets by having entered
the right code. Entering codes is in user_code_entry.py, the answer to this page in device_decision.py.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from auth.authorization import device_authorization as device
from auth.authorization.device_authorization import DeviceRequest
from auth.clients import client_registry as clients
from auth.pages import opened_servers, reauthentication_proof
from auth.pages.consent_decisions import offered
from auth.pages.html_shell import OPENS_AT_TOP, ago, clock, in_words
from auth.pages.page_visit import PageVisit
from auth.people.browser_sessions import BrowserSession
from auth.values import scopes
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import Millis
from auth.values.ip_networks import is_loopback, same_network
from auth.values.limits_and_lifetimes import SECOND

PROVEN_RECENTLY: Final[Millis] = 60 * SECOND  # how old a proof may be when the device is somewhere else


class WaitingDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A request under the code, and all that its approver is shown."""

    ask: DeviceRequest
    standing: Literal["verified", "registered", "unverified"]
    registered_at: Millis | None = None  # where the program registered itself


def waiting(db: Db, code_mac: str, now: Millis) -> WaitingDevice | None:
    ask = device.find(db, code_mac, now)
    client = None if ask is None else clients.lookup(db, ask.client_id)
    if ask is None or client is None:
        return None
    registered = "registered" if client.kind == "registered" else "unverified"
    return WaitingDevice(
        ask=ask,
        standing="verified" if ask.verified else registered,
        registered_at=client.created_at if client.kind == "dynamic" else None,
    )


def mac_of(visit: PageVisit, code: str) -> str:
    return device.user_code_mac(visit.parts.subkey(device.MAC_PURPOSE), code)


async def page(
    visit: PageVisit,
    session: BrowserSession,
    found: WaitingDevice,
    code: str,
    *,
    problem: str = "",
    ticked: tuple[str, ...] | None = None,
) -> WireReply:
    ask = found.ask
    names = offered(ask, session.user)
    spends = await spending(visit, session, ask.server, scopes.join(names))
    offers = opened_servers.scope_offers(visit, session.user, ask.server, names, ticked=ticked)
    asked = None
    if needs_proof(ask, session, visit.request.ip, visit.now):
        asked = await reauthentication_proof.offer(visit, session)
        visit = reauthentication_proof.scripted(visit, asked.passkey)
    return visit.page(
        "confirm.html",
        title="Let a device in?",
        headers=OPENS_AT_TOP,
        status=400 if problem else 200,
        form_token=visit.token(purpose(ask.id, code)),
        account=session.user.name,
        ask=ask,
        standing=found.standing,
        known_for="" if found.registered_at is None else ago(found.registered_at, visit.now),
        user_code=device.display(code),
        spelled=" ".join(code),
        near=same_network(ask.ip, visit.request.ip),
        here=is_loopback(ask.ip) and is_loopback(visit.request.ip),
        approver_ip=visit.request.ip,
        proof=asked,
        asked_ago=ago(ask.created_at, visit.now),
        asked_at=clock(ask.created_at),
        lasts=in_words(visit.parts.policy.tokens.device_login_ms),
        opened=opened_servers.server_of(visit, ask.server),
        offers=offers,
        reach=opened_servers.scope_reach(visit, session.user, ask.server, offers),
        spends=spends,
        problem=problem,
    )


async def spending(visit: PageVisit, session: BrowserSession, server: str, scope: str) -> str:
    """Say what whoever is let in with this could spend of this person's money; "" where nothing costs anything."""
    cashier = visit.parts.cashier
    if cashier is None:
        return ""
    return await visit.read(cashier.asks, person=session.user.id, server=server, scope=scope, now=visit.now)


def needs_proof(ask: DeviceRequest, session: BrowserSession, approver_ip: str, now: Millis) -> bool:
    """Return whether a proof is due: from another network a stolen or unattended browser must not be enough."""
    return not same_network(ask.ip, approver_ip) and now - session.auth_time > PROVEN_RECENTLY


def not_from_here(visit: PageVisit, ask: DeviceRequest) -> WireReply | None:
    """Return the page that says so, where the policy lets nobody approve this device from this browser. Denying is always possible."""
    match visit.parts.policy.device.approve_from:
        case "anywhere":
            return None
        case "same-network":
            if same_network(ask.ip, visit.request.ip):
                return None
            why = "This server lets a device in only from a browser on the same network, and this one is on another."
        case "terminal":
            why = "This server lets devices in at its own terminal only."
    return visit.error(
        403,
        "Not from here",
        f"{why} Nothing was approved.",
        "Run `ostiary approve CODE` on the machine that the server runs on.",
        back=("/device", "Back"),
    )


def purpose(request_id: str, code: str) -> str:
    return f"decide {request_id} {code}"
