"""The OAuth endpoints as clients use them: manners, statuses and headers."""

from __future__ import annotations

import base64
import json
import sqlite3
from typing import Any

import pytest

from auth.authorization import device_authorization as device
from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientCredentials, ClientRegistration, NewClient
from auth.grants.request_parameters import CheckedForm, TokenForm
from auth.identity import Identity
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.entropy import Entropy
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import DEVICE_CODE, REFRESH_TOKEN, Principal
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import FormLimits, Policy
from server.lib.secret import Secret
from server.store.inline_store import InlineStore
from tests.auth.identity_fakes import (
    MINUTE,
    ORIGIN,
    POLICY,
    SECOND,
    SITE,
    Clock,
    get,
    header,
    logged_in,
    open_identity,
    post,
    subkey,
)
from tests.sealing import by_hand

CLI = "ostiary-cli"


def basic(name: str, secret: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()}


async def send(identity: Identity, request: WireRequest, **headers: str) -> WireReply:
    sent = WireRequest(
        method=request.method,
        path=request.path,
        query=request.query,
        form=request.form,
        headers={**request.headers, **headers},
        origin=request.origin,
        ip=request.ip,
    )
    reply = await identity.handle(sent)
    assert reply is not None
    return reply


def body(reply: WireReply) -> dict[str, Any]:
    assert header(reply, "content-type") == "application/json"
    assert header(reply, "cache-control") == "no-store"
    assert header(reply, "access-control-allow-origin") == "*"
    return json.loads(reply.body)


async def registered(identity: Identity, **fields: Any) -> NewClient:
    stated: dict[str, Any] = {"name": "Tool", **fields}
    registration = ClientRegistration(**stated)
    added = await identity.parts.store.write(
        lambda db: clients.add(db, registration, seed=b"r" * 32, by="local:0", now=identity.parts.clock())
    )
    assert added is not None
    return added


async def test_a_device_login_from_asking_to_refreshing() -> None:
    async with open_identity() as identity:
        asked = body(await send(identity, post("/device_authorization", client_id=CLI, scope="")))
        assert set(asked) == {
            "device_code",
            "user_code",
            "verification_uri",
            "verification_uri_complete",
            "expires_in",
            "interval",
        }
        assert asked["verification_uri"] == ORIGIN + "/device"
        assert asked["verification_uri_complete"] == f"{ORIGIN}/device?user_code={asked['user_code']}"
        assert (asked["expires_in"], asked["interval"]) == (600, 2)
        poll = post("/token", client_id=CLI, grant_type=DEVICE_CODE, device_code=asked["device_code"])
        waiting = await send(identity, poll)
        assert (waiting.status, body(waiting)["error"]) == (400, "authorization_pending")

        code = device.normalise(asked["user_code"])
        assert code is not None
        mac = device.user_code_mac(subkey(device.MAC_PURPOSE), code)

        def approve(db: Any) -> object:
            request, owner = (
                device.find(db, mac, identity.parts.clock()),
                db.fetch_one("SELECT id FROM users"),
            )
            assert request is not None
            return device.approve(
                db, request.id, subject=owner["id"], by=owner["id"], scope=None, now=identity.parts.clock()
            )

        await identity.parts.store.write(approve)
        tokens = body(await send(identity, poll))
        assert set(tokens) == {"access_token", "token_type", "expires_in", "scope", "refresh_token"}
        assert (tokens["token_type"], tokens["expires_in"]) == ("Bearer", 3_600)
        assert tokens["scope"] == "mcp mcp:tools mcp:resources"

        fresh = body(
            await send(
                identity,
                post(
                    "/token", client_id=CLI, grant_type=REFRESH_TOKEN, refresh_token=tokens["refresh_token"]
                ),
            )
        )
        assert fresh["refresh_token"] != tokens["refresh_token"]
        assert fresh["access_token"] != tokens["access_token"]
        for token in (tokens["access_token"], fresh["access_token"]):
            who = await identity.check(present(f"Bearer {token}", server="agent", origin=ORIGIN))
            assert isinstance(who, Principal)


