"""What a token is worth, told to those who may ask (RFC 7662), and that nobody learns why it is worth nothing."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from msgspec.structs import replace

from auth.clients import client_registry as clients
from auth.clients.client_registry import CLI_CLIENT_ID, ClientRegistration
from auth.grants import login_records as grants
from auth.identity import Identity
from auth.values.identity_model import CLIENT_CREDENTIALS, REFRESH_TOKEN
from tests.auth.assertion_fakes import machine
from tests.auth.identity_fakes import (
    DAY,
    MINUTE,
    ORIGIN,
    SITE,
    START,
    Clock,
    get,
    header,
    logged_in,
    open_identity,
    post,
)
from tests.auth.registration_fakes import enrolled, sent
from tests.sealing import by_hand

NOTHING = {"active": False}


async def asker(identity: Identity, **fields: Any) -> dict[str, str]:
    values: dict[str, Any] = {
        "name": "Gateway",
        "auth_method": "client_secret_basic",
        "grant_types": (),
        "introspects": True,
    }
    registration = ClientRegistration(**{**values, **fields})
    assert registration.check(identity.parts.site.scopes) == []
    made = await identity.parts.store.write(
        lambda db: clients.add(db, registration, seed=identity.parts.entropy(32), by="local:0", now=START)
    )
    assert made is not None
    assert made.secret is not None
    return {"client_id": made.client.id, "client_secret": made.secret.reveal()}


async def worth(identity: Identity, shown: dict[str, str], token: str, **more: str) -> dict[str, Any]:
    reply = await sent(identity, post("/introspect", **shown, token=token, **more))
    assert reply.status == 200, reply.body
    assert header(reply, "cache-control") == "no-store"
    return json.loads(reply.body)


async def owner(identity: Identity) -> str:
    row = await identity.parts.store.read(lambda db: db.fetch_one("SELECT id FROM users"))
    assert row is not None
    return row["id"]


async def test_a_good_access_token_is_told_with_all_that_a_resource_server_needs() -> None:
    async with open_identity() as identity:
        shown, tokens = await asker(identity), await logged_in(identity)
        assert await worth(identity, shown, tokens["access_token"]) == {
            "active": True,
            "token_type": "Bearer",
            "token_use": "access_token",
            "scope": tokens["scope"],
            "client_id": CLI_CLIENT_ID,
            "sub": await owner(identity),
            "aud": SITE.audience("agent"),
            "iss": ORIGIN,
            "exp": START // 1_000 + 3_600,
            "iat": START // 1_000,
        }


async def test_a_good_refresh_token_is_told_for_us_alone() -> None:
    async with open_identity() as identity:
        shown, tokens = await asker(identity), await logged_in(identity)
        found = await worth(identity, shown, tokens["refresh_token"], token_type_hint="access_token")
        assert found == {
            "active": True,
            "token_use": "refresh_token",
            "scope": tokens["scope"],
            "client_id": CLI_CLIENT_ID,
            "sub": await owner(identity),
            "aud": ORIGIN,
            "iss": ORIGIN,
            "exp": (START + 30 * DAY) // 1_000,
            "iat": START // 1_000,
        }


@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
@pytest.mark.parametrize("event", ["revoked", "user", "client", "expired", "epoch", "removed"])
async def test_whatever_ends_a_login_ends_what_its_tokens_are_worth(kind: str, event: str) -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        shown, tokens = await asker(identity), await logged_in(identity)
        assert (await worth(identity, shown, tokens[kind]))["active"] is True

        def end(db: Any) -> None:
            match event:
                case "revoked":
                    (login,) = grants.sessions(db, START)
                    grants.revoke(db, login.grant.id, reason="by hand", by="local:0", now=START)
                case "user":
                    by_hand("UPDATE users SET state = 'disabled'")(db)
                case "client":
                    clients.disable(db, CLI_CLIENT_ID, by="local:0", now=START)
                case "epoch":
                    db.execute("UPDATE meta SET value = 'another' WHERE key = 'refresh_epoch'")
                case "removed":
                    clients.delete(db, CLI_CLIENT_ID)
                case _:
                    clock.now += 3_600_000 if kind == "access_token" else 30 * DAY

        await identity.parts.store.write(end)
        assert await worth(identity, shown, tokens[kind]) == NOTHING


async def test_a_refresh_token_that_was_used_is_worth_what_it_would_bring() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        shown, tokens = await asker(identity), await logged_in(identity)
        form = {"client_id": CLI_CLIENT_ID, "grant_type": REFRESH_TOKEN}
        await sent(identity, post("/token", **form, refresh_token=tokens["refresh_token"]))
        assert (await worth(identity, shown, tokens["refresh_token"]))[
            "active"
        ] is True  # /token would replay
        clock.now += 2 * MINUTE
        assert await worth(identity, shown, tokens["refresh_token"]) == NOTHING
        # Asking is no use: the login lives on.
        assert (await worth(identity, shown, tokens["access_token"]))["active"] is True


@pytest.mark.parametrize(
    "token", ["x", "x.y.z", "rt1.grt_aaaaaaaaaaaaaaaaaaaa.1." + "A" * 43, "osk_" + "x" * 40]
)
async def test_what_we_never_wrote_is_worth_nothing(token: str) -> None:
    async with open_identity() as identity:
        assert await worth(identity, await asker(identity), token) == NOTHING


async def test_a_token_of_another_server_of_ours_and_one_whose_server_is_gone() -> None:
    async with open_identity() as identity:
        shown = await asker(identity)
        tokens = await logged_in(identity, resource=ORIGIN + "/other/mcp")
        assert (await worth(identity, shown, tokens["access_token"]))["aud"] == SITE.audience("other")
        gone = dataclasses.replace(
            identity, parts=replace(identity.parts, site=replace(SITE, servers={"agent": "/mcp"}))
        )
        for kind in ("access_token", "refresh_token"):
            assert await worth(gone, shown, tokens[kind]) == NOTHING


async def test_a_machines_token_is_told_as_a_machines() -> None:
    async with open_identity() as identity:
        job = await asker(identity, grant_types=(CLIENT_CREDENTIALS,), introspects=False)
        reply = await sent(identity, post("/token", **job, grant_type=CLIENT_CREDENTIALS))
        found = await worth(identity, await asker(identity), json.loads(reply.body)["access_token"])
        assert (found["active"], found["sub"]) == (True, f"client:{job['client_id']}")


async def test_a_lowered_ceiling_shows_in_the_scope() -> None:
    async with open_identity() as identity:
        shown, tokens = await asker(identity), await logged_in(identity)
        await identity.parts.store.write(by_hand("UPDATE users SET scope = 'mcp:resources'"))
        assert (await worth(identity, shown, tokens["access_token"]))["scope"] == "mcp:resources"
        await identity.parts.store.write(by_hand("UPDATE users SET scope = 'financial'"))
        assert await worth(identity, shown, tokens["access_token"]) == NOTHING


async def test_only_clients_that_may_ask_are_answered_and_refusals_are_written_down() -> None:
    async with open_identity() as identity:
        tokens = await logged_in(identity)
        dynamic = await enrolled(identity, "Python SDK")
        plain = await asker(identity, introspects=False, grant_types=(CLIENT_CREDENTIALS,))
        shown = await asker(identity)
        for form, error in (
            ({"client_id": CLI_CLIENT_ID}, "unauthorized_client"),
            ({name: dynamic[name] for name in ("client_id", "client_secret")}, "unauthorized_client"),
            (plain, "unauthorized_client"),
            ({**shown, "client_secret": "wrong"}, "invalid_client"),
            ({"client_id": shown["client_id"]}, "invalid_client"),
            ({}, "invalid_client"),
        ):
            reply = await sent(identity, post("/introspect", **form, token=tokens["access_token"]))
            assert json.loads(reply.body)["error"] == error
        # Even a public client whose row says that it may.
        await identity.parts.store.write(by_hand("UPDATE clients SET introspects = 1"))
        reply = await sent(identity, post("/introspect", client_id=CLI_CLIENT_ID, token="x"))
        assert json.loads(reply.body)["error"] == "unauthorized_client"
        rows = await identity.parts.store.read(
            lambda db: db.fetch_all("SELECT outcome FROM audit WHERE event = 'token.introspected'")
        )
        assert [row["outcome"] for row in rows] == ["refused"] * 4


async def test_one_that_signs_may_ask_too() -> None:
    async with open_identity() as identity:
        signer, tokens = await machine(identity, introspects=True), await logged_in(identity)
        reply = await sent(identity, signer.request("/introspect", token=tokens["access_token"]))
        assert json.loads(reply.body)["active"] is True


async def test_asking_leaves_no_rows() -> None:
    async with open_identity() as identity:
        shown, tokens = await asker(identity), await logged_in(identity)

        async def count() -> int:
            row = await identity.parts.store.read(lambda db: db.fetch_one("SELECT COUNT(*) AS n FROM audit"))
            assert row is not None
            return row["n"]

        before = await count()
        await worth(identity, shown, tokens["access_token"])
        await worth(identity, shown, "x")
        assert await count() == before


async def test_it_takes_a_posted_form_and_says_so() -> None:
    async with open_identity() as identity:
        shown = await asker(identity)
        assert (await sent(identity, get("/introspect"))).status == 405
        reply = await sent(identity, post("/introspect", **shown))
        assert json.loads(reply.body) == {"error": "invalid_request", "error_description": "token is missing"}
        document = json.loads((await sent(identity, get("/.well-known/oauth-authorization-server"))).body)
        assert document["introspection_endpoint"] == ORIGIN + "/introspect"
        assert "none" not in document["introspection_endpoint_auth_methods_supported"]
