"""The key ring: sealed at rest, public in the JWKS, one key signing at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from auth.identity import found
from auth.jose import es256 as signatures
from auth.keys import signing_keys as keys
from auth.keys.sealed_secrets import CannotUnseal
from auth.keys.signing_keys import Keys, SealedKey, SigningKey, SigningKeys
from auth.people.user_accounts import owner_id
from auth.tokens.presented_credentials import present
from server.store.inline_store import open_inline_store
from tests.auth.identity_fakes import (
    DAY,
    POLICY,
    SITE,
    START,
    Clock,
    World,
    get,
    header,
    logged_in,
    open_identity,
    seeds,
    subkey,
)

SEAL = subkey(keys.SEAL_PURPOSE)


def sealed(signs_from: int = START, retires_at: int | None = None) -> SealedKey:
    made = keys.generate(SEAL, nonce=b"n" * 12, now=START, signs_from=signs_from)
    return replace(made, retires_at=retires_at)


def opened(key: SealedKey) -> SigningKey:
    return keys.unseal({name: getattr(key, name) for name in key.__slots__}, SEAL)


def test_a_sealed_key_gives_nothing_away_and_opens_with_its_own_key_only() -> None:
    key = sealed()
    private = signatures.private_jwk(opened(key).key)["d"]
    assert private not in key.sealed_private
    assert key.sealed_private not in repr(key)
    row = {name: getattr(key, name) for name in key.__slots__}
    with pytest.raises(CannotUnseal, match="another key file"):
        keys.unseal(row, b"x" * 32)
    with pytest.raises(CannotUnseal):  # nor under another name
        keys.unseal({**row, "kid": "other"}, SEAL)


def test_the_newest_key_whose_time_has_come_signs_and_all_unretired_are_published() -> None:
    old = opened(sealed(START - DAY, retires_at=START + 2 * DAY))
    now, coming = opened(sealed(START)), opened(sealed(START + DAY))
    ring = SigningKeys([coming, old, now])
    assert ring.signing(START - 1).kid == old.kid
    assert ring.signing(START).kid == now.kid
    assert ring.signing(START + DAY).kid == coming.kid

    def published(at: int) -> list[str]:
        return [key["kid"] for key in json.loads(ring.jwks(at))["keys"]]

    assert published(START) == [old.kid, now.kid, coming.kid]
    assert published(START + 2 * DAY) == [now.kid, coming.kid]
    assert ring.get(old.kid, START) is old
    assert ring.get(old.kid, START + 2 * DAY) is None
    assert ring.get("unknown", START) is None
    assert repr(ring) == f"SigningKeys({old.kid}, {now.kid}, {coming.kid})"


def test_with_a_clock_set_back_behind_every_key_the_first_one_still_signs() -> None:
    first, second = opened(sealed(START)), opened(sealed(START + DAY))
    ring = SigningKeys([second, first])
    assert ring.signing(START - DAY).kid == first.kid
    assert first.kid in ring.jwks(START - DAY).decode()


def test_an_empty_ring_signs_nothing() -> None:
    with pytest.raises(LookupError):
        SigningKeys(()).signing(START)


def test_the_document_has_public_members_only() -> None:
    (key,) = json.loads(SigningKeys([opened(sealed())]).jwks(START))["keys"]
    assert set(key) == {"kty", "crv", "x", "y", "kid", "alg", "use"}
    assert (key["kty"], key["crv"], key["alg"], key["use"]) == ("EC", "P-256", "ES256", "sig")


async def test_the_key_set_is_served_with_an_etag_and_may_be_cached_for_five_minutes() -> None:
    async with open_identity() as identity:
        reply = await identity.handle(get("/.well-known/jwks.json"))
        assert reply is not None
        assert header(reply, "cache-control") == "public, max-age=300"
        tag = header(reply, "etag")
        assert tag is not None
        again = await identity.handle(get("/.well-known/jwks.json", **{"if-none-match": f'"x", W/{tag}'}))
        assert again is not None
        assert (again.status, again.body) == (304, b"")


async def test_a_key_added_later_is_noticed_and_signs_when_its_time_comes() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        old = (await logged_in(identity))["access_token"]
        await identity.check(present(f"Bearer {old}", server="agent", origin="http://127.0.0.1:8420"))
        added = keys.generate(SEAL, nonce=b"m" * 12, now=clock.now, signs_from=clock.now + DAY)
        await identity.parts.store.write(lambda db: keys.insert(db, added))
        where: dict[str, Any] = {"server": "agent", "origin": "http://127.0.0.1:8420"}
        assert (
            identity.check_nowait(present(f"Bearer {old}", **where)) is None
        )  # the ring must be read again first
        await identity.check(present(f"Bearer {old}", **where))
        assert identity.check_nowait(present(f"Bearer {old}", **where)) is not None
        assert identity.parts.keys.ring.signing(clock.now).kid != added.kid
        clock.now += DAY
        assert identity.parts.keys.ring.signing(clock.now).kid == added.kid


async def test_a_second_start_keeps_owner_key_and_epoch_and_another_key_file_is_refused() -> None:
    clock = Clock()
    async with open_inline_store(clock=clock) as store:
        first = await found(store, clock=clock, entropy=seeds(), subkey=subkey, site=SITE, policy=POLICY)
        founded = await store.read(owner_id)
        second = await found(store, clock=clock, entropy=seeds(500), subkey=subkey, site=SITE, policy=POLICY)
        assert await store.read(owner_id) == founded
        assert second.parts.keys.ring.jwks(clock.now) == first.parts.keys.ring.jwks(clock.now)
        with pytest.raises(CannotUnseal):
            await found(
                store,
                clock=clock,
                entropy=seeds(),
                subkey=lambda purpose: b"z" * 32,
                site=SITE,
                policy=POLICY,
            )


async def test_an_overtaken_read_brings_no_old_ring_back() -> None:
    rows = [{name: getattr(key, name) for name in key.__slots__} for key in (sealed(), sealed(START + 1))]
    held, first_reads = Keys((rows[:1], ()), subkey=subkey), trio.Event()

    async def slow() -> keys.Found:
        await first_reads.wait()
        return rows[:1], ()

    async def quick() -> keys.Found:
        return rows, ()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            held.changed()
            nursery.start_soon(held.reload, slow)
            await trio.testing.wait_all_tasks_blocked()
            held.changed()
            assert held.stale
            await held.reload(quick)
            assert not held.stale
            first_reads.set()
    assert held.ring.signing(START + 1).kid == rows[1]["kid"]
    assert not held.stale


async def test_a_failed_read_of_the_keys_is_tried_again() -> None:
    async with open_identity() as identity:
        identity.parts.keys.changed()
        identity.parts.store.close()  # type: ignore[attr-defined]
        with pytest.raises(Exception, match="closed"):
            await identity.parts.reload_keys()
        assert identity.parts.keys.stale


def test_setup_writes_its_audit_rows() -> None:
    world = World()
    assert [len(world.db.audited(event)) for event in ("user.added", "client.added", "key.added")] == [
        1,
        1,
        2,
    ]
    world.close()