async def test_on_loopback_the_page_has_the_typed_name_and_elsewhere_the_configured_one() -> None:
    async with open_identity() as identity:
        there = post("/device_authorization", client_id=CLI, origin="http://localhost:9000")
        assert body(await send(identity, there))["verification_uri"] == "http://localhost:9000/device"
    public = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})
    async with open_identity(site=public) as identity:
        there = post("/device_authorization", client_id=CLI, origin="https://10.0.0.1")
        assert body(await send(identity, there))["verification_uri"] == "https://agent.example/device"


@pytest.mark.parametrize("path", ["/token", "/revoke", "/device_authorization"])
async def test_these_endpoints_take_posts_and_answer_preflights(path: str) -> None:
    async with open_identity() as identity:
        refused = await send(identity, get(path))
        assert (refused.status, header(refused, "allow")) == (405, "POST, OPTIONS")
        assert body(refused)["error"] == "invalid_request"
        preflight = await send(identity, get(path, method="OPTIONS"))
        assert preflight.status == 204
        assert header(preflight, "access-control-allow-methods") == "POST, OPTIONS"
        assert header(preflight, "access-control-allow-origin") == "*"


@pytest.mark.parametrize("path", ["/token", "/revoke", "/device_authorization"])
async def test_an_unknown_client_is_401_and_basic_is_named_only_to_who_used_it(path: str) -> None:
    async with open_identity() as identity:
        form = {"grant_type": DEVICE_CODE, "device_code": "x", "token": "x"}
        plain = await send(identity, post(path, client_id="nobody", **form))
        assert (plain.status, body(plain)["error"]) == (401, "invalid_client")
        assert header(plain, "www-authenticate") is None
        shown = await send(identity, post(path, **form), **basic("nobody", "x"))
        assert (shown.status, body(shown)["error"]) == (401, "invalid_client")
        challenge = header(shown, "www-authenticate")
        assert challenge is not None
        assert challenge.startswith("Basic realm=")
        nameless = await send(identity, post(path, **form))
        assert (nameless.status, body(nameless)["error"]) == (401, "invalid_client")


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_secret_may_be_shown_in_either_place_whichever_was_registered(method: str) -> None:
    async with open_identity() as identity:
        added = await registered(identity, auth_method=method, client_id="tool")
        assert added.secret is not None
        secret, path = added.secret.reveal(), "/device_authorization"
        assert (await send(identity, post(path), **basic("tool", secret))).status == 200
        assert (await send(identity, post(path, client_id="tool"), **basic("tool", secret))).status == 200
        assert (await send(identity, post(path, client_id="tool", client_secret=secret))).status == 200
        for wrong in (
            post(path, client_id="tool"),
            post(path, client_id="tool", client_secret=""),
            post(path, client_id="tool", client_secret=secret + "x"),
        ):
            assert (await send(identity, wrong)).status == 401
        assert (await send(identity, post(path), **basic("tool", ""))).status == 401
        assert (await send(identity, post(path), **basic("tool", "no"))).status == 401


async def test_a_public_client_may_send_basic_with_an_empty_password_but_no_secret() -> None:
    async with open_identity() as identity:
        path = "/device_authorization"
        assert (await send(identity, post(path), **basic(CLI, ""))).status == 200
        assert (await send(identity, post(path, client_id=CLI, client_secret=""))).status == 200
        assert (await send(identity, post(path, client_id=CLI, client_secret="x"))).status == 401
        assert (await send(identity, post(path), **basic(CLI, "x"))).status == 401


