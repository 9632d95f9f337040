"""When signing keys come and go (auth/keys/key_rotation.py): one signs, at most three are published, and no token outlives its key."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from auth.clients.client_registry import CLI_CLIENT_ID
from auth.identity import Identity, found
from auth.keys import key_rotation
from auth.keys import signing_keys as keys
from auth.keys.key_rotation import ForgetKey, KeyPublished, PublishKey, RetireKey, TooManyKeys, decide
from auth.keys.signing_keys import Keys, SigningKeys
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.identity_model import REFRESH_TOKEN, Principal
from auth.values.limits_and_lifetimes import KeyPolicy, TokenPolicy
from tests.auth.identity_fakes import (
    DAY,
    MINUTE,
    POLICY,
    SITE,
    START,
    Clock,
    World,
    get,
    header,
    logged_in,
    open_identity,
    post,
    seeds,
    subkey,
)
from tests.engine_under_test import open_at, place_of

KEYS = KeyPolicy()
TOKENS = TokenPolicy()
WHERE: dict[str, Any] = {"server": "agent", "origin": "http://127.0.0.1:8420"}


def row(
    kid: str, signs_from: int, retires_at: int | None = None, *, secret: str = "sealed"
) -> dict[str, Any]:
    return {"kid": kid, "signs_from": signs_from, "retires_at": retires_at, "sealed_private": secret}


NINETY, EVE = START + KEYS.signs_ms, START + KEYS.signs_ms - KEYS.published_before_ms
OVER = NINETY + TOKENS.access_ms + KEYS.margin_ms


@pytest.mark.parametrize(
    ("found", "now", "step"),
    [
        ([row("a", START)], START, None),
        ([row("a", START)], EVE - 1, None),
        ([row("a", START)], EVE, PublishKey(signs_from=NINETY)),
        ([row("a", START)], EVE + 400 * DAY, PublishKey(signs_from=NINETY + 400 * DAY)),  # was switched off
        ([row("a", START), row("b", NINETY)], EVE, None),
        ([row("a", START), row("b", NINETY)], NINETY - 1, None),
        ([row("a", START), row("b", NINETY)], NINETY, RetireKey(kid="a", retires_at=OVER)),
        ([row("a", START, OVER), row("b", NINETY)], NINETY, None),
        ([row("a", START, OVER), row("b", NINETY)], OVER - 1, None),
        ([row("a", START, OVER), row("b", NINETY)], OVER, ForgetKey(kid="a")),
        ([row("a", START, OVER, secret=""), row("b", NINETY)], OVER, None),
        # With the clock back where the key was still good, what is destroyed stays so.
        ([row("a", START, OVER, secret=""), row("b", NINETY)], NINETY, None),
        ([row("a", START)], START - 400 * DAY, None),
        # As many as may be: the next one waits until one is gone.
        ([row("a", START - 9, EVE + 9), row("b", START - 8, EVE + 9), row("c", START)], EVE, None),
        # A key of a future that a wrong clock made does not stop rotation.
        ([row("a", START), row("x", START + 9_000 * DAY)], EVE, PublishKey(signs_from=NINETY)),
        ([], START, None),
    ],
)  # fmt: skip
def test_what_is_due_follows_from_the_keys_and_the_time(
    found: list[dict[str, Any]], now: int, step: key_rotation.Step | None
) -> None:
    assert decide(found, KEYS, TOKENS, now) == step


def advance(world: World, spare: key_rotation.SpareKeys | None = None) -> tuple[key_rotation.Step, ...]:
    spare = spare or key_rotation.prepare(subkey, world.draw, TOKENS, world.now)
    return world.db.run(partial(key_rotation.advance, spare=spare, policy=KEYS, tokens=TOKENS, now=world.now))


def ring(world: World) -> SigningKeys:
    return Keys(keys.every(world.db), subkey=subkey).ring


def published(world: World) -> list[str]:
    return [key["kid"] for key in json.loads(ring(world).jwks(world.now))["keys"]]


def test_a_year_passes_and_the_key_changes_four_times_a_day_after_it_was_announced() -> None:
    world, signers, announced = World(), list[str](), list[str]()
    for _ in range(365 * 8):
        advance(world)
        signing = ring(world).signing(world.now).kid
        if not signers or signers[-1] != signing:
            if signers:
                assert signing in announced, "it signs and was not published a day ago"
            signers.append(signing)
        if world.now % DAY == START % DAY:
            announced = published(world)
        world.now += 3 * 60 * MINUTE
    assert len(signers) == len(set(signers)) == 5
    rows = keys.rows(world.db)
    assert [bool(each["sealed_private"]) for each in rows] == [False, False, False, False, True]
    events = [each["event"] for each in world.db.fetch_all("SELECT event FROM audit ORDER BY seq")]
    assert [events.count(f"key.{name}") for name in ("published", "replaced", "retired", "dropped")] == [
        4,
        4,
        4 + 3,  # of the refresh keys, too, but for the one that its logins still have
        0,
    ]
    world.close()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40 * 24 * 60), st.sampled_from(["chore", "chore", "by hand", "emergency"])),
        max_size=25,
    )
)
def test_whatever_happens_one_key_signs_three_are_published_at_most_and_no_token_outlives_its_key(
    moves: list[tuple[int, str]],
) -> None:
    world = World()
    tokens: list[tuple[str, int]] = []  # kid, and until when
    for minutes, move in moves:
        world.now += minutes * MINUTE
        spare = key_rotation.prepare(subkey, world.draw, TOKENS, world.now)
        if move == "chore":
            advance(world, spare)
        elif move == "by hand":
            world.db.run(
                partial(key_rotation.publish_next, spare=spare, policy=KEYS, by="local:0", now=world.now)
            )
        else:
            world.db.run(partial(key_rotation.replace_all, spare=spare, by="local:0", now=world.now))
            tokens.clear()
        now_ring, kids = ring(world), published(world)
        assert 1 <= len(kids) <= key_rotation.PUBLISHED
        assert now_ring.signing(world.now).kid in kids
        tokens = [(kid, until) for kid, until in tokens if until > world.now]
        assert all(kid in kids for kid, _ in tokens)
        tokens.append((now_ring.signing(world.now).kid, world.now + TOKENS.access_ms))
    world.close()


def test_two_processes_that_rotate_at_once_make_one_key() -> None:
    world = World()
    world.now = EVE
    spares = [
        key_rotation.prepare(subkey, world.draw, TOKENS, world.now) for _ in range(2)
    ]  # both have seen that it is time
    assert advance(world, spares[0]) == (PublishKey(signs_from=NINETY),)
    assert advance(world, spares[1]) == ()
    assert published(world)[1:] == [spares[0].signing.kid]
    world.close()


def test_by_hand_the_next_key_is_published_once_and_signs_after_the_usual_notice() -> None:
    world = World()
    first = ring(world).signing(world.now).kid

    def by_hand() -> KeyPublished | TooManyKeys:
        spare = key_rotation.prepare(subkey, world.draw, TOKENS, world.now)
        return world.db.run(
            partial(key_rotation.publish_next, spare=spare, policy=KEYS, by="local:0", now=world.now)
        )

    made = by_hand()
    assert isinstance(made, KeyPublished)
    assert (made.made, made.signs_from) == (True, START + DAY)
    assert by_hand() == replace(made, made=False)
    assert ring(world).signing(world.now).kid == first
    world.now += DAY
    assert ring(world).signing(world.now).kid == made.kid
    advance(world)
    third = by_hand()
    assert isinstance(third, KeyPublished)
    world.now += 30 * MINUTE  # the first is published still, the third already
    assert len(published(world)) == 3
    world.close()


def test_a_fourth_key_is_not_published_and_it_is_said_when_there_is_room() -> None:
    world = World()
    short = replace(KEYS, published_before_ms=MINUTE)
    for _ in range(2):
        spare = key_rotation.prepare(subkey, world.draw, TOKENS, world.now)
        world.db.run(
            partial(key_rotation.publish_next, spare=spare, policy=short, by="local:0", now=world.now)
        )
        world.now += MINUTE
        advance(world)
    spare = key_rotation.prepare(subkey, world.draw, TOKENS, world.now)
    refused = world.db.run(
        partial(key_rotation.publish_next, spare=spare, policy=short, by="local:0", now=world.now)
    )
    assert refused == TooManyKeys(until=START + MINUTE + TOKENS.access_ms + KEYS.margin_ms)
    assert len(published(world)) == 3
    world.close()


# ---------------------------------------------------------------- the whole of identity


async def rotate(identity: Identity) -> tuple[key_rotation.Step, ...]:
    return await key_rotation.keep(
        identity.parts.store,
        subkey=identity.parts.subkey,
        entropy=identity.parts.entropy,
        policy=identity.parts.policy.keys,
        tokens=identity.parts.policy.tokens,
        now=identity.parts.clock(),
    )


async def is_let_in(identity: Identity, token: str) -> bool:
    return isinstance(await identity.check(present(f"Bearer {token}", **WHERE)), Principal)


async def refreshed(identity: Identity, refresh_token: str) -> dict[str, Any]:
    reply = await identity.handle(
        post("/token", client_id=CLI_CLIENT_ID, grant_type=REFRESH_TOKEN, refresh_token=refresh_token)
    )
    assert reply is not None
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


async def test_an_emergency_ends_every_token_at_once_and_logins_go_on_by_refresh() -> None:
    async with open_identity() as identity:
        login = await logged_in(identity)
        assert await is_let_in(identity, login["access_token"])
        assert identity.check_nowait(present(f"Bearer {login['access_token']}", **WHERE)) is not None
        (old,) = [each["kid"] for each in await identity.parts.store.read(keys.rows)]
        spare = key_rotation.prepare(
            identity.parts.subkey, identity.parts.entropy, TOKENS, identity.parts.clock()
        )
        job = partial(key_rotation.replace_all, spare=spare, by="local:0", now=identity.parts.clock())
        assert await identity.parts.store.write(job) == (old,)
        answer = identity.check_nowait(present(f"Bearer {login['access_token']}", **WHERE))
        assert answer is None or isinstance(answer, BearerRefusal)
        assert not await is_let_in(identity, login["access_token"])
        reply = await identity.handle(get("/.well-known/jwks.json"))
        assert reply is not None
        assert [key["kid"] for key in json.loads(reply.body)["keys"]] == [spare.signing.kid]
        fresh = await refreshed(identity, login["refresh_token"])
        assert await is_let_in(identity, fresh["access_token"])
        rows = {each["kid"]: each["sealed_private"] for each in await identity.parts.store.read(keys.rows)}
        assert rows[old] == ""


async def test_a_refresh_that_an_emergency_overtakes_is_signed_by_the_new_key() -> None:
    async with open_identity() as identity:
        login = await logged_in(identity)
        spare = key_rotation.prepare(
            identity.parts.subkey, identity.parts.entropy, TOKENS, identity.parts.clock()
        )
        write = identity.parts.store.write

        async def overtaken(job: Any) -> Any:
            outcome = await write(job)
            await write(
                partial(key_rotation.replace_all, spare=spare, by="local:0", now=identity.parts.clock())
            )
            return outcome

        identity.parts.store.write = overtaken  # type: ignore[method-assign]
        fresh = await refreshed(identity, login["refresh_token"])
        identity.parts.store.write = write  # type: ignore[method-assign]
        assert await is_let_in(identity, fresh["access_token"])


async def test_the_document_shows_three_public_keys_at_most_and_its_etag_changes_with_them() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        tags, most = set[str](), 0
        for _ in range(200):
            await rotate(identity)
            reply = await identity.handle(get("/.well-known/jwks.json"))
            assert reply is not None
            shown = json.loads(reply.body)["keys"]
            most = max(most, len(shown))
            for key in shown:
                assert set(key) == {"kty", "crv", "x", "y", "kid", "alg", "use"}
            tags.add(header(reply, "etag") or "")
            clock.now += DAY
        assert most == 2
        assert len(tags) == 5  # one key, announced, and changed, twice over


async def test_tokens_signed_before_during_and_after_a_rotation_are_good_in_every_process(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with open_at(place_of(tmp_path / "ostiary.db"), clock=clock) as store:
        first, second = [
            await found(store, clock=clock, entropy=seeds(start), subkey=subkey, site=SITE, policy=POLICY)
            for start in (0, 10_000)
        ]
        for identity in (first, second):  # both processes tail `changes`
            store.on_changes(identity.apply_changes)
        login = await logged_in(first)
        tokens, refresh_token, signers = (
            [(login["access_token"], clock.now)],
            login["refresh_token"],
            set[str](),
        )
        clock.now = EVE - 2 * DAY
        refresh_token = (await logged_in(first))["refresh_token"]
        with trio.fail_after(60):
            for step in range(165):  # four days; each token lives for an hour
                clock.now += 36 * MINUTE
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(rotate, first)
                    nursery.start_soon(rotate, second)
                    fresh = await refreshed((first, second)[step % 2], refresh_token)
                refresh_token = fresh["refresh_token"]
                tokens.append((fresh["access_token"], clock.now))
                signers.add(first.parts.keys.ring.signing(clock.now).kid)
                for token, made in tokens[-2:]:
                    if clock.now - made < TOKENS.access_ms:
                        assert await is_let_in(first, token)
                        assert await is_let_in(second, token)
        assert len(signers) == 2
        assert len(await store.read(keys.rows)) == 2
