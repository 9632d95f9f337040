"""What a program may do with its registration afterwards (RFC 7592), and what the operator may do with it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from auth.authorization import device_authorization as device
from auth.clients import client_registry as clients
from auth.identity import Identity
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.database import Db
from auth.values.http_messages import WireReply
from auth.values.identity_model import DEVICE_CODE, Principal
from tests.auth.identity_fakes import MINUTE, ORIGIN, START, Clock, get, header, open_identity, post, subkey
from tests.auth.registration_fakes import SEEN, ask, enrolled, sent

DEVICE = "a device without a browser"


def path_of(answer: dict[str, Any]) -> str:
    return answer["registration_client_uri"].removeprefix(ORIGIN)


async def managed(
    identity: Identity, answer: dict[str, Any], method: str, body: object = None, *, token: str | None = ""
) -> WireReply:
    shown = answer["registration_access_token"] if token == "" else token
    return await sent(identity, ask(path_of(answer), body, method=method, token=shown))


async def logged_in_by(identity: Identity, client_id: str) -> dict[str, Any]:
    asked = await sent(identity, post("/device_authorization", client_id=client_id))
    codes = json.loads(asked.body)
    code = device.normalise(codes["user_code"])
    assert code is not None
    mac, now = device.user_code_mac(subkey(device.MAC_PURPOSE), code), identity.parts.clock()

    def approve(db: Db) -> object:
        request, owner = device.find(db, mac, now), db.fetch_one("SELECT id FROM users")
        assert request is not None and owner is not None
        return device.approve(db, request.id, subject=owner["id"], by="local:0", scope=None, now=now)

    await identity.parts.store.write(approve)
    form = {"client_id": client_id, "grant_type": DEVICE_CODE, "device_code": codes["device_code"]}
    return json.loads((await sent(identity, post("/token", **form))).body)


async def test_a_program_reads_what_it_registered_and_never_its_secret() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, "Python SDK")
        reply = await managed(identity, answer, "GET")
        assert reply.status == 200
        assert header(reply, "cache-control") == "no-store"
        secret = {"client_secret", "client_secret_expires_at"}
        assert json.loads(reply.body) == {name: answer[name] for name in answer if name not in secret}


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_whoever_has_not_its_token_learns_nothing_not_even_that_it_exists(method: str) -> None:
    async with open_identity() as identity:
        answer, other = await enrolled(identity), await enrolled(identity, "Codex")
        body = {**SEEN["Claude Code"], "client_id": answer["client_id"]} if method == "PUT" else None
        right = answer["registration_access_token"]
        paths = ("cli_aaaaaaaaaaaaaaaaaaaa", "", "ostiary-cli", "x" * 4_000, "\x00", "\udc80", "%00")
        tokens = (None, "x", other["registration_access_token"], answer["client_id"], "ö")
        replies = [await managed(identity, answer, method, body, token=token) for token in tokens]
        replies += [
            await sent(identity, ask(f"/register/{path}", body, method=method, token=right)) for path in paths
        ]
        assert {(reply.status, reply.body) for reply in replies} == {(401, replies[0].body)}
        assert all((header(reply, "www-authenticate") or "").startswith("Bearer ") for reply in replies)
        assert (await managed(identity, answer, "GET")).status == 200


async def test_a_change_takes_the_place_of_all_that_was_said() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, "mcp-remote")
        body = {
            "client_id": answer["client_id"],
            "client_name": "Renamed",
            "redirect_uris": ["https://app.example/cb"],
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code"],
        }
        reply = await managed(identity, answer, "PUT", body)
        assert reply.status == 200
        changed = json.loads(reply.body)
        assert (changed["client_name"], changed["grant_types"]) == ("Renamed", ["authorization_code"])
        assert changed["redirect_uris"] == ["https://app.example/cb"]
        assert not {"software_id", "client_uri", "client_secret"} & set(changed)
        assert changed["client_id_issued_at"] == answer["client_id_issued_at"]
        assert json.loads((await managed(identity, answer, "GET")).body) == changed


async def test_a_secret_is_made_and_ended_by_the_method_and_otherwise_stays_as_it_was() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, "Python SDK")
        body = {**SEEN["Python SDK"], "client_id": answer["client_id"]}

        async def put(method: str, **more: str) -> dict[str, Any]:
            reply = await managed(
                identity, answer, "PUT", {**body, "token_endpoint_auth_method": method, **more}
            )
            assert reply.status == 200, reply.body
            return json.loads(reply.body)

        async def works(secret: str) -> bool:
            form = {"client_id": answer["client_id"], "client_secret": secret, "token": "x"}
            return (await sent(identity, post("/revoke", **form))).status == 200

        first = answer["client_secret"]
        assert "client_secret" not in await put("client_secret_post", client_secret=first)
        assert await works(first)
        assert "client_secret" not in await put("none")
        assert not await works(first)
        second = (await put("client_secret_basic"))["client_secret"]
        assert second != first
        assert await works(second)
        assert not await works(first)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"client_id": "ostiary-cli"}, "client_id"),
        ({"client_id": None}, "client_id"),
        ({"client_secret": "chosen by me"}, "client_secret"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "redirect_uris"),
        ({"grant_types": ["client_credentials"]}, "grant_types"),
        ({"client_name": ["x"]}, "client_name"),
    ],
)
async def test_a_change_is_judged_like_a_registration_and_a_bad_one_changes_nothing(
    changed: dict[str, Any], error: str
) -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, "Python SDK")
        before = await identity.parts.store.read(clients.listing)
        body = {**SEEN["Python SDK"], "client_id": answer["client_id"], **changed}
        reply = await managed(identity, answer, "PUT", body)
        assert reply.status == 400
        assert json.loads(reply.body)["error_description"].startswith(error)
        assert await identity.parts.store.read(clients.listing) == before


async def test_a_program_that_withdraws_takes_its_logins_with_it() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, DEVICE)
        tokens = await logged_in_by(identity, answer["client_id"])
        await sent(identity, post("/device_authorization", client_id=answer["client_id"]))  # one is pending
        bearer = f"Bearer {tokens['access_token']}"
        assert isinstance(await identity.check(present(bearer, server="agent", origin=ORIGIN)), Principal)
        reply = await managed(identity, answer, "DELETE")
        assert (reply.status, reply.body) == (204, b"")
        assert isinstance(await identity.check(present(bearer, server="agent", origin=ORIGIN)), BearerRefusal)
        assert (await managed(identity, answer, "GET")).status == 401
        asked = await sent(identity, post("/device_authorization", client_id=answer["client_id"]))
        # Programs register again when they are told this.
        assert (asked.status, json.loads(asked.body)["error"]) == (401, "invalid_client")
        for table in ("grants", "device_codes"):
            assert (
                await identity.parts.store.read(lambda db, t=table: db.fetch_all(f"SELECT id FROM {t}")) == []
            )


async def test_one_that_the_operator_disabled_is_out_of_its_owners_hands() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity)
        client_id = answer["client_id"]
        await identity.parts.store.write(lambda db: clients.disable(db, client_id, by="local:0", now=START))
        for method in ("GET", "PUT", "DELETE"):
            assert (await managed(identity, answer, method, {})).status == 401
        listed = {client.id: client.state for client in await identity.parts.store.read(clients.listing)}
        assert listed[client_id] == "disabled"


async def test_the_operator_removes_a_client_with_its_logins_but_not_the_one_built_in() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity, DEVICE)
        tokens = await logged_in_by(identity, answer["client_id"])

        def remove(client_id: str) -> Any:
            return identity.parts.store.write(
                lambda db: clients.remove(db, client_id, by="local:0", now=START)
            )

        assert [await remove(name) for name in (answer["client_id"], answer["client_id"], "ostiary-cli")] == [
            True,
            False,
            False,
        ]
        bearer = f"Bearer {tokens['access_token']}"
        assert isinstance(await identity.check(present(bearer, server="agent", origin=ORIGIN)), BearerRefusal)
        rows = await identity.parts.store.read(
            lambda db: db.fetch_all(
                "SELECT outcome, reason FROM audit WHERE event = 'client.removed' ORDER BY seq"
            )
        )
        assert [tuple(row.values()) for row in map(dict, rows)] == [
            ("ok", "1 logins went with it"),
            ("refused", "no such client to remove"),
            ("refused", "no such client to remove"),
        ]


async def test_a_new_secret_ends_the_old_one_and_no_login() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        answer = await enrolled(identity, "Python SDK")
        client_id = answer["client_id"]

        async def works(secret: str) -> bool:
            form = {"client_id": client_id, "client_secret": secret, "token": "x"}
            return (await sent(identity, post("/revoke", **form))).status == 200

        def rotate(name: str) -> Any:
            return identity.parts.store.write(
                lambda db: clients.rotate_secret(db, name, seed=b"z" * 32, by="local:0", now=clock.now)
            )

        assert await works(answer["client_secret"])
        fresh = await rotate(client_id)
        assert fresh is not None
        clock.now += MINUTE
        assert await works(fresh.reveal())
        assert not await works(answer["client_secret"])
        for name in ("ostiary-cli", "nobody"):
            assert await rotate(name) is None


async def test_methods_and_origins() -> None:
    async with open_identity() as identity:
        answer = await enrolled(identity)
        preflight = await sent(identity, get(path_of(answer), method="OPTIONS"))
        assert header(preflight, "access-control-allow-methods") == "GET, PUT, DELETE, OPTIONS"
        refused = await sent(identity, ask(path_of(answer), {}, method="POST"))
        assert refused.status == 405