@pytest.mark.parametrize(
    ("authorization", "form", "status", "error"),
    [
        ("Basic !!!", {}, 401, "invalid_client"),
        ("Basic " + base64.b64encode(b"\xff\xfe").decode(), {}, 401, "invalid_client"),
        ("Basic", {}, 401, "invalid_client"),
        (basic("a%00", "b")["authorization"], {}, 401, "invalid_client"),
        (basic("a", "%C3%B6")["authorization"], {}, 401, "invalid_client"),
        (basic("a", "b")["authorization"], {"client_id": "c"}, 400, "invalid_request"),
        (basic(CLI, "b")["authorization"], {"client_secret": "c"}, 400, "invalid_request"),
        ("Basic " + base64.b64encode(b"x" * 9_000).decode(), {}, 400, "invalid_request"),
        ("Bearer something", {"client_id": CLI}, 200, None),
    ],
)
async def test_credentials_that_cannot_be_read_or_contradict(
    authorization: str, form: dict[str, str], status: int, error: str | None
) -> None:
    async with open_identity() as identity:
        reply = await send(identity, post("/device_authorization", **form), authorization=authorization)
        assert (reply.status, body(reply).get("error")) == (status, error)


async def test_what_we_do_not_know_is_ignored() -> None:
    async with open_identity() as identity:
        strange = (("näme", "ö\x00\udc80"), ("x", "1"), ("x", "2"), ("y" * 9_000, "z" * 9_000))
        assert (await send(identity, post("/device_authorization", *strange, client_id=CLI))).status == 200


async def test_a_disabled_client_is_an_unknown_one() -> None:
    async with open_identity() as identity:
        await identity.parts.store.write(
            lambda db: clients.disable(db, CLI, by="local:0", now=identity.parts.clock())
        )
        assert (await send(identity, post("/device_authorization", client_id=CLI))).status == 401


MALFORMED: list[tuple[tuple[tuple[str, str], ...], str]] = [
    ((("client_id", CLI), ("client_id", CLI)), "client_id is given more than once"),
    ((("client_id", CLI), ("scope", ""), ("scope", "mcp")), "scope is given more than once"),
    ((("client_id", CLI), ("scope", "mcp\x00")), "scope has characters outside printable ASCII"),
    ((("client_id", "ö"),), "client_id has characters outside printable ASCII"),
    ((("client_id", "x" * 2_049),), "client_id is too long"),
    ((("client_id", CLI), ("resource", "x" * 2_049)), "resource is too long"),
    (tuple((f"p{n}", "x") for n in range(33)), "too many parameters"),
]


@pytest.mark.parametrize(("pairs", "says"), MALFORMED)
async def test_a_malformed_form_is_refused_in_words(pairs: tuple[tuple[str, str], ...], says: str) -> None:
    async with open_identity() as identity:
        reply = await send(identity, post("/device_authorization", *pairs))
        assert (reply.status, body(reply)) == (400, {"error": "invalid_request", "error_description": says})


ERRORS: list[tuple[str, dict[str, str], str]] = [
    ("/token", {}, "invalid_request"),
    ("/token", {"grant_type": ""}, "invalid_request"),
    ("/token", {"grant_type": "password"}, "unsupported_grant_type"),
    ("/token", {"grant_type": "authorization_code"}, "invalid_request"),
    ("/token", {"grant_type": "client_credentials"}, "unauthorized_client"),
    ("/token", {"grant_type": DEVICE_CODE}, "invalid_request"),
    ("/token", {"grant_type": REFRESH_TOKEN}, "invalid_request"),
    ("/token", {"grant_type": DEVICE_CODE, "device_code": "x"}, "invalid_grant"),
    ("/token", {"grant_type": REFRESH_TOKEN, "refresh_token": "x"}, "invalid_grant"),
    ("/revoke", {}, "invalid_request"),
    ("/device_authorization", {"scope": "other"}, "invalid_scope"),
    ("/device_authorization", {"resource": "https://evil.example/mcp"}, "invalid_target"),
]


@pytest.mark.parametrize(("path", "form", "error"), ERRORS)
async def test_errors_have_the_codes_that_clients_act_on(path: str, form: dict[str, str], error: str) -> None:
    async with open_identity() as identity:
        reply = await send(identity, post(path, client_id=CLI, **form))
        assert (reply.status, body(reply)["error"]) == (400, error)


