"""People as jobs: inviting, ceilings, states, an end; each is known at once wherever a login is used (auth/administration/guest_accounts.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from auth.administration import guest_accounts as people
from auth.administration.guest_accounts import GuestTerms, GuestUnchanged, Invitation
from auth.authorization import device_authorization as device
from auth.clients.client_registry import CLI_CLIENT_ID
from auth.grants import login_records as grants
from auth.grants.token_request import Issue
from auth.identity import Identity
from auth.people import one_time_links, user_accounts
from auth.people.user_accounts import LinkIsOver, NameTaken, User
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.database import Db
from auth.values.identity_model import Principal
from tests.auth.identity_fakes import (
    DAY,
    MINUTE,
    ORIGIN,
    START,
    Clock,
    World,
    error_of,
    logged_in,
    open_identity,
    refresh_token,
    seeds,
)
from tests.sealing import by_hand

TOKEN = "t" * 32


def invite(world: World, name: str = "bob", *, token: str = TOKEN, **terms: Any) -> Invitation | NameTaken:
    seed = world.draw(32)
    return world.db.run(
        lambda db: people.invite(
            db,
            name=name,
            terms=GuestTerms(**terms),
            usual="mcp mcp:tools",
            token=token,
            lifetime=one_time_links.INVITED_FOR,
            seed=seed,
            by="local:0",
            now=world.now,
        )
    )


def accept(world: World, token: str = TOKEN) -> User | LinkIsOver:
    return world.db.run(
        lambda db: people.accept(db, token=token, passphrase_hash="phc", who=world.who(), now=world.now)
    )


def joined(world: World, name: str = "bob", **terms: Any) -> str:
    invited = invite(world, name, **terms)
    assert isinstance(invited, Invitation)
    assert isinstance(accept(world), User)
    return invited.user.id


def switch(world: World, verb: str, name: str = "bob") -> User | GuestUnchanged:
    return world.db.run(lambda db: people.switch(db, verb, name=name, by="local:0", now=world.now))


def remove(world: World, name: str = "bob") -> User | GuestUnchanged:
    return world.db.run(lambda db: people.remove(db, name=name, by="local:0", now=world.now))


def change(world: World, name: str = "bob", **terms: Any) -> User | GuestUnchanged:
    return world.db.run(
        lambda db: people.change(db, name=name, terms=GuestTerms(**terms), by="local:0", now=world.now)
    )


def login_of(world: World, user_id: str) -> Issue:
    codes = world.asked()
    approved = world.approve_id(world.id_of(codes), subject=user_id)
    assert isinstance(approved, device.DeviceApproved)
    issue = world.poll(codes)
    assert isinstance(issue, Issue)
    return issue


# ---------------------------------------------------------------- inviting


def test_an_invited_person_takes_the_account_with_the_link_and_has_what_was_given() -> None:
    world = World()
    invited = invite(world, scope="mcp:tools", tools="readonly", expires_at=START + DAY)
    assert isinstance(invited, Invitation)
    assert (invited.user.state, invited.user.role, invited.user.invited_by) == ("invited", "user", "local:0")
    taken = accept(world)
    assert isinstance(taken, User)
    assert (taken.state, taken.scope, taken.tools) == ("enabled", "mcp:tools", "readonly")
    assert taken.expires_at == START + DAY
    assert world.db.audited("user.joined") == [("ok", "")]
    assert ("user", invited.user.id) in world.db.changes


def test_an_invitation_works_once_and_only_its_hash_is_stored() -> None:
    world = World()
    invite(world)
    dump = "\n".join(world.db.database.dump())
    assert TOKEN not in dump
    assert isinstance(accept(world), User)
    assert isinstance(accept(world), LinkIsOver)
    assert world.db.audited("user.joined") == [("ok", ""), ("refused", "the link is over")]


def test_an_invitation_runs_out_and_a_newer_one_replaces_it_with_its_terms() -> None:
    world = World()
    invite(world, scope="mcp")
    world.now += one_time_links.INVITED_FOR
    assert isinstance(accept(world), LinkIsOver)
    again = invite(world, token="u" * 32, scope="mcp:tools")
    assert isinstance(again, Invitation)
    newest = invite(world, token="v" * 32)
    assert isinstance(newest, Invitation)
    assert newest.user.id == again.user.id
    assert isinstance(accept(world, "u" * 32), LinkIsOver)
    taken = accept(world, "v" * 32)
    assert isinstance(taken, User)
    assert taken.scope == "mcp:tools", "what is not said anew stays"


def test_a_link_of_another_kind_opens_nothing() -> None:
    world = World()
    joined(world)
    world.db.run(lambda db: people.reset(db, name="bob", token="r" * 32, by="local:0", now=world.now))
    assert isinstance(accept(world, "r" * 32), LinkIsOver)
    invite(world, "carol", token="c" * 32)
    assert isinstance(
        world.db.run(
            lambda db: people.take_new_passphrase(
                db, token="c" * 32, passphrase_hash="phc", who=world.who(), now=world.now
            )
        ),
        LinkIsOver,
    )
    assert isinstance(
        world.db.run(
            lambda db: user_accounts.claim(
                db, token="c" * 32, name="eve", passphrase_hash="phc", who=world.who(), now=world.now
            )
        ),
        LinkIsOver,
    )


def test_the_name_of_somebody_who_has_come_is_taken_whatever_became_of_them() -> None:
    world = World()
    assert invite(world, "owner") == NameTaken(state="unclaimed")
    joined(world)
    for verb, state in (("disable", "disabled"), ("lock", "locked")):
        switch(world, verb)
        assert invite(world, token="w" * 32) == NameTaken(state=state)
    remove(world)
    assert isinstance(invite(world, token="x" * 32), Invitation)


def test_an_account_whose_time_ran_out_before_its_person_came_is_not_taken() -> None:
    world = World()
    invite(world, expires_at=START + MINUTE)
    world.now += MINUTE
    assert isinstance(accept(world), LinkIsOver)
    assert [person.user.state for person in people.listing(world.db, world.now, "bob")] == ["invited"]


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"scope": "root"}, "scope: there is no “root”"),
        ({"scope": ""}, "scope: some of"),
        ({"tools": "a\nb"}, "tools: one line"),
        ({"tools": "x" * 1_001}, "tools: one line"),
        ({"expires_at": START}, "over already"),
    ],
)
def test_terms_that_cannot_be_are_named(terms: dict[str, Any], problem: str) -> None:
    (said,) = GuestTerms(**terms).check(World().site.scopes, START)
    assert problem in said


def test_terms_that_can_be_are_not() -> None:
    known = World().site.scopes
    assert GuestTerms().check(known, START) == []
    assert GuestTerms(scope="*", tools="", expires_at=0).check(known, START) == []
    assert (
        GuestTerms(scope="mcp financial", tools="readonly,-delete", expires_at=START + 1).check(known, START)
        == []
    )


# ---------------------------------------------------------------- states


def test_disabling_pauses_logins_and_enabling_lets_them_go_on() -> None:
    world = World()
    issue = login_of(world, joined(world))
    codes = world.asked()
    world.approve_id(world.id_of(codes), subject=people.listing(world.db, world.now, "bob")[0].user.id)
    assert isinstance(switch(world, "disable"), User)
    world.now += MINUTE
    assert error_of(world.poll(codes)) == "access_denied"
    assert error_of(world.refresh(refresh_token(issue))) == "invalid_grant"
    assert isinstance(world.approve_id(world.id_of(world.asked()), subject=issue.subject), device.NotPending)
    assert [login.paused for login in grants.sessions(world.db, world.now)] == ["the account is disabled"]
    assert isinstance(switch(world, "enable"), User)
    assert isinstance(world.refresh(refresh_token(issue)), Issue)
    assert world.db.changes.count(("user", issue.subject)) == 3, "joined, disabled, enabled"


def test_locking_revokes_everything_and_forgets_how_to_sign_in() -> None:
    world = World()
    user_id = joined(world)
    issue = login_of(world, user_id)
    world.db.execute(
        "INSERT INTO api_keys (id, name, user_id, key_hash, hint, scope, created_by, created_at)"
        " VALUES ('key_1', 'ci', ?, 'h', 'abcd', 'mcp', ?, 0)",
        user_id,
        user_id,
    )
    world.db.run(lambda db: people.reset(db, name="bob", token="r" * 32, by="local:0", now=world.now))
    assert isinstance(switch(world, "lock"), User)
    assert error_of(world.refresh(refresh_token(issue))) == "invalid_grant"
    assert world.db.one("api_keys")["revoked_at"] == world.now
    assert {("api_key", "key_1"), ("user", user_id), ("grant", issue.grant_id)} <= set(world.db.changes)
    user = user_accounts.named(world.db, "bob")
    assert user is not None
    assert (user.state, user.passphrase_hash) == ("locked", None)
    assert switch(world, "enable") == GuestUnchanged("not now", "locked")
    assert isinstance(switch(world, "unlock"), User)
    world.now += MINUTE
    assert error_of(world.refresh(refresh_token(issue))) == "invalid_grant", "what was revoked stays so"
    assert isinstance(
        world.db.run(
            lambda db: people.take_new_passphrase(
                db, token="r" * 32, passphrase_hash="new", who=world.who(), now=world.now
            )
        ),
        LinkIsOver,
    ), "a link from before the lock is over"


def test_removing_frees_the_name_ends_the_logins_and_keeps_the_audit_trail() -> None:
    world = World()
    user_id = joined(world)
    issue = login_of(world, user_id)
    codes = world.asked()
    world.approve_id(world.id_of(codes), subject=user_id)
    before = world.db.count("audit")
    assert isinstance(remove(world), User)
    assert world.db.count("audit") > before
    assert world.db.audited("user.removed") == [("ok", f"{user_id} bob")]
    assert user_accounts.named(world.db, "bob") is None
    assert error_of(world.refresh(refresh_token(issue))) == "invalid_grant"
    assert error_of(world.poll(codes)) == "access_denied"
    assert world.db.count("one_time_links") == world.db.count("browser_sessions") == 0
    assert ("user", user_id) in world.db.changes


def test_the_last_owner_can_be_neither_disabled_nor_locked_nor_removed_nor_given_an_end() -> None:
    world = World()
    world.db.execute("UPDATE users SET state = 'enabled'")
    for outcome in (
        switch(world, "disable", "owner"),
        switch(world, "lock", "owner"),
        remove(world, "owner"),
        change(world, "owner", expires_at=START + DAY),
    ):
        assert outcome == GuestUnchanged("last owner", "enabled")
    refused = [row["reason"] for row in world.db.fetch_all("SELECT * FROM audit WHERE outcome = 'refused'")]
    assert refused == [f"{world.owner} the last owner"] * 4
    world.db.execute(
        "INSERT INTO users (id, name, role, state, scope, created_at) VALUES ('usr_2', 'second', 'owner', 'enabled', '*', 0)"
    )
    assert isinstance(switch(world, "disable", "owner"), User)
    assert switch(world, "disable", "second") == GuestUnchanged("last owner", "enabled")


@pytest.mark.parametrize("verb", [*people.SWITCHES])
def test_nobody_is_nobody(verb: str) -> None:
    assert switch(World(), verb, "ghost") == GuestUnchanged("unknown")


@pytest.mark.parametrize(
    ("verb", "state"),
    [("disable", "invited"), ("lock", "invited"), ("enable", "invited"), ("unlock", "invited")],
)
def test_an_invitation_is_taken_back_by_removing_and_not_otherwise(verb: str, state: str) -> None:
    world = World()
    invite(world)
    assert switch(world, verb) == GuestUnchanged("not now", state)
    assert isinstance(remove(world), User)
    assert isinstance(accept(world), LinkIsOver)


# ---------------------------------------------------------------- ceilings and the end of an account


def test_a_ceiling_binds_the_next_login_and_the_next_refresh() -> None:
    world = World()
    user_id = joined(world, scope="mcp mcp:tools")
    issue = login_of(world, user_id)
    assert issue.scope == "mcp mcp:tools mcp:resources"
    assert isinstance(change(world, scope="mcp:tools", tools="readonly"), User)
    again = world.refresh(refresh_token(issue))
    assert isinstance(again, Issue)
    assert again.scope == "mcp:tools"
    assert login_of(world, user_id).scope == "mcp:tools"
    assert world.db.audited("user.changed") == [("ok", f"{user_id} scope tools")]


def test_from_the_very_millisecond_of_its_end_an_account_is_refused_everywhere() -> None:
    world = World()
    user_id = joined(world, expires_at=START + DAY)
    issue = login_of(world, user_id)
    codes, later = world.asked(), world.now
    world.approve_id(world.id_of(codes), subject=user_id)
    world.now = START + DAY - 1
    rotated = world.refresh(refresh_token(issue))
    assert isinstance(rotated, Issue)
    world.now = START + DAY
    assert error_of(world.refresh(refresh_token(rotated))) == "invalid_grant"
    assert [login.paused for login in grants.sessions(world.db, world.now)] == ["the account is over"]
    assert isinstance(world.approve_id(world.id_of(world.asked()), subject=user_id), device.NotPending)
    admitted = world.db.run(
        lambda db: user_accounts.admit(db, name="bob", key=bytes(32), who=world.who(), now=world.now)
    )
    assert isinstance(admitted, user_accounts.CountedGuess)
    assert admitted.user_id is None
    assert later < world.now
    assert isinstance(change(world, expires_at=0), User)
    assert isinstance(world.refresh(refresh_token(rotated)), Issue), "with more time it goes on"


def test_a_code_that_was_approved_before_the_account_ended_is_worth_nothing_after() -> None:
    world = World()
    user_id = joined(world, expires_at=START + MINUTE)
    codes = world.asked()
    world.approve_id(world.id_of(codes), subject=user_id)
    world.now = START + MINUTE
    assert error_of(world.poll(codes)) == "access_denied"


# ---------------------------------------------------------------- running calls


async def bob_in(identity: Identity) -> tuple[Principal, str]:
    """Bob with a login, and its access token."""
    draw, now = seeds(500), identity.parts.clock()
    seed = draw(32)

    def move(db: Db) -> str:
        people.invite(
            db,
            name="bob",
            terms=GuestTerms(scope="mcp mcp:tools"),
            usual="mcp",
            token=TOKEN,
            lifetime=DAY,
            seed=seed,
            by="local:0",
            now=now,
        )
        user = user_accounts.named(db, "bob")
        assert user is not None
        by_hand("UPDATE users SET state = 'enabled' WHERE id = ?", user.id)(db)
        return user.id

    bob = await identity.parts.store.write(move)
    answer = await logged_in(identity)
    await identity.parts.store.write(by_hand("UPDATE grants SET subject = ?", bob))
    (login,) = await identity.parts.store.read(partial(grants.sessions, now=now))
    token = str(answer["access_token"])
    principal = Principal(
        kind=login.grant.principal_kind,
        subject=bob,
        client_id=CLI_CLIENT_ID,
        grant_id=login.grant.id,
        scopes=frozenset({"mcp"}),
    )
    return principal, token


@pytest.mark.parametrize(
    "end",
    [
        partial(people.switch, verb="disable", name="bob"),
        partial(people.switch, verb="lock", name="bob"),
        partial(people.remove, name="bob"),
        partial(people.change, name="bob", terms=GuestTerms(expires_at=START + 1)),
    ],
    ids=["disable", "lock", "remove", "over"],
)
async def test_what_runs_is_asked_about_anew_as_soon_as_a_person_is_shut_out(end: Callable[..., Any]) -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        principal, _ = await bob_in(identity)
        live = await identity.live.load(principal.grant_id or "")
        assert live is not None and live.usable and live.ends_at > START + DAY
        seen = await identity.parts.store.read(lambda db: db.fetch_all("SELECT seq FROM changes"))
        await identity.parts.store.write(partial(end, by="local:0", now=START))
        told = await identity.parts.store.read(
            lambda db: db.fetch_all("SELECT kind, entity_id FROM changes WHERE seq > ?", seen[-1]["seq"])
        )
        assert {"kind": "user", "entity_id": principal.subject} in map(dict, told), "tasks listen for this"
        assert identity.live.get(principal.grant_id or "") is None, "forgotten with the commit"
        live = await identity.live.load(principal.grant_id or "")
        assert live is not None
        assert not live.usable or live.ends_at == START + 1


async def test_a_narrower_ceiling_is_what_a_running_call_may_have_now() -> None:
    async with open_identity() as identity:
        principal, _ = await bob_in(identity)
        await identity.parts.store.write(
            partial(
                people.change,
                name="bob",
                terms=GuestTerms(scope="mcp:tools", tools="readonly"),
                by="local:0",
                now=START,
            )
        )
        still = await identity.verifier.still(principal)
        assert still is not None
        assert (still.scopes, still.tools) == (frozenset({"mcp:tools"}), "readonly")


async def test_a_token_of_somebody_who_is_shut_out_is_refused_on_the_next_request() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        answer = await logged_in(identity)
        owner = await identity.parts.store.read(user_accounts.owner)
        assert owner is not None
        authorization = f"Bearer {answer['access_token']}"
        first = await identity.check(present(authorization, server="agent", origin=ORIGIN))
        assert isinstance(first, Principal)
        await identity.parts.store.write(
            by_hand("UPDATE users SET role = 'user', expires_at = ?", START + MINUTE)
        )
        await identity.parts.store.write(
            partial(
                people.change, name=owner.name, terms=GuestTerms(tools="readonly"), by="local:0", now=START
            )
        )
        clock.now = START + MINUTE - 1
        assert isinstance(
            await identity.check(present(authorization, server="agent", origin=ORIGIN)), Principal
        )
        clock.now = START + MINUTE
        assert isinstance(
            await identity.check(present(authorization, server="agent", origin=ORIGIN)), BearerRefusal
        )
