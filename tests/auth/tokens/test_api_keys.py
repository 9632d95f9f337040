"""API keys: what is kept of them, what bounds them, and what becomes of those that are shown (auth/tokens/api_keys.py, accepted_credentials.py)."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Callable
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
from auth.tokens import api_key_ring, api_keys
from auth.tokens.accepted_credentials import AcceptedCredentials, CredentialCheck, static_principal
from auth.tokens.api_key_ring import (
    ATTEMPTS,
    LOOK_MS,
    LOOKS,
    MAX_REFUSALS,
    MAX_UNREAD,
    PIECE,
    REMEMBERED_MS,
    SAME_LOOKS,
    ApiKeyRing,
    KeyNotLookedFor,
    KeyUsage,
    note,
)
from auth.tokens.api_keys import ApiKeyNotMade, ApiKeyOrder, NewApiKey
from auth.tokens.presented_credentials import Presentation, digest_of, present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.database import ChangedWhileRead, Db, NotStored
from auth.values.identity_model import Principal, PrincipalKind
from server.store.jobs import Change
from tests.auth.identity_fakes import (
    DAY,
    ORIGIN,
    SITE,
    START,
    Clock,
    World,
    basic,
    logged_in,
    open_identity,
    seeds,
)
from tests.sealing import by_hand


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
            by_hand(sql, *params)(db)
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


class CountedStore:
    """A world's store, which counts what is read, and hands over what it read when told to."""

    def __init__(self, keys: int = 1) -> None:
        self.world = World()
        self.keys = [made(self.world, number) for number in range(keys)]
        self.read_of: list[str] = []
        self.rows = 0
        self.gate = trio.Event()
        self.gate.set()
        self.meanwhile: Callable[[], None] = lambda: None

    async def read(self, job: Any) -> Any:
        found = job(self.world.db)
        self.read_of.append(getattr(job, "func", job).__name__)
        self.rows += len(found) if isinstance(found, list) else 1
        self.meanwhile()
        await self.gate.wait()
        await trio.lowlevel.checkpoint()
        return found

    async def write(self, job: Any) -> Any:
        raise AssertionError("nothing is written")

    def chain_audit(self, key: bytes) -> None:
        raise AssertionError("nothing is audited")

    def forget_reads(self) -> None:
        self.read_of, self.rows = [], 0


class Watched:
    """A ring that is told what its store commits, and a check that asks it."""

    def __init__(self, keys: int = 1) -> None:
        self.store = CountedStore(keys)
        self.ring = ApiKeyRing(self.store)
        self.clock = Clock()
        verifier: Any = SimpleNamespace(settle=lambda: None)
        self.credentials = CredentialCheck(site=SITE, verifier=verifier, ring=self.ring, access={})

    def commit(self, job: Callable[[Db], Any]) -> Any:
        told = len(self.store.world.db.changes)
        found = self.store.world.db.run(job)
        self.ring.apply_changes([Change(0, *each) for each in self.store.world.db.changes[told:]])
        return found

    def revoke(self, key: NewApiKey) -> None:
        assert self.commit(lambda db: api_keys.revoke(db, key.key.id, by="local:0", now=START))

    def touch(self, kind: str, entity_id: str) -> None:
        self.commit(lambda db: db.changed(kind, entity_id))

    def shown(self, key: NewApiKey) -> Presentation:
        return present(f"Bearer {key.secret.reveal()}", server="agent", origin=ORIGIN)

    def let_in_nowait(self, key: NewApiKey) -> bool | None:
        found = self.credentials.check_nowait(self.shown(key), self.clock())
        return None if found is None else isinstance(found, Principal)

    async def let_in(self, key: NewApiKey) -> bool:
        return isinstance(await self.credentials.check(self.shown(key), self.clock()), Principal)


async def test_a_change_of_one_key_reads_one_row_and_whoever_shows_another_does_not_wait() -> None:
    at = Watched(50)
    first, second = at.store.keys[:2]
    assert await at.let_in(first)
    assert at.store.read_of == ["every"]
    at.store.forget_reads()
    at.revoke(second)
    new = at.commit(lambda db: make(db, 100))
    assert at.let_in_nowait(first) is True
    assert at.let_in_nowait(second) is None
    assert not await at.let_in(second)
    assert await at.let_in(new)
    assert (at.store.read_of, at.store.rows) == (["shown", "some"], 2)
    assert at.let_in_nowait(second) is False
    assert at.let_in_nowait(new) is True


