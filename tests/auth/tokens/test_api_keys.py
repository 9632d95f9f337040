"""API keys: what is kept of them, what bounds them, and what becomes of those that are shown (auth/tokens/api_keys.py, credentials.py)."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from auth.identity import Identity
from auth.tokens import api_keys
from auth.tokens.api_keys import ApiKey, ApiKeyNotMade, ApiKeyOrder, NewApiKey
from auth.tokens.challenge import BearerRefusal
from auth.tokens.credentials import AcceptedCredentials, CredentialCheck, static_principal
from auth.tokens.key_ring import (
    LOOK_MS,
    LOOKS,
    MAX_REFUSALS,
    PIECE,
    REMEMBERED_MS,
    ApiKeyRing,
    KeyUsage,
    note,
)
from auth.tokens.presentation import digest_of, present
from auth.values.db import Db
from auth.values.model import Principal, PrincipalKind
from tests.auth.identity_fakes import DAY, ORIGIN, SITE, START, Clock, World, logged_in, open_identity, seeds


def make(
    db: Db, number: int = 1, *, by: str = "local:0", now: int = START, **order: Any
) -> NewApiKey | ApiKeyNotMade:
    owner = db.fetch_one("SELECT id FROM users WHERE role = 'owner'")
    assert owner is not None
    fields: dict[str, Any] = {"name": f"key {number}", "user_id": owner["id"], "scope": "mcp"}
    asked = ApiKeyOrder(**{**fields, **order})
    return api_keys.create(db, asked, seed=number.to_bytes(32, "big"), by=by, now=now)


def made(world: World, number: int = 1, **order: Any) -> NewApiKey:
    found = world.db.run(lambda db: make(db, number, **order))
    assert isinstance(found, NewApiKey)
    return found


def made_elsewhere(number: int) -> NewApiKey:
    world = World()
    key = made(world, number)
    world.close()
    return key


# ── making, listing, revoking ────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_kept_as_a_hash_and_the_letters_that_tell_it_apart() -> None:
    world = World()
    key = made(world)
    text = key.secret.reveal()
    row = world.db.one("api_keys")
    assert text not in str(row)
    assert (row["key_hash"], row["hint"]) == (api_keys.hash_of(text), text[-4:])
    assert text not in repr(key)
    assert ("api_key", row["id"]) in world.db.changes
    assert world.db.audited("api_key.created") == [("ok", "")]


def test_what_is_no_key_is_known_without_the_store() -> None:
    text = made(World()).secret.reveal()
    assert api_keys.is_one(text)
    other = "0" if text[10] != "0" else "1"
    for wrong in (
        "",
        "ost_",
        text[:-1],
        text + "0",
        text[:10] + other + text[11:],
        text.upper(),
        " " + text,
        text + "\n",
    ):
        assert not api_keys.is_one(wrong), wrong


@given(st.binary(min_size=32, max_size=32))
def test_every_key_is_recognised_and_its_id_says_nothing_of_it(seed: bytes) -> None:
    text, key_id = api_keys.draw(seed)
    assert api_keys.is_one(text)
    assert key_id.startswith("key_") and key_id[4:] not in text


@pytest.mark.parametrize(
    ("ceiling", "scope", "reason"),
    [
        ("mcp:tools", "mcp", "beyond_the_user"),
        ("mcp", "financial", "beyond_the_user"),
        ("*", "financial", None),
    ],
)
def test_a_key_cannot_be_made_for_more_than_its_user_may(
    ceiling: str, scope: str, reason: str | None
) -> None:
    world = World()
    world.db.execute("UPDATE users SET scope = ?", ceiling)
    found = world.db.run(lambda db: make(db, scope=scope))
    assert (found.reason if isinstance(found, ApiKeyNotMade) else None) == reason
    assert world.db.count("api_keys") == (0 if reason else 1)


def test_a_name_is_taken_until_its_key_is_revoked_and_nobody_elses_key_is() -> None:
    world = World()
    key = made(world)
    again = world.db.run(lambda db: make(db, 2, name="key 1"))
    assert again == ApiKeyNotMade("name_taken")
    nobody = world.db.run(lambda db: make(db, 3, user_id="usr_nobody"))
    assert nobody == ApiKeyNotMade("no_user")

    def revoke(of_user: str | None) -> bool:
        return world.db.run(
            lambda db: api_keys.revoke(db, key.key.id, by="local:0", now=START, of_user=of_user)
        )

    assert not revoke("usr_other")
    assert revoke(world.owner)
    assert not revoke(None)
    assert world.db.audited("api_key.revoked") == [("ok", "")]
    assert isinstance(world.db.run(lambda db: make(db, 4, name="key 1")), NewApiKey)
    assert [each.name for each in api_keys.listing(world.db, user_id=world.owner)] == ["key 1"]
    assert api_keys.listing(world.db, user_id="usr_other") == []


# ── may it be used? ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "server", "reason"),
    [
        ({}, "agent", None),
        ({"server": "agent"}, "agent", None),
        ({"server": "agent"}, "other", "other_server"),
        ({"expires_at": START}, "agent", "expired"),
        ({"expires_at": START + 1}, "agent", None),
        ({"revoked_at": START - DAY, "expires_at": START - 1}, "agent", "revoked"),
        ({"user_usable": False}, "agent", "user_not_enabled"),
        ({"user_ends_at": START}, "agent", "user_not_enabled"),
        ({"user_ends_at": START + 1}, "agent", None),
    ],
)
def test_whether_a_key_may_be_used(fields: dict[str, Any], server: str, reason: str | None) -> None:
    key = dataclasses.replace(made(World()).key, **fields)
    assert api_keys.decide(key, server=server, now=START) == reason


@pytest.mark.parametrize(
    ("scope", "ceiling", "allowed"),
    [
        ("mcp", "*", {"mcp"}),
        ("mcp", "mcp:tools", {"mcp:tools"}),
        ("mcp:tools financial", "mcp", {"mcp:tools"}),
        ("mcp:tools", "", set[str]()),
        ("*", "*", set[str]()),
    ],
)
def test_a_key_may_what_it_was_made_for_and_its_user_may_now(
    scope: str, ceiling: str, allowed: set[str]
) -> None:
    world = World()
    key = made(world)
    world.db.execute("UPDATE api_keys SET scope = ?", scope)
    world.db.execute("UPDATE users SET scope = ?, tools = 'readonly'", ceiling)
    found = api_keys.find(world.db, key.key.id)
    assert found is not None
    principal = found.principal
    assert (principal.kind, principal.subject, principal.grant_id) == (
        PrincipalKind.API_KEY,
        found.id,
        found.id,
    )
    assert (principal.user, principal.client_id, principal.tools) == (world.owner, None, "readonly")
    assert principal.scopes == allowed


# ── what a request shows ─────────────────────────────────────────────────────────────────────────────────────────────


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


STATIC = "static-token-of-24-letters"


@dataclass
class Door:
    identity: Identity
    clock: Clock

    async def make(self, number: int = 1, **order: Any) -> NewApiKey:
        found = await self.identity.parts.store.write(lambda db: make(db, number, **order))
        assert isinstance(found, NewApiKey)
        return found

    async def show(
        self, authorization: str | None = None, api_key: str | None = None, server: str = "agent"
    ) -> Principal | BearerRefusal:
        """As the server asks: without waiting first."""
        identity = self.identity
        found = identity.check_nowait(
            present(authorization, server=server, origin=ORIGIN, api_key=api_key, address="10.0.0.1")
        )
        if found is not None:
            return found
        return await identity.check(
            present(authorization, server=server, origin=ORIGIN, api_key=api_key, address="10.0.0.1")
        )

    async def run(self, sql: str, *params: object, changed: tuple[str, str]) -> None:
        def job(db: Db) -> None:
            db.execute(sql, *params)
            db.changed(*changed)

        await self.identity.parts.store.write(job)


@asynccontextmanager
async def door(**agent: Any) -> AsyncGenerator[Door]:
    """`agent`: what the server of that name takes."""
    clock = Clock()
    tokens = {
        digest_of(STATIC): static_principal("agent", "ci", scopes=frozenset({"mcp:tools"}), tools="readonly")
    }
    access = {"agent": AcceptedCredentials(tokens=tokens, **agent)}
    async with open_identity(clock=clock, access=access) as identity:
        yield Door(identity, clock)


async def test_a_key_is_known_by_bearer_by_header_and_by_name_and_password() -> None:
    async with door() as at:
        key = await at.make()
        text = key.secret.reveal()
        for shown in (
            await at.show(f"Bearer {text}"),
            await at.show(None, text),
            await at.show(basic(f"{key.key.id}:{text}")),
            await at.show(f"Bearer {text}", text),
        ):
            assert shown == key.key.principal


async def test_after_the_first_look_nobody_waits_for_the_store() -> None:
    async with door() as at:
        text = (await at.make()).secret.reveal()
        await at.show(None, text)
        where: dict[str, Any] = {"server": "agent", "origin": ORIGIN}
        assert isinstance(at.identity.check_nowait(present(f"Bearer {text}", **where)), Principal)
        assert isinstance(at.identity.check_nowait(present("Bearer ost_" + "A" * 49, **where)), BearerRefusal)
        unknown = (await at_world_key()).secret.reveal()  # well made, of another server
        assert isinstance(at.identity.check_nowait(present(f"Bearer {unknown}", **where)), BearerRefusal)


async def at_world_key() -> NewApiKey:
    return made(World(draw=seeds(7)), 99)


@pytest.mark.parametrize("way", ["bearer", "header", "basic"])
@pytest.mark.parametrize("what", ["revoked", "disabled", "lowered", "gone"])
async def test_a_key_follows_its_own_and_its_users_state_at_once(way: str, what: str) -> None:
    async with door() as at:
        key = await at.make()
        text = key.secret.reveal()
        shown = {
            "bearer": (f"Bearer {text}", None),
            "header": (None, text),
            "basic": (basic(f"{key.key.id}:{text}"), None),
        }[way]
        before = await at.show(*shown)
        assert isinstance(before, Principal) and before.scopes == {"mcp"}
        user, key_id = key.key.user_id, key.key.id
        if what == "revoked":
            await at.identity.parts.store.write(
                lambda db: api_keys.revoke(db, key_id, by="local:0", now=START)
            )
        elif what == "disabled":
            await at.run("UPDATE users SET state = 'disabled' WHERE id = ?", user, changed=("user", user))
        elif what == "lowered":
            await at.run("UPDATE users SET scope = 'mcp:tools' WHERE id = ?", user, changed=("user", user))
        else:
            await at.run("DELETE FROM users WHERE id = ?", user, changed=("user", user))
        after = await at.show(*shown)
        still = await at.identity.credentials.still(before)
        if what == "lowered":
            assert isinstance(after, Principal) and after.scopes == {"mcp:tools"}
            assert still == after
        else:
            assert isinstance(after, BearerRefusal) and (after.status, after.error) == (401, "invalid_token")
            assert still is None


async def test_work_goes_on_when_a_key_runs_out_by_itself_and_no_new_request_comes_in() -> None:
    async with door() as at:
        key = await at.make(expires_at=START + DAY)
        shown = await at.show(None, key.secret.reveal())
        assert isinstance(shown, Principal)
        at.clock.now += DAY
        assert isinstance(await at.show(None, key.secret.reveal()), BearerRefusal)
        assert await at.identity.credentials.still(shown) == shown


async def test_a_static_token_is_for_its_server_and_its_name() -> None:
    async with door() as at:
        for shown in (f"Bearer {STATIC}", basic(f"ci:{STATIC}")):
            who = await at.show(shown)
            assert isinstance(who, Principal)
            assert (who.subject, who.tools, who.scopes) == ("token:agent:ci", "readonly", {"mcp:tools"})
        assert await at.show(None, STATIC) == who
        assert await at.identity.credentials.still(who) == who
        gone = replace(who, subject="token:agent:old", grant_id="token:agent:old")
        assert await at.identity.credentials.still(gone) is None
        for wrong in (basic(f"other:{STATIC}"), f"Bearer {STATIC}x"):
            assert isinstance(await at.show(wrong), BearerRefusal)
        assert isinstance(await at.show(f"Bearer {STATIC}", server="other"), BearerRefusal)


@pytest.mark.parametrize(
    ("takes", "accepted", "challenge"),
    [
        ({}, {"login", "bearer", "header", "basic"}, "Bearer resource_metadata="),
        (
            {"login": False},
            {"bearer", "header", "basic"},
            'Basic realm="agent", charset="UTF-8", Bearer realm="agent"',
        ),
        ({"api_key": False}, {"login", "basic"}, "Bearer resource_metadata="),
        ({"basic": False, "api_key": False}, {"login"}, "Bearer resource_metadata="),
        ({"login": False, "api_key": False}, {"basic"}, 'Basic realm="agent", charset="UTF-8"'),
        ({"login": False, "basic": False}, {"bearer", "header"}, 'Bearer realm="agent"'),
    ],
)
async def test_a_server_takes_the_kinds_that_its_owner_left_on(
    takes: dict[str, bool], accepted: set[str], challenge: str
) -> None:
    async with door(**takes) as at:
        key = await at.make()
        text, token = key.secret.reveal(), (await logged_in(at.identity))["access_token"]
        shown: dict[str, tuple[str | None, str | None]] = {
            "login": (f"Bearer {token}", None),
            "bearer": (f"Bearer {text}", None),
            "header": (None, text),
            "basic": (basic(f"{key.key.id}:{text}"), None),
        }
        found = {way: await at.show(*each) for way, each in shown.items()}
        assert {way for way, each in found.items() if isinstance(each, Principal)} == accepted
        nobody = await at.show()
        assert isinstance(nobody, BearerRefusal) and nobody.error is None
        assert nobody.www_authenticate.startswith(challenge)


# ── what is remembered and written ───────────────────────────────────────────────────────────────────────────────────


@dataclass
class Changed:
    kind: str
    entity_id: str


class SlowStore:
    """Reads what is true when the read begins, and hands it over when told to."""

    def __init__(self, *keys: ApiKey) -> None:
        self.truth = list(keys)
        self.gate = trio.Event()
        self.gate.set()
        self.reads = 0

    async def __call__(self) -> list[ApiKey]:
        self.reads += 1
        found = list(self.truth)
        await self.gate.wait()
        await trio.lowlevel.checkpoint()
        return found


@pytest.mark.parametrize("kind", ["api_key", "user"])
async def test_a_read_that_a_change_overtakes_is_done_again(kind: str) -> None:
    key = made(World())
    store = SlowStore(key.key)
    ring = ApiKeyRing(store)
    store.gate = trio.Event()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ring.reload)
            await trio.testing.wait_all_tasks_blocked()
            store.truth = []  # revoked, by whoever says so now: the ring does not know yet whose keys there are
            ring.apply_changes([Changed(kind, key.key.user_id)])
            store.gate.set()
    assert not ring.stale
    assert (store.reads, ring.find(digest_of(key.secret.reveal())), len(ring)) == (2, None, 0)


async def test_changes_of_people_without_keys_cost_no_read() -> None:
    key = made(World())
    store = SlowStore(key.key)
    ring = ApiKeyRing(store)
    assert await ring.reload()
    ring.apply_changes([Changed("user", "usr_other"), Changed("grant", key.key.id), Changed("key", "k")])
    assert not ring.stale
    ring.apply_changes([Changed("user", key.key.user_id)])
    assert ring.stale


async def test_keys_that_change_faster_than_they_can_be_read_let_nobody_in() -> None:
    key = made(World())
    ring = ApiKeyRing(lambda: changing())

    async def changing() -> list[ApiKey]:
        ring.apply_changes([Changed("api_key", key.key.id)])
        return [key.key]

    assert not await ring.reload()
    assert ring.stale


async def test_a_key_that_another_process_has_made_is_looked_for_and_made_up_ones_seldom() -> None:
    """Nobody has told of it yet: its change is heard of a moment later."""
    store = SlowStore(made_elsewhere(1).key)
    ring = ApiKeyRing(store)
    clock = Clock()
    verifier: Any = SimpleNamespace(settle=lambda: None)
    check = CredentialCheck(site=SITE, verifier=verifier, ring=ring, access={})

    async def let_in(key: NewApiKey) -> bool:
        shown = present(f"Bearer {key.secret.reveal()}", server="agent", origin=ORIGIN)
        return isinstance(await check.check(shown, clock()), Principal)

    assert await ring.reload()
    others = made_elsewhere(2)
    store.truth.append(others.key)
    assert not await let_in(others)  # it has this store for itself
    ring.shared = True
    store.reads = 0
    assert await let_in(others)
    assert await let_in(others)
    assert store.reads == 1
    for number in range(10, 40):  # in the right form, and nobody made them
        assert not await let_in(made_elsewhere(number))
        assert not await let_in(made_elsewhere(number))
    assert store.reads == LOOKS
    clock.now += LOOK_MS
    for number in range(40, 50):
        assert not await let_in(made_elsewhere(number))
    assert store.reads == LOOKS + 1
    assert await let_in(others)
    clock.now -= 1000 * LOOK_MS  # a clock that was put back bars nobody
    late = made_elsewhere(60)
    store.truth.append(late.key)
    assert await let_in(late)


def test_uses_are_gathered_and_each_refusal_is_told_once_an_hour() -> None:
    usage = KeyUsage()
    assert usage.take() is None
    for second in range(5):
        usage.used("key_1", START + second, f"10.0.0.{second}")
        usage.refused("key_2", "revoked", START + second, f"10.0.0.{second}")
    notes = usage.take()
    assert notes is not None
    assert [(use.key_id, use.at, use.address) for use in notes.uses] == [("key_1", START + 4, "10.0.0.4")]
    assert [(each.key_id, each.at) for each in notes.refusals] == [("key_2", START)]
    assert usage.take() is None
    usage.refused("key_2", "revoked", START + REMEMBERED_MS - 1, "10.0.0.1")
    assert usage.take() is None
    usage.refused("key_2", "expired", START + 1, "10.0.0.1")
    usage.refused("key_2", "revoked", START + REMEMBERED_MS, "10.0.0.1")
    assert usage.take() is not None


def test_whoever_tries_keys_from_many_addresses_fills_no_table() -> None:
    usage = KeyUsage()
    for number in range(10_000):
        usage.refused("", "unknown", START, f"10.0.{number}.1")
        usage.used(f"key_{number}", START, "10.0.0.1")
    first = usage.take()
    assert first is not None
    assert (len(first.refusals), len(first.uses)) == (MAX_REFUSALS, PIECE)


def test_what_is_noted_is_the_last_use_and_goes_never_back() -> None:
    world = World()
    key = made(world).key
    usage = KeyUsage()
    for at in (START + 10, START + 5):
        usage.used(key.id, at, f"10.0.0.{at - START}")
        usage.refused("", "unknown", at, "10.0.0.9")
        notes = usage.take()
        assert notes is not None
        world.db.run(lambda db, notes=notes: note(db, notes))
    found = api_keys.find(world.db, key.id)
    assert found is not None
    assert (found.last_used_at, found.last_used_ip) == (START + 10, "10.0.0.10")
    assert world.db.audited("api_key.used") == [("refused", "unknown")]