async def test_a_client_uses_only_the_grants_it_is_registered_for() -> None:
    async with open_identity() as identity:
        await registered(identity, client_id="tool", grant_types=(DEVICE_CODE,))
        form = {"client_id": "tool", "grant_type": REFRESH_TOKEN, "refresh_token": "x"}
        assert body(await send(identity, post("/token", **form)))["error"] == "unauthorized_client"


@pytest.mark.parametrize("path", ["/token", "/device_authorization", "/revoke", "/introspect", "/par"])
async def test_a_form_in_the_address_is_an_invalid_request_and_names_where_it_belongs(path: str) -> None:
    async with open_identity() as identity:
        query = (("client_id", CLI), ("scope", "mcp"))
        request = WireRequest(method="POST", path=path, query=query, origin=ORIGIN, ip="127.0.0.1")
        reply = await send(identity, request)
        assert (reply.status, body(reply)["error"]) == (400, "invalid_request")
        assert "in the body" in body(reply)["error_description"]


async def test_what_stands_in_the_address_beside_a_form_is_not_looked_at() -> None:
    async with open_identity() as identity:
        request = WireRequest(
            method="POST",
            path="/token",
            query=(("grant_type", DEVICE_CODE), ("utm_source", "x")),
            form=(("client_id", CLI),),
            origin=ORIGIN,
            ip="127.0.0.1",
        )
        assert body(await send(identity, request))["error_description"] == "grant_type is missing"


@pytest.mark.parametrize("which", ["access_token", "refresh_token"])
async def test_revoking_either_token_ends_the_whole_login_at_once(which: str) -> None:
    async with open_identity() as identity:
        tokens = await logged_in(identity)
        bearer = f"Bearer {tokens['access_token']}"
        assert isinstance(await identity.check(present(bearer, server="agent", origin=ORIGIN)), Principal)
        for _ in range(2):
            reply = await send(
                identity, post("/revoke", client_id=CLI, token=tokens[which], token_type_hint="nonsense")
            )
            assert (reply.status, reply.body) == (200, b"")
        assert isinstance(await identity.check(present(bearer, server="agent", origin=ORIGIN)), BearerRefusal)
        again = post("/token", client_id=CLI, grant_type=REFRESH_TOKEN, refresh_token=tokens["refresh_token"])
        assert body(await send(identity, again))["error"] == "invalid_grant"


async def test_an_expired_access_token_still_ends_its_login() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        tokens = await logged_in(identity)
        clock.now += 2 * 60 * MINUTE
        await send(identity, post("/revoke", client_id=CLI, token=tokens["access_token"]))
        again = post("/token", client_id=CLI, grant_type=REFRESH_TOKEN, refresh_token=tokens["refresh_token"])
        assert body(await send(identity, again))["error"] == "invalid_grant"


async def test_revoking_what_is_unknown_is_fine_and_what_is_anothers_is_not() -> None:
    async with open_identity() as identity:
        tokens = await logged_in(identity)
        await registered(identity, client_id="tool")
        for text in ("x", "a.b.c", tokens["refresh_token"][:-1] + "_", "x" * 8_000):
            assert (await send(identity, post("/revoke", client_id="tool", token=text))).status == 200
        for which in ("access_token", "refresh_token"):
            reply = await send(identity, post("/revoke", client_id="tool", token=tokens[which]))
            assert (reply.status, body(reply)["error"]) == (400, "invalid_grant")
        bearer = f"Bearer {tokens['access_token']}"
        assert isinstance(await identity.check(present(bearer, server="agent", origin=ORIGIN)), Principal)


async def asked_for(identity: Identity, client_id: str = CLI) -> dict[str, Any]:
    return body(await send(identity, post("/device_authorization", client_id=client_id)))


async def waiting(identity: Identity) -> int:
    now = identity.parts.clock()
    return len(await identity.parts.store.read(lambda db: device.pending(db, now)))