async def test_a_thousand_keys_and_somebody_who_makes_more_in_a_loop_refuse_nobody() -> None:
    async with door() as at:
        keys = [await at.make(number) for number in range(1_000)]
        answers: list[Principal | BearerRefusal] = []
        done = trio.Event()
        store = at.identity.parts.store
        read = store.read

        async def read_slowly(job: Callable[[Db], Any]) -> Any:
            found = await read(job)
            for _ in range(5):  # others go on meanwhile
                await trio.lowlevel.checkpoint()
            return found

        store.read = read_slowly  # type: ignore[method-assign]

        async def call() -> None:
            for key in keys[:20]:
                answers.append(await at.show(None, key.secret.reveal()))
                await trio.lowlevel.checkpoint()
            done.set()

        async def make_more() -> None:
            number = 2_000
            while not done.is_set():
                number += 1
                await at.make(number)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(make_more)
                nursery.start_soon(call)
        assert len(answers) == 20
        assert {type(each) for each in answers} == {Principal}


@pytest.mark.parametrize("heard", ["api_key", "user", "nothing"])
@pytest.mark.parametrize("reads", ["every", "some", "shown"])
async def test_a_read_that_a_change_overtakes_lets_in_nobody_who_was_shut_out(heard: str, reads: str) -> None:
    """`heard`: what was told of while it was read; nothing, where the change may have been missed."""
    at = Watched()
    key = at.store.keys[0]
    if reads != "every":
        await at.ring.catch_up()
        if reads == "some":
            key = at.commit(lambda db: make(db, 2))
        else:
            at.touch("api_key", key.key.id)
    at.store.forget_reads()
    at.store.gate = trio.Event()
    found: list[bool] = []

    async def ask() -> None:
        found.append(await at.let_in(key))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            shut_out = (
                "UPDATE users SET state = 'disabled'"
                if heard == "user"
                else "UPDATE api_keys SET revoked_at = 1"
            )
            at.store.world.db.execute(shut_out)
            if heard == "nothing":
                at.ring.trust(False)
                at.ring.trust(True)
            else:
                at.touch(heard, key.key.user_id if heard == "user" else key.key.id)
            at.store.gate.set()
    assert found == [False]
    assert at.store.read_of == [reads, "shown"]
    assert at.let_in_nowait(key) is False


async def test_a_key_that_changes_each_time_it_is_read_is_neither_let_in_nor_refused() -> None:
    at = Watched(2)
    key, other = at.store.keys
    assert await at.let_in(key)
    shown = at.credentials.check_nowait(at.shown(key), START)
    assert isinstance(shown, Principal)
    at.touch("api_key", key.key.id)
    at.store.meanwhile = lambda: at.touch("api_key", key.key.id)
    at.store.forget_reads()
    with pytest.raises(ChangedWhileRead):
        await at.let_in(key)
    assert at.store.read_of == ["shown"] * ATTEMPTS
    with pytest.raises(NotStored):  # so it is for work that runs on
        await at.credentials.still(shown)
    assert at.let_in_nowait(other) is True
    at.store.meanwhile = lambda: None
    assert await at.let_in(key)
    assert await at.credentials.still(shown) == shown


async def test_while_nobody_tells_of_changes_each_request_has_its_own_key_read_and_nothing_is_remembered() -> (
    None
):
    at = Watched(50)
    key, other = at.store.keys[:2]
    assert await at.let_in(key)
    at.ring.trust(False)
    at.store.forget_reads()
    # Ended by another process, of which nobody tells here.
    at.store.world.db.execute("UPDATE api_keys SET revoked_at = 1 WHERE id = ?", other.key.id)
    for _ in range(2):
        assert await at.let_in(key)
        assert not await at.let_in(other)
        assert at.let_in_nowait(key) is None
    assert (at.store.read_of, at.store.rows, len(at.ring)) == (["shown"] * 4, 4, 0)
    at.ring.trust(True)
    assert await at.let_in(key)
    assert at.let_in_nowait(key) is True
    assert at.let_in_nowait(other) is False
    assert at.store.read_of[4:] == ["every"]


async def test_all_keys_are_read_once_however_many_come_meanwhile() -> None:
    at = Watched(20)
    at.store.gate = trio.Event()
    found: list[bool] = []

    async def ask(key: NewApiKey) -> None:
        found.append(await at.let_in(key))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for key in at.store.keys:
                nursery.start_soon(ask, key)
            await trio.testing.wait_all_tasks_blocked()
            at.store.gate.set()
    assert found == [True] * 20
    assert sorted(at.store.read_of) == ["every", *["shown"] * 19]


async def test_made_up_keys_read_nothing_once_what_changed_was_read() -> None:
    at = Watched(3)
    await at.ring.catch_up()
    at.store.forget_reads()
    for number in range(10, 20):
        at.commit(lambda db, number=number: make(db, number))
    for number in range(100, 120):
        assert not await at.let_in(made_elsewhere(number))
    assert (at.store.read_of, at.store.rows) == (["some"], 10)


async def test_more_changes_than_are_remembered_have_all_keys_read_for_whoever_shows_one_that_is_not_known() -> (
    None
):
    at = Watched(2)
    await at.ring.catch_up()
    at.store.forget_reads()
    at.ring.apply_changes([Change(0, "api_key", f"key_{number}") for number in range(MAX_UNREAD + 1)])
    new = at.commit(lambda db: make(db, 5))
    assert at.let_in_nowait(at.store.keys[0]) is True
    assert await at.let_in(new)
    assert at.store.read_of == ["every"]


