"""The operator's side of clients: adding, listing, disabling (auth/clients/client_registry.py), and small values beside it."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auth.audit import audit_trail
from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientRegistration
from auth.throttling.request_throttle import Throttle
from auth.values import scopes
from auth.values.entropy import Entropy
from auth.values.requester import clean
from auth.values.scopes import Vocabulary
from server.lib.secret import Secret
from tests.auth.identity_fakes import MINUTE, START, World


def test_a_secret_is_shown_once_and_kept_as_a_hash(world: World) -> None:
    added = world.add_client(auth_method="client_secret_basic", scope="mcp:tools")
    assert added.secret is not None
    secret = added.secret.reveal()
    assert len(secret) == 43
    assert added.client.secret_hash == clients.secret_hash(secret)
    assert secret not in "\n".join(world.db.database.dump())
    assert secret not in repr(added)
    assert clients.secret_hash(secret) not in repr(added)
    assert (added.client.kind, added.client.scope, added.client.public) == ("registered", "mcp:tools", False)
    assert added.client.id.startswith("cli_")


def test_a_public_client_has_no_secret(world: World) -> None:
    added = world.add_client(client_id="mcp-remote", redirect_uris=("http://127.0.0.1/cb",))
    assert (added.secret, added.client.public, added.client.id) == (None, True, "mcp-remote")
    assert [client.id for client in clients.listing(world.db)] == ["mcp-remote", "ostiary-cli"]


def test_an_id_is_given_out_once(world: World) -> None:
    registration = ClientRegistration(name="Copy", client_id="ostiary-cli", auth_method="client_secret_post")
    taken = world.db.run(
        lambda db: clients.add(db, registration, seed=b"x" * 32, by="local:0", now=world.now)
    )
    assert taken is None
    assert world.client().public
    assert world.db.audited("client.added")[-1] == ("refused", "id is taken")


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "a\u202eb"}, "name"),
        ({"client_id": "https://x.example/c"}, "client_id"),
        ({"client_id": ""}, "client_id"),
        ({"client_id": "a b"}, "client_id"),
        ({"client_id": "x" * 129}, "client_id"),
        ({"auth_method": "client_secret_jwt"}, "auth_method"),
        ({"grant_types": ()}, "grant_types"),
        ({"grant_types": ("password",)}, "grant_types"),
        ({"redirect_uris": ("http://a b",)}, "redirect_uris"),
        ({"scope": "admin"}, "scope"),
        ({"scope": "offline_access"}, "scope"),
    ],
)
def test_a_registration_is_checked_in_words(fields: dict[str, Any], word: str) -> None:
    stated: dict[str, Any] = {"name": "Fine", **fields}
    registration = ClientRegistration(**stated)
    (problem,) = registration.check(Vocabulary())
    assert problem.startswith(word + ":")


def test_disabling_and_enabling_are_told_to_every_process(world: World) -> None:
    def disable() -> bool:
        return world.db.run(lambda db: clients.disable(db, "ostiary-cli", by="local:0", now=world.now))

    def enable() -> bool:
        return world.db.run(lambda db: clients.enable(db, "ostiary-cli", by="local:0", now=world.now))

    assert [disable(), disable(), enable(), enable()] == [True, False, True, False]
    assert world.db.changes[-2:] == [("client", "ostiary-cli")] * 2
    assert world.db.audited("client.disabled") == [("ok", ""), ("refused", "not enabled")]
    assert world.db.audited("client.enabled") == [("ok", ""), ("refused", "not disabled")]


def test_use_is_noted_once_an_hour(world: World) -> None:
    clients.note_use(world.db, world.client(), START)
    clients.note_use(world.db, world.client(), START + 59 * MINUTE)
    assert world.client().last_used_at == START
    clients.note_use(world.db, world.client(), START + 61 * MINUTE)
    assert world.client().last_used_at == START + 61 * MINUTE


# ---------------------------------------------------------------- small values


@pytest.mark.parametrize(
    ("by", "actor"),
    [
        ("usr_1", "user:usr_1"),
        ("local:0", "local:0"),
        ("user:usr_1", "user:usr_1"),
        ("anonymous", "anonymous"),
    ],
)
def test_the_audit_trail_names_an_actor_with_its_kind(by: str, actor: str) -> None:
    assert audit_trail.actor(by) == actor


def test_the_same_seed_gives_the_same_draws_and_letters_are_even() -> None:
    first, second = Entropy(b"s" * 32), Entropy(b"s" * 32)
    assert [first.token(), first.identifier("x"), first.take(100)] == [
        second.token(),
        second.identifier("x"),
        second.take(100),
    ]
    drawn = Entropy(b"t" * 32).letters("BCDFGHJKLMNPQRSTVWXZ", 20_000)
    counts = [drawn.count(letter) for letter in "BCDFGHJKLMNPQRSTVWXZ"]
    assert sum(counts) == 20_000
    assert 850 < min(counts) <= max(counts) < 1_150
    with pytest.raises(ValueError, match="32 bytes"):
        Entropy(b"short")


@settings(deadline=None)
@given(text=st.text())
def test_claimed_text_comes_out_as_one_plain_line(text: str) -> None:
    cleaned = clean(text, 10)
    assert len(cleaned) <= 10
    assert cleaned == cleaned.strip()
    assert all(unicodedata.category(char)[0] not in "C" for char in cleaned)
    assert "\n" not in cleaned
    cleaned.encode()


@pytest.mark.parametrize(
    ("wanted", "ceiling", "left"),
    [
        ("mcp", "mcp", "mcp"),
        ("mcp:tools", "mcp", "mcp:tools"),
        ("mcp", "mcp:tools", "mcp:tools"),
        ("mcp mcp:tools", "mcp:tools", "mcp:tools"),
        ("mcpx", "mcp", ""),
        ("offline_access", "mcp", ""),
        ("mcp mcp", "mcp offline_access", "mcp"),
        ("", "mcp", ""),
        ("mcp", "", ""),
    ],
)
def test_scopes_are_narrowed_to_a_ceiling(wanted: str, ceiling: str, left: str) -> None:
    assert scopes.narrow(wanted, ceiling) == left


def test_a_wide_scope_covers_a_narrow_one_and_not_the_other_way_round() -> None:
    assert scopes.missing(frozenset({"mcp"}), ("mcp:tools", "mcp")) == ()
    assert scopes.missing(frozenset({"mcp:tools"}), ("mcp:tools", "mcp")) == ("mcp",)


def test_secrets_compare_and_do_not_print() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert f"{Secret('abc')} {Secret('abc')!r}" == "*** ***"


def test_a_throttle_counts_per_key_and_forgets_the_oldest_key_first() -> None:
    throttle = Throttle(keys=2)
    assert [throttle.wait_seconds("a", 2, START) for _ in range(3)] == [0, 0, 60]
    assert throttle.wait_seconds("a", 2, START + 59_001) == 1
    assert throttle.wait_seconds("a", 2, START + 60_000) == 0
    throttle.wait_seconds("b", 1, START)
    throttle.wait_seconds("c", 1, START)
    assert throttle.wait_seconds("b", 1, START) > 0
    assert throttle.wait_seconds("a", 2, START + 60_000) == 0
    # A clock set back must not lock anybody out for longer than a minute.
    throttle.wait_seconds("d", 1, START + 10 * MINUTE)
    assert throttle.wait_seconds("d", 1, START) == 0
