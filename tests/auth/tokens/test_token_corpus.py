"""Every token of the corpus at the door of a server that is otherwise right: 401, and a challenge that says how to do better.

The same corpus goes over the wire in tests/e2e/test_keys_and_audit.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from auth.clients.client_registry import CLI_CLIENT_ID
from auth.identity import Identity
from auth.keys import key_rotation
from auth.keys import signing_keys as keys
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.database import Db
from auth.values.identity_model import Principal
from tests.auth.identity_fakes import (
    MINUTE,
    ORIGIN,
    SECOND,
    START,
    Clock,
    logged_in,
    open_identity,
    post,
    subkey,
)
from tests.auth.token_corpus import P256_ORDER, Forge, corpus
from tests.sealing import by_hand

CHALLENGE = f'Bearer resource_metadata="{ORIGIN}/.well-known/oauth-protected-resource/mcp", scope="'


@asynccontextmanager
async def forging(clock: Clock | None = None) -> AsyncGenerator[tuple[Identity, Forge]]:
    """A login that is good, and somebody who has our signing key."""
    async with open_identity(clock=clock) as identity:
        good = (await logged_in(identity))["access_token"]
        yield identity, Forge(identity.parts.keys.ring.signing(identity.parts.clock()), good)


async def let_in(identity: Identity, token: str, server: str = "agent") -> Principal | BearerRefusal:
    where: dict[str, Any] = {"server": server, "origin": ORIGIN}
    answer = await identity.check(present(f"Bearer {token}", **where))
    again = identity.check_nowait(present(f"Bearer {token}", **where))
    assert again is None or type(again) is type(answer), "the second look says something else"
    return answer


async def test_nothing_of_the_corpus_opens_anything_and_each_is_told_how_to_do_better() -> None:
    async with forging() as (identity, forge):
        tokens = corpus(forge)
        assert len(tokens) > 170
        assert forge.good not in tokens.values()
        for name, token in tokens.items():
            answer = await let_in(identity, token)
            assert isinstance(answer, BearerRefusal), name
            assert (answer.status, answer.error) == (401, "invalid_token"), name
            assert answer.www_authenticate.startswith(CHALLENGE), name
            assert 'error="invalid_token"' in answer.www_authenticate
        assert isinstance(await let_in(identity, forge.good), Principal)  # and it did no harm


async def test_no_token_of_the_corpus_can_be_revoked_in_its_owners_name() -> None:
    async with forging() as (identity, forge):
        for name, token in corpus(forge).items():
            if name.split()[0] in ("aud", "sub", "exp", "scope", "client_id"):
                continue  # well signed, and about this very login: who can make these has our key
            reply = await identity.handle(post("/revoke", client_id=CLI_CLIENT_ID, token=token))
            assert reply is not None
            assert reply.status == 200 or json.loads(reply.body)["error"] in (
                "invalid_request",
                "invalid_grant",
            )
            assert isinstance(await let_in(identity, forge.good), Principal), name


async def test_what_the_header_points_to_is_never_looked_at_when_the_signature_is_ours() -> None:
    async with forging() as (identity, forge):
        for extra in (
            {"jku": "https://evil.example"},
            {"x5u": "https://evil.example"},
            {"jwk": {"kty": "oct"}},
        ):
            assert isinstance(await let_in(identity, forge.headed(**extra)), Principal)
        for typ in ("at+jwt", "application/at+jwt", "AT+JWT"):
            assert isinstance(await let_in(identity, forge.headed(typ=typ)), Principal)


async def test_the_second_form_that_a_signature_has_is_good_too_and_means_the_same() -> None:
    """(r, n - s) verifies wherever (r, s) does, and RFC 7518 allows both. Nothing here takes a token's bytes for its name:
    a login is ended by its id, so whoever turns the one form into the other gains nothing."""
    async with forging() as (identity, forge):
        s = int.from_bytes(forge.signature[32:], "big")
        other = forge.signed_with(forge.signature[:32] + (P256_ORDER - s).to_bytes(32, "big"))
        assert other != forge.good
        first, second = await let_in(identity, forge.good), await let_in(identity, other)
        assert first == second
        assert isinstance(first, Principal)

        def end(db: Db) -> None:
            by_hand("UPDATE grants SET revoked_at = 1")(db)
            db.changed("grant", first.grant_id or "")

        await identity.parts.store.write(end)
        assert isinstance(await let_in(identity, other), BearerRefusal)


@pytest.mark.parametrize(
    ("claim", "seconds", "good"),
    [
        ("exp", -29, True),
        ("exp", -30, False),
        ("iat", 60, True),
        ("iat", 61, False),
        ("nbf", 60, True),
        ("nbf", 61, False),
        ("nbf", -1, True),
    ],
)
async def test_clocks_may_differ_so_much_and_no_more(claim: str, seconds: int, good: bool) -> None:
    async with forging() as (identity, forge):
        token = forge.claiming(**{claim: START // SECOND + seconds})
        assert isinstance(await let_in(identity, token), Principal) == good


async def test_the_edges_of_the_length_that_is_read() -> None:
    async with forging() as (identity, forge):
        assert isinstance(await let_in(identity, forge.claiming(pad="x" * 5_000)), Principal)
        assert isinstance(await let_in(identity, forge.claiming(pad="x" * 6_000)), BearerRefusal)


async def test_a_key_that_is_retired_or_dropped_opens_nothing_whatever_it_signs() -> None:
    clock = Clock()
    async with forging(clock) as (identity, forge):
        spare = key_rotation.prepare(subkey, identity.parts.entropy, identity.parts.policy.tokens, clock.now)
        await identity.parts.store.write(
            partial(key_rotation.replace_all, spare=spare, by="local:0", now=clock.now)
        )
        assert isinstance(await let_in(identity, forge.good), BearerRefusal)
        assert isinstance(await let_in(identity, forge.claiming(iat=clock.now // SECOND)), BearerRefusal)


async def test_a_token_of_a_retired_key_is_refused_from_the_very_moment_on() -> None:
    clock = Clock()
    async with forging(clock) as (identity, forge):
        successor = key_rotation.prepare(
            subkey, identity.parts.entropy, identity.parts.policy.tokens, START
        ).signing

        def retire(db: Db) -> None:
            by_hand("UPDATE signing_keys SET retires_at = ?", START + MINUTE)(db)
            keys.insert(db, successor)

        await identity.parts.store.write(retire)
        clock.now = START + MINUTE - 1
        assert isinstance(await let_in(identity, forge.good), Principal)
        clock.now = START + MINUTE
        assert isinstance(await let_in(identity, forge.good), BearerRefusal)


async def test_a_token_opens_the_server_that_it_is_for_and_no_other_of_this_process() -> None:
    async with forging() as (identity, forge):
        assert isinstance(await let_in(identity, forge.good), Principal)
        answer = await let_in(identity, forge.good, server="other")
        assert isinstance(answer, BearerRefusal)
        # Nor with an audience of the other that our own key signed: the login is for one.
        crossing = forge.claiming(aud=f"{ORIGIN}/other/mcp")
        for server in ("agent", "other"):
            assert isinstance(await let_in(identity, crossing, server=server), BearerRefusal)
