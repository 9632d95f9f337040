"""The refresh chain: rotation, the replay window, reuse, and what ends it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from auth.grant_types.refresh_token_grant import Contended
from auth.grants import refresh_tokens
from auth.grants.login_records import revoke, sessions
from auth.grants.refresh_tokens import ChainLink
from auth.grants.token_request import Issue
from auth.keys.refresh_token_keys import RefreshKey, RefreshRing
from auth.values.issuer_and_resources import Site
from tests.auth.identity_fakes import (
    DAY,
    ORIGIN,
    REFRESH,
    SECOND,
    SITE,
    START,
    World,
    error_of,
    refresh_token,
    refreshed,
)

WINDOW = 60 * SECOND


def test_a_token_names_its_grant_its_place_and_proves_both(world: World) -> None:
    text = refresh_token(world.login())
    version, grant_id, counter, mac = text.split(".")
    assert (version, grant_id, counter) == ("rt1", world.db.one("grants")["id"], "1")
    assert len(mac) == 43
    assert refresh_tokens.parse(REFRESH, text, START) == ChainLink(grant_id=grant_id, counter=1)


@settings(deadline=None)
@given(
    text=st.text(max_size=120)
    | st.from_regex(r"rt[0-9]{1,20}\.grt_[a-z2-7]{20}\.[0-9]{1,20}\.[A-Za-z0-9_-]{43}")
)
def test_nothing_but_our_own_tokens_is_read(text: str) -> None:
    assert refresh_tokens.parse(REFRESH, text, START) is None


def test_no_part_of_a_token_can_be_changed(world: World) -> None:
    text = refresh_token(world.login())
    for place in range(len(text)):
        other = "x" if text[place] != "x" else "y"
        assert refresh_tokens.parse(REFRESH, text[:place] + other + text[place + 1 :], START) is None
    assert refresh_tokens.parse(RefreshRing([RefreshKey(version=1, secret=b"k" * 32)]), text, START) is None
    assert refresh_tokens.parse(REFRESH, text + "\n", START) is None


def test_a_refresh_gives_the_successor_and_moves_the_idle_end(world: World) -> None:
    first = world.login()
    world.now += DAY
    second = refreshed(world, refresh_token(first))
    grant = world.db.one("grants")
    assert (second.counter, grant["counter"], grant["rotated_at"]) == (2, 2, world.now)
    assert grant["idle_until"] == grant["expires_at"] == first.ends_at
    assert (second.ends_at, second.auth_time) == (first.ends_at, first.auth_time)
    assert world.db.audited("refresh.rotated") == [("ok", "")]


def test_the_same_token_within_a_minute_gives_the_same_successor(world: World) -> None:
    first = world.login()
    second = refreshed(world, refresh_token(first))
    rotated_at = world.now
    world.now += WINDOW
    again = refreshed(world, refresh_token(first))
    assert refresh_token(again) == refresh_token(second)
    assert again.issued_at == world.now
    # The window does not move with its use, or it would never end.
    assert world.db.one("grants")["rotated_at"] == rotated_at
    world.now += 1
    assert error_of(world.refresh(refresh_token(first))) == "invalid_grant"
    assert world.db.one("grants")["revoked_reason"] == "refresh token used again"


def test_an_older_token_ends_the_login_even_at_once(world: World) -> None:
    first = world.login()
    third = refreshed(world, refresh_token(refreshed(world, refresh_token(first))))
    assert error_of(world.refresh(refresh_token(first))) == "invalid_grant"
    assert world.db.audited("refresh.reuse") == [("refused", "used before")]
    assert world.db.changes[-1] == ("grant", first.grant_id)
    assert error_of(world.refresh(refresh_token(third))) == "invalid_grant"


def test_a_thief_and_a_victim_cannot_leapfrog(world: World) -> None:
    """Both hold token 1. Whoever comes second after the window ends the login for both."""
    stolen = refresh_token(world.login())
    thief = refreshed(world, stolen)
    world.now += WINDOW + 1
    assert error_of(world.refresh(stolen)) == "invalid_grant"
    assert error_of(world.refresh(refresh_token(thief))) == "invalid_grant"


def test_a_counter_from_the_future_is_refused_but_ends_nothing(world: World) -> None:
    first = world.login()
    assert error_of(world.refresh(refresh_token(first, 7))) == "invalid_grant"
    assert world.db.audited("refresh.future") == [("refused", "counter from the future")]
    assert isinstance(world.refresh(refresh_token(first)), Issue)


def test_a_restored_store_continues_no_chain(world: World) -> None:
    first = world.login()
    world.db.execute("UPDATE meta SET value = 'another' WHERE key = 'refresh_epoch'")
    assert error_of(world.refresh(refresh_token(first))) == "invalid_grant"
    assert world.db.audited("refresh.refused") == [("refused", "grant of an earlier epoch")]
    assert world.db.one("grants")["revoked_at"] is None


def test_thirty_days_after_the_login_a_person_must_approve_again(world: World) -> None:
    issue = world.login()
    for _ in range(29):
        world.now += DAY
        issue = refreshed(world, refresh_token(issue))
    world.now += DAY - 1
    issue = refreshed(world, refresh_token(issue))
    world.now += 1
    assert error_of(world.refresh(refresh_token(issue))) == "invalid_grant"
    assert world.db.audited("refresh.refused") == [("refused", "login is over")]


def test_an_unused_login_ends_before_its_absolute_end() -> None:
    world = World()
    world.policy = replace(world.policy, tokens=replace(world.policy.tokens, refresh_idle_ms=DAY))
    issue = world.login()
    world.now += DAY - 1
    issue = refreshed(world, refresh_token(issue))
    world.now += DAY
    assert error_of(world.refresh(refresh_token(issue))) == "invalid_grant"
    world.close()


def test_scope_narrows_for_one_token_and_the_login_keeps_its_own(world: World) -> None:
    narrow = world.refresh(refresh_token(world.login()), scope="mcp:tools offline_access")
    assert isinstance(narrow, Issue)
    assert narrow.scope == "mcp:tools"
    assert refreshed(world, refresh_token(narrow)).scope == "mcp mcp:tools mcp:resources"


def test_more_scope_than_granted_is_refused_before_anything_is_used_up(world: World) -> None:
    codes = world.asked(scope="mcp:tools")
    world.approve(codes)
    issue = world.poll(codes)
    assert isinstance(issue, Issue)
    assert error_of(world.refresh(refresh_token(issue), scope="mcp")) == "invalid_scope"
    assert refreshed(world, refresh_token(issue)).counter == 2


def test_a_foreign_resource_is_refused_before_anything_is_used_up(world: World) -> None:
    issue = world.login()
    for resource in ("https://evil.example/mcp", ORIGIN + "/other/mcp", "nonsense", "http://[::1"):
        assert error_of(world.refresh(refresh_token(issue), resources=(resource,))) == "invalid_target"
    assert world.db.one("grants")["counter"] == 1
    assert world.refresh(
        refresh_token(issue), resources=(ORIGIN.upper().replace("HTTP", "http") + "/mcp/?x=1#y",)
    )


def test_a_login_goes_on_under_another_loopback_name(world: World) -> None:
    issue = world.login()
    moved = world.refresh(
        refresh_token(issue), resources=("http://localhost:9000/mcp",), origin="http://localhost:9000"
    )
    assert isinstance(moved, Issue)
    back = world.refresh(refresh_token(moved), resources=(ORIGIN + "/mcp",), origin="http://localhost:9000")
    assert isinstance(back, Issue)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("UPDATE users SET state = 'disabled'", "user not enabled"),
        ("UPDATE users SET scope = ''", "no scope left"),
        ("UPDATE grants SET revoked_at = 1", "grant is revoked"),
    ],
)
def test_a_login_that_lost_its_ground_is_not_refreshed(world: World, sql: str, reason: str) -> None:
    issue = world.login()
    world.db.execute(sql)
    assert error_of(world.refresh(refresh_token(issue))) == "invalid_grant"
    assert world.db.audited("refresh.refused") == [("refused", reason)]


def test_a_server_gone_from_the_configuration_ends_its_refreshes(world: World) -> None:
    issue = world.login(resources=(ORIGIN + "/other/mcp",))
    world.site = Site(issuer=SITE.issuer, loopback=True, servers={"agent": "/mcp"})
    assert error_of(world.refresh(refresh_token(issue))) == "invalid_grant"


def test_another_clients_token_is_worth_nothing_and_harms_nothing(world: World) -> None:
    issue = world.login()
    other = world.add_client().client
    assert error_of(world.refresh(refresh_token(issue), client=other)) == "invalid_grant"
    assert error_of(world.refresh("rt1.forged")) == "invalid_grant"
    assert (
        error_of(world.refresh(refresh_token(replace(issue, grant_id="grt_" + "a" * 20)))) == "invalid_grant"
    )
    assert isinstance(world.refresh(refresh_token(issue)), Issue)


def test_a_rotation_that_lost_a_race_becomes_a_replay(world: World) -> None:
    """With parallel writers another transaction may rotate between our look and our update."""
    issue = world.login()
    real = world.db.execute
    raced: list[str] = []

    def race(sql: str, *params: object) -> int:
        if sql.startswith("UPDATE grants SET counter") and len(raced) % 2 == 0:
            raced.append("lost")
            real("UPDATE grants SET counter = 2, rotated_at = ? WHERE id = ?", world.now, issue.grant_id)
            return 0
        raced.append("won")
        return real(sql, *params)

    world.db.execute = race  # type: ignore[method-assign]
    again = world.refresh(refresh_token(issue))
    assert isinstance(again, Issue)
    assert again.counter == 2
    assert raced[0] == "lost"


def test_a_rotation_that_keeps_losing_gives_up_and_writes_nothing(world: World) -> None:
    issue = world.login()
    real = world.db.execute
    world.db.execute = lambda sql, *params: (  # type: ignore[method-assign]
        0 if sql.startswith("UPDATE grants SET counter") else real(sql, *params)
    )
    with pytest.raises(Contended):
        world.refresh(refresh_token(issue))


def test_logins_are_listed_and_ended_one_by_one(world: World) -> None:
    first, second = world.login(client_name="one"), world.login(client_name="two")
    listed = world.db.run(lambda db: sessions(db, world.now))
    assert {login.grant.client_name for login in listed} == {"one", "two"}
    assert {(login.user_name, login.registered_name, login.usable) for login in listed} == {
        ("owner", "Ostiary in a terminal", True)
    }
    end = lambda: world.db.run(  # noqa: E731
        lambda db: revoke(db, first.grant_id, reason="lost laptop", by="local:0", now=world.now)
    )
    assert (end(), end()) == (True, False)
    assert [login.grant.id for login in world.db.run(lambda db: sessions(db, world.now))] == [second.grant_id]
    assert world.db.audited("grant.revoked") == [("ok", "lost laptop")]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 30 * SECOND, WINDOW, WINDOW + 1])), max_size=12
    )
)
def test_a_chain_never_branches_and_old_tokens_never_work(steps: list[tuple[int, int]]) -> None:
    """Against a model: which token back from the newest is used, and how much later."""
    world = World()
    newest, rotated_at, alive = 1, world.now, True
    first = world.login()
    for back, later in steps:
        world.now += later
        used = max(1, newest - back)
        outcome = world.refresh(refresh_token(first, used))
        if alive and used == newest:
            newest, rotated_at = newest + 1, world.now
            assert isinstance(outcome, Issue)
            assert outcome.counter == newest
        elif alive and used == newest - 1 and world.now - rotated_at <= WINDOW:
            assert isinstance(outcome, Issue)
            assert outcome.counter == newest
        else:
            alive = False
            assert error_of(outcome) == "invalid_grant"
        assert world.db.one("grants")["counter"] == newest
        assert (world.db.one("grants")["revoked_at"] is None) == alive
    world.close()
