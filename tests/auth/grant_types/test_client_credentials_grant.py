"""Machines that act for themselves (RFC 6749 §4.4): who may, for what, and that their logins are one row that can be ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientRegistration
from auth.grants import login_records as grants
from auth.identity import Identity
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.http_messages import WireReply
from auth.values.identity_model import CLIENT_CREDENTIALS, DEVICE_CODE, Principal, PrincipalKind
from auth.values.issuer_and_resources import Site
from auth.values.scopes import Scope, Vocabulary
from tests.auth.assertion_fakes import machine
from tests.auth.identity_fakes import DAY, MINUTE, ORIGIN, POLICY, START, Clock, open_identity, post
from tests.auth.registration_fakes import enrolled, sent
from tests.sealing import by_hand

PAY = Scope(name="pay", words="Spend money", financial=True, listed=True)
SITE = Site(
    issuer=ORIGIN,
    loopback=True,
    servers={"agent": "/mcp", "other": "/other/mcp"},
    scopes=Vocabulary((PAY,)),
)


async def added(identity: Identity, **fields: Any) -> dict[str, str]:
    """The credentials of a client that the operator added, as a form has them."""
    values: dict[str, Any] = {
        "name": "Nightly job",
        "auth_method": "client_secret_basic",
        "grant_types": (CLIENT_CREDENTIALS,),
    }
    registration = ClientRegistration(**{**values, **fields})
    assert registration.check(identity.parts.site.scopes) == []
    made = await identity.parts.store.write(
        lambda db: clients.add(db, registration, seed=identity.parts.entropy(32), by="local:0", now=START)
    )
    assert made is not None
    assert made.secret is not None
    return {"client_id": made.client.id, "client_secret": made.secret.reveal()}


async def asked(identity: Identity, *pairs: tuple[str, str], **form: str) -> WireReply:
    return await sent(identity, post("/token", *pairs, grant_type=CLIENT_CREDENTIALS, **form))


async def token(identity: Identity, **form: str) -> dict[str, Any]:
    reply = await asked(identity, **form)
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


async def checked(
    identity: Identity, answer: dict[str, Any], server: str = "agent"
) -> Principal | BearerRefusal:
    return await identity.check(present(f"Bearer {answer['access_token']}", server=server, origin=ORIGIN))


async def rows(identity: Identity) -> list[dict[str, Any]]:
    return [
        dict(row)
        for row in await identity.parts.store.read(
            lambda db: db.fetch_all("SELECT * FROM grants ORDER BY id")
        )
    ]


async def test_a_machine_gets_an_access_token_and_no_refresh_token_and_is_itself() -> None:
    async with open_identity() as identity:
        shown = await added(identity)
        answer = await token(identity, **shown)
        assert set(answer) == {"access_token", "token_type", "expires_in", "scope"}
        assert (answer["token_type"], answer["expires_in"]) == ("Bearer", 3_600)
        assert answer["scope"] == "mcp mcp:tools mcp:resources"
        who = await checked(identity, answer)
        assert isinstance(who, Principal)
        client_id = shown["client_id"]
        assert (who.kind, who.subject, who.client_id) == (
            PrincipalKind.CLIENT,
            f"client:{client_id}",
            client_id,
        )
        assert who.scopes == {"mcp", "mcp:tools", "mcp:resources"}


async def test_no_user_can_ever_have_the_name_of_a_machine() -> None:
    async with open_identity() as identity:
        await token(identity, **await added(identity, client_id="usr_aaaaaaaaaaaaaaaaaaaa"))
        (row,) = await rows(identity)
        users = await identity.parts.store.read(lambda db: db.fetch_all("SELECT id, name FROM users"))
        assert ":" in row["subject"]
        assert all(":" not in user["id"] for user in users)


async def test_a_token_for_every_call_is_no_row_for_every_call() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        shown = await added(identity)
        for _ in range(10):
            await token(identity, **shown)
            clock.now += MINUTE
        # The same scopes in another order are the same login; fewer of them, or another server, are another.
        await token(identity, **shown, scope="mcp:resources mcp mcp:tools")
        assert len(await rows(identity)) == 1
        await token(identity, **shown, scope="mcp:tools")
        other = await token(identity, **shown, resource=ORIGIN + "/other/mcp")
        assert len(await rows(identity)) == 3
        assert isinstance(await checked(identity, other, "other"), Principal)
        assert isinstance(await checked(identity, other, "agent"), BearerRefusal)


async def test_a_login_that_goes_on_for_months_is_extended_and_every_token_of_it_works() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        shown = await added(identity)
        for _ in range(30):
            answer = await token(identity, **shown)
            assert answer["expires_in"] == 3_600
            assert isinstance(await checked(identity, answer), Principal)
            clock.now += 3 * DAY
            assert isinstance(
                await checked(identity, answer), BearerRefusal
            )  # the token is over, not the login
        (row,) = await rows(identity)
        moved = await identity.parts.store.read(
            lambda db: db.fetch_all("SELECT entity_id FROM changes WHERE kind = 'grant'")
        )
        # Each extension makes every process forget what it knows of the login, so there are few.
        assert 0 < len(moved) < 10
        assert row["counter"] == 1


async def test_a_revoked_login_ends_all_its_tokens_and_the_credentials_begin_another() -> None:
    async with open_identity() as identity:
        shown = await added(identity)
        first, second = await token(identity, **shown), await token(identity, **shown)
        (listed,) = await identity.parts.store.read(lambda db: grants.sessions(db, START))
        assert listed.grant.how == "client_credentials"
        assert isinstance(await checked(identity, first), Principal)
        await identity.parts.store.write(
            lambda db: grants.revoke(db, listed.grant.id, reason="by hand", by="local:0", now=START)
        )
        assert isinstance(await checked(identity, first), BearerRefusal)
        assert isinstance(await checked(identity, second), BearerRefusal)
        third = await token(identity, **shown)
        assert isinstance(await checked(identity, third), Principal)
        assert isinstance(await checked(identity, first), BearerRefusal)
        # It may also end its login itself.
        assert (await sent(identity, post("/revoke", **shown, token=third["access_token"]))).status == 200
        assert isinstance(await checked(identity, third), BearerRefusal)


async def test_disabling_the_client_ends_its_tokens_and_refuses_new_ones() -> None:
    async with open_identity() as identity:
        shown = await added(identity)
        answer = await token(identity, **shown)
        await identity.parts.store.write(
            lambda db: clients.disable(db, shown["client_id"], by="local:0", now=START)
        )
        assert isinstance(await checked(identity, answer), BearerRefusal)
        assert (await asked(identity, **shown)).status == 401


async def test_a_login_is_listed_as_long_as_a_token_of_it_lives() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        await token(identity, **await added(identity))

        async def listed() -> int:
            return len(await identity.parts.store.read(lambda db: grants.sessions(db, clock.now)))

        assert await listed() == 1
        clock.now += POLICY.tokens.access_ms - 1
        assert await listed() == 1
        clock.now += 1
        assert await listed() == 0


@pytest.mark.parametrize(
    ("ceiling", "scope", "granted"),
    [
        ("*", "", "mcp mcp:tools mcp:resources"),
        ("*", "mcp:tools", "mcp:tools"),
        ("*", "mcp:tools nothing:such", "mcp:tools"),
        ("*", "nothing:such", None),
        ("*", "pay", None),
        ("*", "mcp pay financial", "mcp"),
        ("mcp pay", "", "mcp mcp:tools mcp:resources"),
        ("mcp pay", "pay", "pay"),
        ("mcp pay", "mcp pay", "mcp pay"),
        ("mcp pay", "financial", None),
        ("mcp:tools", "mcp", "mcp:tools"),
        ("mcp:tools", "mcp:resources", None),
        ("financial", "", None),
    ],
)
async def test_what_moves_money_is_granted_only_where_request_and_operator_both_name_it(
    ceiling: str, scope: str, granted: str | None
) -> None:
    async with open_identity(site=SITE) as identity:
        reply = await asked(identity, **await added(identity, scope=ceiling), scope=scope)
        answer = json.loads(reply.body)
        assert answer.get("scope") == granted
        assert answer.get("error") == (None if granted else "invalid_scope")


async def test_only_what_the_operator_added_for_it_may() -> None:
    async with open_identity() as identity:
        dynamic = await enrolled(identity, "Python SDK")
        form = {"client_id": dynamic["client_id"], "client_secret": dynamic["client_secret"]}
        assert json.loads((await asked(identity, **form)).body)["error"] == "unauthorized_client"
        # Not even where its row says so: nobody but the operator makes machines.
        await identity.parts.store.write(
            by_hand(
                "UPDATE clients SET grant_types = ? WHERE id = ?", CLIENT_CREDENTIALS, dynamic["client_id"]
            )
        )
        assert json.loads((await asked(identity, **form)).body)["error"] == "unauthorized_client"
        await identity.parts.store.write(
            by_hand("UPDATE clients SET grant_types = ? WHERE kind = 'builtin'", CLIENT_CREDENTIALS)
        )
        reply = await asked(identity, client_id="ostiary-cli")
        assert json.loads(reply.body)["error"] == "unauthorized_client"
        other = await added(identity, grant_types=(DEVICE_CODE,))
        assert json.loads((await asked(identity, **other)).body)["error"] == "unauthorized_client"
        assert await rows(identity) == []


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"client_secret": "wrong"}, "invalid_client"),
        ({"client_secret": ""}, "invalid_client"),
        ({"client_id": "nobody"}, "invalid_client"),
        ({"resource": "https://evil.example/mcp"}, "invalid_target"),
    ],
)
async def test_wrong_credentials_and_foreign_resources_are_refused(
    changed: dict[str, str], error: str
) -> None:
    async with open_identity() as identity:
        reply = await asked(identity, **{**await added(identity), **changed})
        assert json.loads(reply.body)["error"] == error
        assert await rows(identity) == []


async def test_a_machine_with_a_key_gets_the_same_with_a_signature() -> None:
    async with open_identity() as identity:
        signer = await machine(identity)
        reply = await sent(identity, signer.ask(scope="mcp:tools"))
        who = await checked(identity, json.loads(reply.body))
        assert isinstance(who, Principal)
        assert (who.kind, who.subject) == (PrincipalKind.CLIENT, f"client:{signer.client_id}")


async def test_a_lowered_ceiling_holds_for_tokens_that_are_out_already() -> None:
    async with open_identity() as identity:
        shown = await added(identity)
        answer = await token(identity, **shown)
        assert isinstance(await checked(identity, answer), Principal)

        def lower(db: Any) -> None:
            by_hand("UPDATE clients SET scope = 'mcp:resources' WHERE id = ?", shown["client_id"])(db)
            db.changed("client", shown["client_id"])

        await identity.parts.store.write(lower)
        who = await checked(identity, answer)
        assert isinstance(who, Principal)
        assert who.scopes == {"mcp:resources"}


async def test_a_machine_that_is_for_one_server_gets_tokens_for_no_other() -> None:
    async with open_identity(site=SITE) as identity:
        job = await added(identity, server="other")
        given = await token(identity, **job)
        assert isinstance(await checked(identity, given, "other"), Principal)
        assert isinstance(await checked(identity, given, "agent"), BearerRefusal)
        assert isinstance(
            await checked(identity, await token(identity, **job, resource=f"{ORIGIN}/other/mcp"), "other"),
            Principal,
        )
        refused = await asked(identity, **job, resource=f"{ORIGIN}/mcp")
        assert (refused.status, json.loads(refused.body)["error"]) == (400, "invalid_target")


async def test_a_machine_of_a_server_that_is_not_configured_any_more_gets_nothing() -> None:
    async with open_identity(site=SITE) as identity:
        job = await added(identity, server="gone")
        assert json.loads((await asked(identity, **job)).body)["error"] == "invalid_target"


@pytest.mark.parametrize(("resource", "answered"), [("", "other"), ("/other/mcp", "other"), ("/mcp", None)])
async def test_a_device_of_a_client_for_one_server_asks_for_that_one(
    resource: str, answered: str | None
) -> None:
    async with open_identity(site=SITE) as identity:
        job = await added(identity, server="other", grant_types=(DEVICE_CODE,))
        form = {**job, **({"resource": ORIGIN + resource} if resource else {})}
        reply = await sent(identity, post("/device_authorization", **form))
        rows = await identity.parts.store.read(lambda db: db.fetch_all("SELECT server FROM device_codes"))
        assert [row["server"] for row in rows] == ([answered] if answered else [])
        assert reply.status == (200 if answered else 400)
