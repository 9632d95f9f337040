"""People and their logins in a `House`, made by the jobs that make them."""

from __future__ import annotations

from functools import partial
from typing import Any

from auth.administration import guest_accounts as people
from auth.administration.guest_accounts import GuestTerms, Invitation
from auth.clients.client_registry import ClientCredentials
from auth.grants.new_grants import GrantTerms as Agreed
from auth.grants.new_grants import begin
from auth.grants.request_parameters import TokenForm
from auth.grants.token_request import GrantRequest
from auth.keys.refresh_token_keys import RefreshRing
from auth.people import one_time_links
from auth.people.user_accounts import PER_ACCOUNT
from auth.values.identity_model import DEVICE_CODE, Client, PrincipalKind
from auth.values.requester import Requester
from tests.auth.browser_fakes import HOME, Browser, House

STRANGER = "192.0.2.66"

LOGIN_LASTS = 30 * 86_400_000


def invited(
    house: House, name: str = "bob", *, lifetime: int = one_time_links.INVITED_FOR, **terms: Any
) -> str:
    """The path of a fresh invitation."""
    token = one_time_links.token_from(house.entropy(one_time_links.TOKEN_BYTES))
    outcome = house.store.now(
        partial(
            people.invite,
            name=name,
            terms=GuestTerms(**terms),
            usual="mcp:tools",
            token=token,
            lifetime=lifetime,
            seed=house.entropy(32),
            by=house.owner_id,
            now=house.time,
        )
    )
    assert isinstance(outcome, Invitation), outcome
    return one_time_links.path_of(token, one_time_links.INVITE)


def reset_path(house: House, name: str = "alice") -> str:
    token = one_time_links.token_from(house.entropy(one_time_links.TOKEN_BYTES))
    outcome = house.store.now(partial(people.reset, name=name, token=token, by="local:0", now=house.time))
    assert isinstance(outcome, Invitation), outcome
    return one_time_links.path_of(token, outcome.kind)


def let_in(
    house: House,
    subject: str,
    *,
    client: Client | None = None,
    name: str = "Ostiary on rowan",
    hostname: str = "rowan.lan",
    scope: str = "mcp mcp:tools",
    ip: str = HOME,
    how: str = "device",
    kind: PrincipalKind = PrincipalKind.USER,
    redirect_host: str = "",
    server: str = "agent",
) -> str:
    """A login that lives; its id."""
    grant_id = f"grt_{house.drawn:04}{house.entropy(4).hex()}"
    exchange = GrantRequest(
        form=TokenForm(grant_type=DEVICE_CODE, credentials=ClientCredentials(client_id=None)),
        requester=Requester(origin=house.origin, ip=ip, network=ip, user_agent="test/1"),
        site=house.parts.site,
        policy=house.parts.policy,
        refresh_keys=RefreshRing(()),
        seed=bytes(32),
        now=house.time,
    )
    terms = Agreed(
        kind=kind,
        subject=subject,
        how=how,
        client_name=name,
        hostname=hostname,
        redirect_host=redirect_host,
        server=server,
        origin=house.origin,
        scope=scope,
        approved_by=subject,
        auth_time=house.time,
        ends_at=house.time + LOGIN_LASTS,
        refreshes=True,
    )
    house.store.now(
        partial(begin, client=client or house.builtin, exchange=exchange, grant_id=grant_id, terms=terms)
    )
    return grant_id


def revoked(house: House) -> set[str]:
    return {row["id"] for row in house.rows("grants") if row["revoked_at"] is not None}


async def guess_until_closed(house: House, name: str = "alice") -> None:
    """Let a stranger guess at a passphrase until nobody there may guess any more."""
    stranger = Browser(house, ip=STRANGER)
    for _ in range(PER_ACCOUNT.tries):
        house.time += max(PER_ACCOUNT.delays)
        assert (await stranger.sign_in(name, "not the passphrase")).status == 400
    assert (await stranger.sign_in(name, "not the passphrase")).status == 429


def household() -> House:
    """Make a house of alice's, which bob and carol may come into."""
    house = House().owned()
    house.add_user("usr_bob", "bob")
    house.add_user("usr_carol", "carol")
    return house
