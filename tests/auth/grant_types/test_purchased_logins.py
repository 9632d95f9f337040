"""Logins that were bought: what they may, how they end, and that no person is needed behind them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from auth.grant_types.purchased_logins import CLIENT_ID, NotForSale, issue_tokens
from auth.grants import login_records as grants
from auth.identity import Identity
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.identity_model import Principal, PrincipalKind
from auth.values.requester import Requester
from tests.auth.identity_fakes import DAY, ORIGIN, START, Clock, open_identity, post
from tests.auth.registration_fakes import sent
from tests.sealing import by_hand

PAYER = "payer:eip155:84532:0x52908400098527886e0f7030069857d2e4169ee7"
WHO = Requester(origin=ORIGIN, ip="127.0.0.1", network="127.0.0.1", user_agent="test")


async def bought(identity: Identity, payment_id: str = "pay_1", server: str = "agent") -> dict[str, Any]:
    return await issue_tokens(
        identity.parts, payer=PAYER, server=server, payment_id=payment_id, requester=WHO
    )


async def checked(identity: Identity, answer: dict[str, Any]) -> Principal | BearerRefusal:
    return await identity.check(present(f"Bearer {answer['access_token']}", server="agent", origin=ORIGIN))


async def refreshed(identity: Identity, answer: dict[str, Any], **more: str) -> tuple[int, dict[str, Any]]:
    form = {"grant_type": "refresh_token", "refresh_token": answer["refresh_token"], "client_id": CLIENT_ID}
    reply = await sent(identity, post("/token", **form, **more))
    return reply.status, json.loads(reply.body)


async def test_whoever_paid_is_known_by_their_address_and_has_no_scopes() -> None:
    async with open_identity() as identity:
        answer = await bought(identity)
        assert answer["scope"] == "" and answer["token_type"] == "Bearer"
        assert answer["client_id"] == CLIENT_ID and answer["token_endpoint"] == f"{ORIGIN}/token"
        who = await checked(identity, answer)
        assert isinstance(who, Principal)
        assert who.kind is PrincipalKind.PAYER and who.subject == PAYER
        assert who.scopes == frozenset() and who.reach == frozenset() and who.identified
        assert who.key("10.0.0.1") == "x402:" + PAYER.removeprefix("payer:")
        assert await identity.credentials.still(who) == who


async def test_its_token_is_refreshed_without_a_person_and_never_grows() -> None:
    async with open_identity() as identity:
        status, answer = await refreshed(identity, await bought(identity))
        assert status == 200 and answer["scope"] == ""
        assert isinstance(await checked(identity, answer), Principal)
        status, told = await refreshed(identity, answer, scope="mcp:tools")
        assert (status, told["error"]) == (400, "invalid_scope")


async def test_another_program_cannot_refresh_it() -> None:
    async with open_identity() as identity:
        answer = await bought(identity)
        form = {"grant_type": "refresh_token", "refresh_token": answer["refresh_token"]}
        reply = await sent(identity, post("/token", **form, client_id="ostiary-cli"))
        assert (reply.status, json.loads(reply.body)["error"]) == (400, "invalid_grant")


async def test_the_same_payment_brings_new_tokens_and_ends_the_first_ones() -> None:
    async with open_identity() as identity:
        first = await bought(identity)
        other = await bought(identity, "pay_2")
        again = await bought(identity)
        assert isinstance(await checked(identity, first), BearerRefusal)
        assert (await refreshed(identity, first))[0] == 400
        assert isinstance(await checked(identity, other), Principal)
        assert isinstance(await checked(identity, again), Principal)


async def test_it_ends_with_its_time_with_its_row_and_with_the_client_of_all() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        for end in ("revoked", "over", "disabled"):
            answer = await bought(identity, f"pay_{end}")
            assert isinstance(await checked(identity, answer), Principal)
            store = identity.parts.store
            if end == "revoked":
                (row,) = await store.read(
                    lambda db: db.fetch_all("SELECT id FROM grants WHERE revoked_at IS NULL")
                )
                assert await store.write(
                    lambda db, row=row: grants.revoke(db, row["id"], reason="test", by="local:0", now=START)
                )
            elif end == "over":
                clock.now += 31 * DAY
            else:

                def disable(db: Any) -> None:
                    by_hand("UPDATE clients SET state = 'disabled' WHERE id = ?", CLIENT_ID)(db)
                    db.changed("client", CLIENT_ID)

                await store.write(disable)
            assert isinstance(await checked(identity, answer), BearerRefusal), end
            assert (await refreshed(identity, answer))[0] in (400, 401), end
        with pytest.raises(NotForSale):
            await bought(identity, "pay_late")


async def test_it_is_for_one_server() -> None:
    async with open_identity() as identity:
        answer = await bought(identity)
        shown = present(f"Bearer {answer['access_token']}", server="other", origin=ORIGIN)
        assert isinstance(await identity.check(shown), BearerRefusal)
        assert isinstance(await identity.check(replace(shown, server="agent")), Principal)