def poll(codes: dict[str, Any], client_id: str = CLI) -> WireRequest:
    return post("/token", client_id=client_id, grant_type=DEVICE_CODE, device_code=codes["device_code"])


async def test_whoever_holds_a_device_code_can_take_its_request_back_once_approved_too() -> None:
    async with open_identity() as identity:
        codes, other = await asked_for(identity), await asked_for(identity)
        assert await waiting(identity) == 2
        withdrawal = post("/revoke", client_id=CLI, token=codes["device_code"], token_type_hint="device_code")
        for _ in range(2):
            reply = await send(identity, withdrawal)
            assert (reply.status, reply.body) == (200, b"")
        assert await waiting(identity) == 1
        assert body(await send(identity, poll(codes)))["error"] == "access_denied"
        assert body(await send(identity, poll(other)))["error"] == "authorization_pending"
        events = await identity.parts.store.read(
            lambda db: db.fetch_all("SELECT event, outcome, actor FROM audit WHERE event LIKE '%withdrawn'")
        )
        assert [tuple(row.values()) for row in map(dict, events)] == [
            ("device.withdrawn", "ok", f"client:{CLI}")
        ]


async def test_a_request_is_not_taken_back_by_another_client_nor_with_less_than_its_code() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        await registered(identity, client_id="tool")
        codes = await asked_for(identity)
        code: str = codes["device_code"]
        for client_id, text in (
            ("tool", code),
            (CLI, codes["user_code"]),
            (CLI, code[:-1]),
            (CLI, f"{code}x"),
            (CLI, device.device_code_hash(code)),
        ):
            reply = await send(identity, post("/revoke", client_id=client_id, token=text))
            # As for any text: nobody learns which codes there are.
            assert (reply.status, reply.body) == (200, b"")
        assert body(await send(identity, poll(codes)))["error"] == "authorization_pending"


async def test_a_code_that_was_used_ends_nothing_when_it_is_taken_back() -> None:
    async with open_identity() as identity:
        tokens = await logged_in(identity)
        rows = await identity.parts.store.read(lambda db: db.fetch_all("SELECT state FROM device_codes"))
        assert [row["state"] for row in rows] == ["used"]
        won = await identity.parts.store.write(
            by_hand("UPDATE device_codes SET device_code_hash = ?", device.device_code_hash("known"))
        )
        assert won == 1
        assert (await send(identity, post("/revoke", client_id=CLI, token="known"))).status == 200
        bearer = f"Bearer {tokens['access_token']}"
        assert isinstance(await identity.check(present(bearer, server="agent", origin=ORIGIN)), Principal)
        rows = await identity.parts.store.read(lambda db: db.fetch_all("SELECT state FROM device_codes"))
        assert [row["state"] for row in rows] == ["used"]


async def test_a_client_that_posts_too_often_waits_and_others_do_not() -> None:
    clock = Clock()
    policy = Policy(
        device=POLICY.device,
        limits=FormLimits(per_minute_per_client=3, per_minute_per_network=5),
    )
    async with open_identity(policy=policy, clock=clock) as identity:
        far = "198.51.100.7"
        poll = {"client_id": CLI, "grant_type": DEVICE_CODE, "device_code": "x"}
        for _ in range(3):
            assert (await send(identity, post("/token", **poll, ip=far))).status == 400
        clock.now += 10 * SECOND
        limited = await send(identity, post("/token", **poll, ip=far))
        assert (limited.status, header(limited, "retry-after")) == (429, "50")
        assert body(limited)["error"] == "temporarily_unavailable"
        assert (await send(identity, post("/token", **poll, ip="192.0.2.1"))).status == 400
        assert (await send(identity, post("/token", **{**poll, "client_id": "other"}, ip=far))).status == 401
        assert (await send(identity, post("/token", **{**poll, "client_id": "third"}, ip=far))).status == 429
        clock.now += 50 * SECOND
        assert (await send(identity, post("/token", **poll, ip=far))).status == 400


