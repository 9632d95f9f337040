"""The keys of refresh tokens (auth/keys/refresh_token_keys.py): replaced while logins go on, accepted as long as needed, dropped at once."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auth import self_test
from auth.clients.client_registry import CLI_CLIENT_ID
from auth.grants import refresh_tokens
from auth.grants.refresh_tokens import ChainLink
from auth.grants.token_request import Issue
from auth.identity import Identity, found
from auth.keys import key_rotation
from auth.keys import refresh_token_keys as refresh_keys
from auth.keys import signing_keys as keys
from auth.keys.key_rotation import ForgetKey, PublishKey
from auth.keys.refresh_token_keys import RefreshKey, RefreshRing
from auth.keys.sealed_secrets import CannotUnseal
from auth.tokens.presented_credentials import present
from auth.values.identity_model import REFRESH_TOKEN, Principal
from auth.values.limits_and_lifetimes import TokenPolicy
from server.store.inline_store import InlineStore, open_inline_store
from tests.auth.identity_fakes import (
    DAY,
    MINUTE,
    POLICY,
    REFRESH,
    SECOND,
    SITE,
    Clock,
    World,
    error_of,
    logged_in,
    post,
    refresh_token,
    refreshed,
    seeds,
    subkey,
)

KEYS, TOKENS = POLICY.keys, POLICY.tokens
WINDOW = TOKENS.replay_window_ms
ACCEPTED = TOKENS.code_login_ms  # the longest that a login can last
LINK = ChainLink(grant_id="grt_" + "a" * 20, counter=7)


def rotate(world: World) -> None:
    """As when it is time, or by hand."""
    spare = key_rotation.prepare(subkey, world.draw, TOKENS, world.now)
    job = partial(key_rotation.publish_next, spare=spare, policy=KEYS, by="local:0", now=world.now)
    assert isinstance(world.db.run(job), key_rotation.KeyPublished)


def emergency(world: World, *, logins: bool) -> tuple[str, ...]:
    spare = key_rotation.prepare(subkey, world.draw, TOKENS, world.now)
    return world.db.run(
        partial(key_rotation.replace_all, spare=spare, by="local:0", now=world.now, logins=logins)
    )


def advance(world: World) -> tuple[key_rotation.Step, ...]:
    spare = key_rotation.prepare(subkey, world.draw, TOKENS, world.now)
    return world.db.run(partial(key_rotation.advance, spare=spare, policy=KEYS, tokens=TOKENS, now=world.now))


def newest(world: World) -> RefreshKey:
    return world.refresh_keys().newest()


def written(world: World, issue: Issue) -> str:
    """As the token endpoint writes it now."""
    return refresh_token(issue, key=newest(world))


# ---------------------------------------------------------------- a key is replaced


def test_with_each_new_signing_key_comes_a_new_refresh_key_and_logins_go_on(world: World) -> None:
    issue, versions = world.login(), list[int]()
    text = written(world, issue)
    signing_keys = len(keys.rows(world.db))
    for _ in range(400):
        world.now += 8 * 60 * MINUTE
        steps = advance(world)
        if any(isinstance(step, PublishKey) for step in steps):
            signing_keys += 1
        # Every time: no change of keys costs a login.
        issue = world.login() if world.now >= issue.ends_at else refreshed(world, text)
        text = written(world, issue)
        versions.append(newest(world).version)
    assert versions == sorted(versions)
    assert set(versions) == set(range(1, signing_keys + 1)) == {1, 2}
    assert world.db.audited("key.added")[-1] == ("ok", "rt2")
    assert text.startswith("rt2.")


def test_a_token_of_the_old_key_is_exchanged_for_one_of_the_new(world: World) -> None:
    old = written(world, world.login())
    rotate(world)
    new = written(world, refreshed(world, old))
    assert (old.split(".")[0], new.split(".")[0]) == ("rt1", "rt2")
    assert old.split(".")[1] == new.split(".")[1]
    third = refreshed(world, new)
    assert third.counter == 3
    assert world.db.audited("refresh.reuse") == []


def test_the_old_key_is_accepted_as_long_as_a_login_can_last_and_then_destroyed(world: World) -> None:
    issue = world.login()
    world.db.execute(
        "UPDATE grants SET expires_at = ?, idle_until = ?", world.now + 2 * ACCEPTED, world.now + 2 * ACCEPTED
    )
    text = written(world, issue)
    rotate(world)
    replaced_at = world.now
    world.now = replaced_at + ACCEPTED - 1
    assert refresh_tokens.parse(world.refresh_keys(), text, world.now) is not None
    world.now += 1
    # From the very moment on, though nobody has looked after the keys yet.
    assert refresh_tokens.parse(world.refresh_keys(), text, world.now) is None
    assert error_of(world.refresh(text)) == "invalid_grant"
    assert world.db.audited("refresh.refused") == [("refused", "not one of ours")]
    assert ForgetKey(kid="rt1") in advance(world)
    assert ("ok", "rt1") in world.db.audited("key.retired")
    first = refresh_keys.rows(world.db)[0]
    assert (first["version"], first["sealed_secret"], first["accepted_until"]) == (1, "", world.now)
    # With the clock back where it was still good, what is destroyed stays so.
    world.now = replaced_at
    assert refresh_tokens.parse(world.refresh_keys(), text, world.now) is None


@pytest.mark.parametrize(
    ("tokens", "days"),
    [
        (TokenPolicy(), 90),
        (TokenPolicy(code_login_ms=DAY, device_login_ms=DAY), 30),  # unused, a token lives for thirty days
        (TokenPolicy(code_login_ms=7 * DAY, device_login_ms=365 * DAY), 365),
    ],
)
def test_how_long_follows_from_how_long_a_login_lasts(tokens: TokenPolicy, days: int) -> None:
    assert refresh_keys.prepare(subkey, seeds(), tokens).accepts_ms == days * DAY


def test_the_key_that_writes_never_ends_by_the_clock(world: World) -> None:
    text = written(world, world.login())
    world.now += 4_000 * DAY
    assert refresh_tokens.parse(world.refresh_keys(), text, world.now) is not None
    assert error_of(world.refresh(text)) == "invalid_grant"
    assert world.db.audited("refresh.refused") == [("refused", "login is over")]


def test_the_window_of_a_replay_goes_on_over_a_change_of_keys(world: World) -> None:
    """The place in the chain decides, not which key says so: both texts of place 2 are the same token."""
    first = written(world, world.login())
    second = written(world, refreshed(world, first))
    rotate(world)
    world.now += WINDOW
    again = refreshed(world, first)
    assert again.counter == 2
    rewritten = written(world, again)
    assert (second[:4], rewritten[:4]) == ("rt1.", "rt2.")
    assert second.split(".")[1:3] == rewritten.split(".")[1:3]
    third = refreshed(world, second)
    assert refreshed(world, rewritten).counter == third.counter == 3
    assert world.db.audited("refresh.reuse") == []


@pytest.mark.parametrize("again_with_the_new_key", [False, True])
def test_reuse_ends_the_login_over_a_change_of_keys(world: World, again_with_the_new_key: bool) -> None:
    issue = world.login()
    first = written(world, issue)
    rotate(world)
    refreshed(world, first)
    world.now += WINDOW + 1
    assert (
        error_of(world.refresh(written(world, issue) if again_with_the_new_key else first)) == "invalid_grant"
    )
    assert world.db.one("grants")["revoked_reason"] == "refresh token used again"


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([0, 1, 30 * SECOND, WINDOW, WINDOW + 1]),
            st.integers(1, 9),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_whichever_accepted_key_a_token_is_of_the_chain_is_the_same(
    steps: list[tuple[int, int, int, bool]],
) -> None:
    """Against a model that knows of no keys: which token back from the newest, how much later, of which key."""
    world = World()
    place, rotated_at, alive = 1, world.now, True
    login = world.login()
    for back, later, version, changes in steps:
        world.now += later
        if changes:
            emergency(world, logins=False)
        ring, used = world.refresh_keys(), max(1, place - back)
        key = ring.get(str(version), world.now)
        outcome = world.refresh(refresh_token(login, used, key=key or ring.newest()))
        if alive and used == place:
            place, rotated_at = place + 1, world.now
            assert isinstance(outcome, Issue)
        elif alive and used == place - 1 and world.now - rotated_at <= WINDOW:
            assert isinstance(outcome, Issue)
        else:
            alive = False
            assert error_of(outcome) == "invalid_grant"
        assert world.db.one("grants")["counter"] == place
        assert (world.db.one("grants")["revoked_at"] is None) == alive
    world.close()


# ---------------------------------------------------------------- what is made up


@pytest.mark.parametrize(
    "version",
    [
        "0",
        "01",
        "1 ",
        "+1",
        "-1",
        "1.0",
        "",
        "x",
        "\u0661",
        "\uff11",
        "1\n",
        "2",
        "999999999",
        "9" * 10,
        "9" * 20,
        "9" * 4_000,
    ],
)
def test_a_version_that_there_is_not_is_none_of_ours(world: World, version: str) -> None:
    text = written(world, world.login())
    assert error_of(world.refresh(f"rt{version}{text[3:]}")) == "invalid_grant"
    assert world.db.audited("refresh.refused") == [("refused", "not one of ours")]
    assert isinstance(world.refresh(text), Issue)


def test_no_version_has_a_second_spelling_whoever_has_the_key() -> None:
    """The name is part of what is proven; but even so there is one text per key, place and login."""
    secret = REFRESH.newest().secret
    for name in ("rt0", "rt01", "rt1 ", "rt+1", "RT1", "rt\u0661"):
        version: Any = name.removeprefix("rt")
        text = refresh_tokens.write(RefreshKey(version=version, secret=secret), LINK)
        assert refresh_tokens.parse(REFRESH, text, 0) is None, name


def test_a_token_says_which_key_proves_it_and_no_other_does(world: World) -> None:
    issue = world.login()
    rotate(world)
    ring = world.refresh_keys()
    one, two = ring.get("1", world.now), ring.get("2", world.now)
    assert one is not None
    assert two is not None
    assert one.secret != two.secret
    of_one, of_two = refresh_token(issue, key=one), refresh_token(issue, key=two)
    mixed = [
        of_one.rpartition(".")[0] + "." + of_two.rpartition(".")[2],  # version 1, MAC of 2
        of_two.rpartition(".")[0] + "." + of_one.rpartition(".")[2],
        "rt2" + of_one[3:],  # version 2, whole proof of 1
        "rt1" + of_two[3:],
        refresh_token(issue, key=RefreshKey(version=2, secret=one.secret)),
        refresh_token(issue, key=RefreshKey(version=1, secret=two.secret)),
    ]
    for text in mixed:
        assert refresh_tokens.parse(ring, text, world.now) is None
        assert error_of(world.refresh(text)) == "invalid_grant"
    assert world.db.one("grants")["revoked_at"] is None
    assert refresh_tokens.parse(ring, of_one, world.now) == refresh_tokens.parse(ring, of_two, world.now)


def test_an_empty_ring_writes_nothing_and_reads_nothing() -> None:
    with pytest.raises(LookupError):
        RefreshRing(()).newest()
    assert refresh_tokens.parse(RefreshRing(()), refresh_tokens.write(REFRESH.newest(), LINK), 0) is None


# ---------------------------------------------------------------- an emergency


def test_an_emergency_leaves_logins_and_with_them_every_refresh_token_dies(world: World) -> None:
    text = written(world, world.login())
    (signing,) = [row["kid"] for row in keys.rows(world.db)]
    assert emergency(world, logins=False) == (signing,)
    text = written(world, refreshed(world, text))
    assert text.startswith("rt2.")
    dropped = emergency(world, logins=True)
    assert dropped[1:] == ("rt1", "rt2")
    assert [reason for _, reason in world.db.audited("key.dropped")] == [signing, *dropped]
    assert error_of(world.refresh(text)) == "invalid_grant"
    assert [bool(row["sealed_secret"]) for row in refresh_keys.rows(world.db)] == [False, False, True]
    assert newest(world).version == 3
    assert isinstance(world.refresh(written(world, world.login())), Issue)


def test_what_was_dropped_is_accepted_nowhere_also_with_the_clock_set_back(world: World) -> None:
    text = written(world, world.login())
    emergency(world, logins=True)
    world.now -= 10 * DAY
    assert refresh_tokens.parse(world.refresh_keys(), text, world.now) is None


# ---------------------------------------------------------------- in the store


def test_a_sealed_key_gives_nothing_away_and_opens_with_its_own_key_file_and_version_only() -> None:
    spare = refresh_keys.prepare(subkey, seeds(), TOKENS)
    assert len(spare.secret) == 32
    row: dict[str, Any] = {"version": 1, "sealed_secret": spare.sealed(1), "accepted_until": None}
    seal_key = subkey(refresh_keys.SEAL_PURPOSE)
    opened = refresh_keys.unseal(row, seal_key)
    assert opened.secret == spare.secret
    for shown in (repr(spare), repr(opened), repr(RefreshRing([opened])), row["sealed_secret"]):
        assert spare.secret.hex() not in shown
        assert repr(spare.secret)[2:-1] not in shown
    with pytest.raises(CannotUnseal, match="refresh key rt1 was sealed with another key file"):
        refresh_keys.unseal(row, b"x" * 32)
    with pytest.raises(CannotUnseal):  # nor put into another row
        refresh_keys.unseal({**row, "version": 2}, seal_key)
    assert spare.sealed(1) == row["sealed_secret"]  # a job may run twice


def test_no_secret_of_a_key_is_in_the_database(world: World) -> None:
    rotate(world)
    dump = "\n".join(world.db.database.dump())
    for version in ("1", "2"):
        key = world.refresh_keys().get(version, world.now)
        assert key is not None
        assert key.secret.hex() not in dump.lower()
    assert refresh_keys.SEAL_PURPOSE not in dump


# ---------------------------------------------------------------- the whole of identity


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[InlineStore, Clock]]:
    clock = Clock()
    async with open_inline_store(clock=clock) as store:
        yield store, clock


async def started(store: InlineStore, clock: Clock, start: int = 0, **other: Any) -> Identity:
    parts: dict[str, Any] = {"subkey": subkey, "site": SITE, "policy": POLICY} | other
    identity = await found(store, clock=clock, entropy=seeds(start), **parts)
    store.on_changes(identity.apply_changes)
    return identity


async def answered(identity: Identity, text: str) -> tuple[int, dict[str, Any]]:
    reply = await identity.handle(
        post("/token", client_id=CLI_CLIENT_ID, grant_type=REFRESH_TOKEN, refresh_token=text)
    )
    assert reply is not None
    return reply.status, json.loads(reply.body)


async def replace_keys(identity: Identity) -> None:
    spare = key_rotation.prepare(
        identity.parts.subkey, identity.parts.entropy, TOKENS, identity.parts.clock()
    )
    job = partial(key_rotation.replace_all, spare=spare, by="local:0", now=identity.parts.clock())
    await identity.parts.store.write(job)


async def test_a_new_start_keeps_the_keys_and_what_they_wrote() -> None:
    async with opened() as (store, clock):
        first = await started(store, clock)
        of_one = (await logged_in(first))["refresh_token"]
        await replace_keys(first)
        status, fresh = await answered(first, of_one)
        assert (status, fresh["refresh_token"][:4]) == (200, "rt2.")
        renamed = "rt1" + (await logged_in(first))["refresh_token"][3:]
        second = await started(store, clock, 5_000)
        assert repr(second.parts.keys.refresh) == repr(first.parts.keys.refresh) == "RefreshRing(rt1, rt2)"
        status, fresh = await answered(second, fresh["refresh_token"])
        assert (status, fresh["refresh_token"][:4]) == (200, "rt2.")
        assert (await answered(second, renamed))[0] == 400
        assert self_test.examine(second.parts) == ()


async def test_a_start_with_another_key_file_is_refused() -> None:
    async with opened() as (store, clock):
        await started(store, clock)

        def other(purpose: str) -> bytes:
            return b"z" * 32 if purpose == refresh_keys.SEAL_PURPOSE else subkey(purpose)

        with pytest.raises(CannotUnseal, match="refresh key rt1"):
            await started(store, clock, 5_000, subkey=other)


async def test_every_process_knows_a_new_key_with_its_first_token() -> None:
    async with opened() as (store, clock):
        first, second = await started(store, clock), await started(store, clock, 5_000)
        text = (await logged_in(first))["refresh_token"]
        for asked, other in ((first, second), (second, first), (first, second)):
            await replace_keys(asked)
            status, fresh = await answered(asked, text)
            assert status == 200
            status, fresh = await answered(other, fresh["refresh_token"])
            assert status == 200
            text = fresh["refresh_token"]
        assert text.startswith("rt4.")


async def test_a_refresh_reads_the_keys_from_the_store_only_after_they_changed() -> None:
    async with opened() as (store, clock):
        identity = await started(store, clock)
        text = (await logged_in(identity))["refresh_token"]
        reads = list[str]()
        read = store.read

        async def counted(job: Any) -> Any:
            reads.append(getattr(job, "__name__", ""))
            return await read(job)

        store.read = counted  # type: ignore[method-assign]
        for _ in range(5):
            status, fresh = await answered(identity, text)
            assert status == 200
            text = fresh["refresh_token"]
        # Somebody who makes versions up does not make the server look, either.
        assert (await answered(identity, "rt77" + text[3:]))[0] == 400
        assert reads.count("every") == 0
        await replace_keys(identity)
        assert (await answered(identity, text))[0] == 200
        assert reads.count("every") == 1


async def test_a_refresh_that_a_change_of_keys_overtakes_is_written_with_the_new_one() -> None:
    async with opened() as (store, clock):
        identity = await started(store, clock)
        text = (await logged_in(identity))["refresh_token"]
        write = store.write

        async def overtaken(job: Any) -> Any:
            outcome = await write(job)
            store.write = write  # type: ignore[method-assign]
            await replace_keys(identity)
            return outcome

        store.write = overtaken  # type: ignore[method-assign]
        status, fresh = await answered(identity, text)
        assert (status, fresh["refresh_token"][:4]) == (200, "rt2.")
        assert (await answered(identity, fresh["refresh_token"]))[0] == 200
        assert (await answered(identity, text))[0] == 400


async def test_revocation_and_access_go_by_the_old_key_as_by_the_new() -> None:
    async with opened() as (store, clock):
        identity = await started(store, clock)
        login = await logged_in(identity)
        await replace_keys(identity)
        where: dict[str, Any] = {"server": "agent", "origin": SITE.issuer}
        status, fresh = await answered(identity, login["refresh_token"])
        assert status == 200
        bearer = f"Bearer {fresh['access_token']}"
        assert isinstance(await identity.check(present(bearer, **where)), Principal)
        reply = await identity.handle(post("/revoke", client_id=CLI_CLIENT_ID, token=login["refresh_token"]))
        assert reply is not None
        assert reply.status == 200
        assert not isinstance(await identity.check(present(bearer, **where)), Principal)
        assert (await answered(identity, fresh["refresh_token"]))[0] == 400


async def test_logins_of_an_older_version_go_on_under_a_key_of_their_own() -> None:
    """It had no such keys: tokens were proven with a subkey of the key file."""
    async with opened() as (store, clock):
        old = await started(store, clock)
        text = (await logged_in(old))["refresh_token"]
        _, grant_id, counter, _ = text.split(".")
        await store.write(lambda db: db.execute("DELETE FROM refresh_keys"))
        derived = RefreshKey(version=1, secret=subkey("refresh-token-1"))
        older = refresh_tokens.write(derived, ChainLink(grant_id=grant_id, counter=int(counter)))
        new = await started(store, clock, 5_000)
        assert repr(new.parts.keys.refresh) == "RefreshRing(rt1, rt2)"
        assert new.parts.keys.refresh.newest().secret != derived.secret
        assert (await answered(new, text))[0] == 400
        status, fresh = await answered(new, older)
        assert (status, fresh["refresh_token"][:4]) == (200, "rt2.")
        await started(store, clock, 9_000)
        assert len(await store.read(refresh_keys.rows)) == 2


@pytest.mark.parametrize(
    "ended",
    [
        "UPDATE grants SET revoked_at = 1",
        "UPDATE meta SET value = 'epo_restored' WHERE key = 'refresh_epoch'",
    ],
)
async def test_where_no_login_of_an_older_version_lives_its_key_does_not_count(ended: str) -> None:
    async with opened() as (store, clock):
        await logged_in(await started(store, clock))
        await store.write(lambda db: [db.execute("DELETE FROM refresh_keys"), db.execute(ended)])
        assert repr((await started(store, clock, 5_000)).parts.keys.refresh) == "RefreshRing(rt1)"


async def test_after_a_restore_the_next_version_writes_and_none_of_before_is_read() -> None:
    async with opened() as (store, clock):
        text = (await logged_in(await started(store, clock)))["refresh_token"]
        # What `ostiary restore` does to a copy.
        sql = "UPDATE refresh_keys SET sealed_secret = '', accepted_until = ?"
        await store.write(lambda db: db.execute(sql, clock.now))
        identity = await started(store, clock, 5_000)
        assert repr(identity.parts.keys.refresh) == "RefreshRing(rt2)"
        assert (await answered(identity, text))[0] == 400


async def test_a_server_that_cannot_write_refresh_tokens_says_so_and_does_not_make_a_new_key() -> None:
    async with opened() as (store, clock):
        identity = await started(store, clock)
        await store.write(lambda db: db.execute("UPDATE refresh_keys SET sealed_secret = ''"))
        broken = await started(store, clock, 5_000)
        (trouble,) = self_test.examine(broken.parts)
        assert "no key" in trouble and "refresh tokens" in trouble
        assert self_test.examine(identity.parts) == ()