async def test_keys_that_ended_are_held_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "REVOKED_KNOWN", 3)
    at = Watched(1)
    await at.ring.catch_up()
    for number in range(10, 20):
        key = at.commit(lambda db, number=number: make(db, number))
        assert await at.let_in(key)
        at.revoke(key)
        assert not await at.let_in(key)
    assert len(at.ring) == 1 + 3
    assert at.let_in_nowait(at.store.keys[0]) is True


async def test_rows_that_were_swept_away_are_not_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_key_ring, "MAX_HELD", 10)
    at = Watched(1)
    await at.ring.catch_up()
    for number in range(10, 40):
        key = at.commit(lambda db, number=number: make(db, number))
        assert await at.let_in(key)
        at.store.world.db.execute("DELETE FROM api_keys WHERE id = ?", key.key.id)
    assert len(at.ring) <= 11
    assert at.let_in_nowait(at.store.keys[0]) is True


async def test_changes_of_people_without_keys_cost_no_read() -> None:
    at = Watched()
    key = at.store.keys[0]
    assert await at.let_in(key)
    at.ring.apply_changes(
        [Change(0, "user", "usr_other"), Change(0, "grant", key.key.id), Change(0, "key", "k")]
    )
    assert at.let_in_nowait(key) is True
    at.touch("user", key.key.user_id)
    assert at.let_in_nowait(key) is None


async def test_a_key_that_another_process_has_made_is_looked_for_and_made_up_ones_seldom() -> None:
    """Nobody has told of it yet: its change is heard of a moment later."""
    at = Watched()
    await at.ring.catch_up()
    others = made(at.store.world, 2)  # nobody tells of it
    assert not await at.let_in(others)  # it has this store for itself
    at.ring.shared = True
    at.store.forget_reads()
    assert await at.let_in(others)
    assert await at.let_in(others)
    assert at.store.read_of == ["shown"]
    for number in range(11, 10 + LOOKS):  # in the right form, and nobody made them
        assert not await at.let_in(made_elsewhere(number))
        assert not await at.let_in(made_elsewhere(number))
    late = made(at.store.world, 60)
    for key in (made_elsewhere(40), late):  # of neither is it known whether somebody made it
        with pytest.raises(KeyNotLookedFor):
            await at.let_in(key)
    assert len(at.store.read_of) == LOOKS
    at.clock.now += LOOK_MS
    assert await at.let_in(late)
    with pytest.raises(KeyNotLookedFor):
        await at.let_in(made_elsewhere(40))
    assert len(at.store.read_of) == LOOKS + 1
    assert await at.let_in(others)
    at.clock.now -= 1000 * LOOK_MS  # a clock that was put back bars nobody
    assert await at.let_in(made(at.store.world, 61))


async def test_a_key_of_another_process_is_not_refused_because_a_look_for_it_failed() -> None:
    at = Watched()
    await at.ring.catch_up()
    at.ring.shared = True
    others = made(at.store.world, 2)  # nobody tells of it

    def fail() -> None:
        raise NotStored("the database is being replaced")

    at.store.meanwhile = fail
    with pytest.raises(NotStored):
        await at.let_in(others)
    at.store.meanwhile = lambda: None
    assert await at.let_in(others)


async def test_a_key_of_another_process_that_comes_several_times_at_once_is_let_in_each_time() -> None:
    at = Watched()
    await at.ring.catch_up()
    at.ring.shared = True
    others = made(at.store.world, 2)  # nobody tells of it
    at.store.gate = trio.Event()
    found: list[bool] = []

    async def ask() -> None:
        found.append(await at.let_in(others))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(2 * LOOKS):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            at.store.gate.set()
    assert found == [True] * 2 * LOOKS


async def test_one_made_up_key_that_comes_many_times_at_once_is_read_few_times_and_then_refused() -> None:
    at = Watched()
    await at.ring.catch_up()
    at.ring.shared = True
    at.store.forget_reads()
    nobodys, found = made_elsewhere(11), list[bool | None]()
    at.store.gate = trio.Event()

    async def ask() -> None:
        try:
            found.append(await at.let_in(nobodys))
        except KeyNotLookedFor:
            found.append(None)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(500):
                nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked()
            assert found == [None] * (500 - SAME_LOOKS)
            at.store.gate.set()
    assert at.store.read_of == ["shown"] * SAME_LOOKS
    assert found.count(False) == SAME_LOOKS
    assert not await at.let_in(nobodys)  # it is known now, and read no more
    assert len(at.store.read_of) == SAME_LOOKS


async def test_a_key_of_another_process_is_looked_for_although_others_are_heard_of() -> None:
    at = Watched()
    await at.ring.catch_up()
    at.ring.shared = True
    others = made(at.store.world, 2)  # nobody tells of it
    at.commit(lambda db: make(db, 3))
    assert await at.let_in(others)


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