async def test_programs_on_this_machine_share_an_address_and_are_not_counted_together() -> None:
    async with open_identity(policy=Policy(limits=FormLimits(per_minute_per_client=1))) as identity:
        poll = {"client_id": CLI, "grant_type": DEVICE_CODE, "device_code": "x"}
        for ip in ("127.0.0.1", "::1") * 3:
            assert (await send(identity, post("/token", **poll, ip=ip))).status == 400


async def test_a_cap_on_codes_says_when_to_come_back() -> None:
    async with open_identity() as identity:
        for _ in range(5):
            assert (await send(identity, post("/device_authorization", client_id=CLI))).status == 200
        limited = await send(identity, post("/device_authorization", client_id=CLI))
        assert (limited.status, header(limited, "retry-after")) == (429, "600")


async def test_refused_clients_are_audited_without_repeating_a_strangers_text() -> None:
    async with open_identity() as identity:
        await send(identity, post("/token", client_id="sTrAnGeR", grant_type=DEVICE_CODE, device_code="x"))
        await send(identity, post("/token", client_id=CLI, client_secret="x", grant_type=DEVICE_CODE))
        rows = await identity.parts.store.read(
            lambda db: db.fetch_all("SELECT * FROM audit WHERE event = 'client.refused' ORDER BY seq")
        )
        assert [(row["client_id"], row["outcome"], row["reason"], row["ip"]) for row in rows] == [
            (None, "refused", "invalid_client", "127.0.0.1"),
            (CLI, "refused", "invalid_client", "127.0.0.1"),
        ]


async def test_no_secret_of_a_login_is_in_the_store_or_its_audit_trail() -> None:
    async with open_identity() as identity:
        tokens = await logged_in(identity)
        await send(identity, post("/revoke", client_id=CLI, token=tokens["refresh_token"]))

        def everything(db: Any) -> str:
            tables = ("device_codes", "grants", "audit", "changes", "clients", "users", "meta")
            return repr([db.fetch_all(f"SELECT * FROM {table}") for table in tables])

        dump = await identity.parts.store.read(everything)
        assert tokens["access_token"] not in dump
        assert tokens["refresh_token"] not in dump
        assert tokens["refresh_token"].rpartition(".")[2] not in dump


@pytest.mark.sqlite_only(
    "it is SQLite that is overheard; tests/e2e/test_postgres_trips.py counts the trips to the other"
)
async def test_a_refresh_is_five_statements_between_begin_and_commit() -> None:
    """The store's thread does little else: each statement more is felt by everybody who refreshes."""
    async with open_identity() as identity:
        form = {"grant_type": REFRESH_TOKEN, "client_id": clients.CLI_CLIENT_ID}
        token = (await logged_in(identity))["refresh_token"]
        said: list[str] = []
        assert isinstance(identity.parts.store, InlineStore)
        connection = identity.parts.store._connection
        assert isinstance(connection, sqlite3.Connection)
        connection.set_trace_callback(said.append)
        reply = await identity.handle(post("/token", **form, refresh_token=token))
        connection.set_trace_callback(None)
        assert reply is not None
        assert reply.status == 200
        assert [" ".join(sql.split()[:2]) for sql in said] == [
            "BEGIN IMMEDIATE", "SELECT *", "SELECT grants.*,", "UPDATE grants", "INSERT INTO", "UPDATE meta", "COMMIT",
        ]  # fmt: skip


async def test_nothing_here_shows_a_secret_in_its_repr() -> None:
    async with open_identity() as identity:
        hidden = "s3cr3t"
        credentials = ClientCredentials(client_id="c", secret=hidden, basic=True)
        values = (
            identity,
            Secret(hidden),
            credentials,
            CheckedForm(values={"token": hidden}, resources=(), credentials=credentials),
            TokenForm(grant_type="g", credentials=credentials, device_code=hidden, refresh_token=hidden),
            WireRequest(
                method="GET",
                path="/claim/" + hidden,
                query=(("q", hidden),),
                form=(("f", hidden),),
                headers={"authorization": hidden},
                origin=ORIGIN,
                ip="::1",
            ),
            WireReply(headers=(("Set-Cookie", hidden),), body=hidden.encode()),
            Entropy(hidden.encode().ljust(32, b"x")),
        )
        for value in values:
            assert hidden not in repr(value)
        assert subkey("signing-keys").hex() not in repr(identity)


async def test_a_grant_is_for_the_server_that_was_asked_for() -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity, resource=ORIGIN + SITE.servers["other"]))["access_token"]
        assert isinstance(
            await identity.check(present(f"Bearer {token}", server="other", origin=ORIGIN)), Principal
        )
        assert isinstance(
            await identity.check(present(f"Bearer {token}", server="agent", origin=ORIGIN)), BearerRefusal
        )


async def test_a_client_without_the_refresh_grant_is_given_no_refresh_token() -> None:
    async with open_identity() as identity:
        await identity.parts.store.write(
            by_hand("UPDATE clients SET grant_types = ? WHERE id = ?", DEVICE_CODE, CLI)
        )
        assert "refresh_token" not in await logged_in(identity)


async def test_a_token_of_a_login_that_was_swept_away_is_refused() -> None:
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        await identity.parts.store.write(lambda db: db.execute("DELETE FROM grants"))
        refused = await identity.check(present(f"Bearer {token}", server="agent", origin=ORIGIN))
        assert isinstance(refused, BearerRefusal)


async def test_without_setup_nothing_is_issued() -> None:
    async with open_identity() as identity:
        await identity.parts.store.write(
            lambda db: db.execute("DELETE FROM meta WHERE key = 'refresh_epoch'")
        )
        with pytest.raises(LookupError, match="epoch"):
            await logged_in(identity)


async def test_a_stranger_cannot_fill_the_audit_trail_with_refusals_and_waiting_polls_are_none() -> None:
    policy = Policy(limits=FormLimits(refused_per_minute_per_network=3))
    clock = Clock()
    async with open_identity(policy=policy, clock=clock) as identity:
        far = "192.0.2.9"
        codes = body(await send(identity, post("/device_authorization", client_id=CLI, ip=far)))
        poll = post(
            "/token",
            client_id=CLI,
            grant_type=DEVICE_CODE,
            device_code=codes["device_code"],
            ip=far,
        )
        assert [body(await send(identity, poll))["error"] for _ in range(4)] == [
            "authorization_pending",
            *["slow_down"] * 3,
        ]
        junk = post("/token", client_id=CLI, grant_type="refresh_token", refresh_token="junk", ip=far)
        assert [(await send(identity, junk)).status for _ in range(5)] == [400] * 3 + [429] * 2
        rows = await identity.parts.store.read(
            lambda db: db.fetch_all("SELECT seq FROM audit WHERE event = 'refresh.refused'")
        )
        assert len(rows) == 3
        unknown = post("/revoke", client_id=CLI, token="junk", ip="192.0.2.11")
        assert [(await send(identity, unknown)).status for _ in range(5)] == [200] * 3 + [429] * 2
        elsewhere = post("/token", client_id="nobody", grant_type="refresh_token", ip="192.0.2.10")
        assert (await send(identity, elsewhere)).status == 401, "others are not held up"
        clock.now += 60 * SECOND
        assert (await send(identity, junk)).status == 400


async def test_this_machine_is_spared_the_limits_only_where_the_server_has_no_public_name() -> None:
    policy = Policy(limits=FormLimits(per_minute_per_network=1))
    public = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})
    for site, statuses in ((SITE, [401, 401]), (public, [401, 429])):
        async with open_identity(policy=policy, site=site) as identity:
            form = post("/token", client_id="nobody", grant_type="refresh_token", ip="127.0.0.1")
            assert [(await send(identity, form)).status for _ in range(2)] == statuses
