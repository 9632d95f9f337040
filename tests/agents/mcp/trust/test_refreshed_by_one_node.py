"""A login at an upstream that several nodes have: its refresh token is good for one use, and whoever shows it a second time ends the login."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from server.agents.mcp.trust import login_rows
from server.agents.mcp.trust.login_rows import LoginVault
from server.agents.mcp.trust.owner_login import TURN_SECONDS, OwnerLogin
from server.cluster.postgres.postgres import open_postgres_store
from server.mcp.call_failures import BackendError
from server.store import keyfile, node_rows
from server.store.node_rows import MemberNode
from server.store.threaded_store import ThreadedStore
from server.store.write_retry import AGAIN_SECONDS, WriteRetry
from tests.agents.mcp.trust.test_owner_login import HOUR, login
from tests.agents.mcp.trust.trust_fakes import (
    FILES,
    Away,
    EventLog,
    FakeAuthorizationServer,
    open_house,
    tokens,
)
from tests.auth.identity_fakes import START, subkey

TURN_MILLIS = 600_000

PATIENCE = 60
MINUTE = 60_000


class OnceOnly:
    """An authorization server that gives a new refresh token for each, and revokes all of them where one is shown again (RFC 9700 §4.14.2)."""

    def __init__(self) -> None:
        self.newest = 1
        self.revoked = False
        self.shown: list[str] = []

    def __call__(self, form: Mapping[str, str]) -> Mapping[str, Any]:
        self.shown.append(form["refresh_token"])
        if self.revoked or form["refresh_token"] != f"refresh-{self.newest}":
            self.revoked = True
            return {"error": "invalid_grant"}
        self.newest += 1
        return tokens(f"access-{self.newest}", refresh=f"refresh-{self.newest}", lives=3600)


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


def member(name: str) -> MemberNode:
    return MemberNode(boot_id=name, name=name, home=name, address="", version="1", started_at=1)


class Branch:
    """One node: a store of its own, and what it remembers."""

    def __init__(self, store: Any, name: str, server: FakeAuthorizationServer, clock: Hand) -> None:
        self.store = store
        self.log = EventLog()
        self.vault = LoginVault(subkey, os.urandom)
        self.owed = WriteRetry(store, self.log, "upstream.login_not_kept")
        self.login = OwnerLogin(
            FILES,
            store,
            self.vault,
            server,  # type: ignore[arg-type]
            owed=self.owed,
            clock=clock,
            log=self.log,
            node=name,
        )


@asynccontextmanager
async def two(
    database: Mapping[str, str], server: FakeAuthorizationServer, clock: Hand
) -> AsyncGenerator[tuple[Branch, Branch]]:
    def wall() -> int:
        return time.time_ns() // 1_000_000

    async with (
        open_postgres_store(database, clock=wall) as one,
        open_postgres_store(database, clock=wall) as other,
    ):
        for name, store in (("one", one), ("other", other)):
            store.chain_audit(b"of the trail")
            store.chain_ledger(b"of the ledger")
            await store.write(partial(keyfile.bind_key, fingerprint="of the key"))
            await store.write(partial(node_rows.enter, node=member(name)))
        found = (Branch(one, "one", server, clock), Branch(other, "other", server, clock))
        await log_in(found[0])
        for each in found:
            assert await each.login.headers(None) == {"Authorization": "Bearer access-1"}
        yield found


async def log_in(branch: Branch, login_id: str = "ul_1") -> None:
    sealed = branch.vault.seal(FILES, "", login())
    await branch.store.write(
        partial(
            login_rows.put,
            upstream=FILES,
            person="",
            sealed=sealed,
            login_id=login_id,
            by="local:7",
            now=START,
        )
    )


@pytest.fixture
def in_vain(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who was refused a turn."""
    found: list[str] = []
    take = login_rows.take_turn

    def watched(db: Any, upstream: Any, person: str, *, node: str, **other: Any) -> bool:
        taken = take(db, upstream, person, node=node, **other)
        if not taken:
            found.append(node)
        return taken

    monkeypatch.setattr(login_rows, "take_turn", watched)
    return found


async def until(there: Callable[[], bool]) -> None:
    while not there():  # what is waited for happens in threads of the stores
        await trio.sleep(0.01)


async def turns(store: ThreadedStore) -> list[tuple[str | None, int]]:
    rows = await store.read(
        lambda db: db.fetch_all("SELECT refresher, refreshing_until FROM upstream_tokens")
    )
    return [(row["refresher"], row["refreshing_until"]) for row in rows]


async def test_of_two_nodes_that_need_it_in_the_same_moment_one_spends_the_token_and_the_other_takes_the_new_one(
    postgres_database: dict[str, str], in_vain: list[str]
) -> None:
    family, clock = OnceOnly(), Hand()
    server = FakeAuthorizationServer(family)
    async with two(postgres_database, server, clock) as branches:
        for turn in range(2, 6):
            clock.now += HOUR
            server.gate = trio.Event()
            in_vain.clear()
            seen: list[Mapping[str, str]] = []

            async def call(branch: Branch, seen: list[Mapping[str, str]] = seen) -> None:
                seen.append(await branch.login.headers(None))

            with trio.fail_after(PATIENCE):
                async with trio.open_nursery() as nursery:
                    for branch in branches:
                        for _ in range(5):
                            nursery.start_soon(call, branch)
                    # One of them is at the authorization server, whose answer waits until the other one was refused its turn.
                    await until(lambda turn=turn: len(server.forms) == turn - 1 and bool(in_vain))
                    assert len(family.shown) == turn - 2
                    server.gate.set()
            assert seen == [{"Authorization": f"Bearer access-{turn}"}] * 10
        assert family.shown == [f"refresh-{number}" for number in range(1, 5)]
        assert not family.revoked
        assert await turns(branches[0].store) == [(None, 0)]


async def test_the_turn_of_a_node_that_died_is_taken_over_once_it_is_found_dead(in_vain: list[str]) -> None:
    async with open_house() as house:
        family, clock = OnceOnly(), Hand()
        server = FakeAuthorizationServer(family)
        one = Branch(house.store, "one", server, clock)
        await house.store.write(partial(enter, name="dead"))
        await house.store.write(partial(enter, name="one"))
        await log_in(one)
        await one.login.headers(None)
        assert await house.store.write(partial(turn_of, name="dead", now=clock.now + HOUR))
        clock.now += HOUR
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    assert await one.login.headers(None) == {"Authorization": "Bearer access-2"}

                nursery.start_soon(call)
                await until(lambda: bool(in_vain))
                assert family.shown == []
                await house.store.write(lambda db: db.execute("DELETE FROM nodes WHERE boot_id = 'dead'"))
        assert family.shown == ["refresh-1"]


@pytest.mark.parametrize("beyond", [False, True])
async def test_a_node_that_lives_and_says_nothing_has_its_turn_for_ten_minutes_and_no_longer(
    beyond: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_house() as house:
        family, clock = OnceOnly(), Hand()
        one = Branch(house.store, "one", FakeAuthorizationServer(family), clock)
        for name in ("one", "hung"):
            await house.store.write(partial(enter, name=name))
        await log_in(one)
        await one.login.headers(None)
        assert await house.store.write(partial(turn_of, name="hung", now=clock.now + HOUR))
        clock.now += HOUR + (TURN_MILLIS if beyond else TURN_MILLIS - 1)
        began = trio.current_time()
        if beyond:
            assert await one.login.headers(None) == {"Authorization": "Bearer access-2"}
            return
        with pytest.raises(BackendError):
            await one.login.headers(None)
        assert trio.current_time() - began == pytest.approx(TURN_SECONDS)
        assert family.shown == []
        clock.now += 1
        assert await one.login.headers(None) == {"Authorization": "Bearer access-2"}


async def test_an_authorization_server_that_does_not_answer_leaves_the_turn_to_the_next_node(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_house() as house:
        family, clock = OnceOnly(), Hand()
        away = FakeAuthorizationServer(family)
        away.down = True
        one = Branch(house.store, "one", away, clock)
        other = Branch(house.store, "other", FakeAuthorizationServer(family), clock)
        for name in ("one", "other"):
            await house.store.write(partial(enter, name=name))
        await log_in(one)
        for branch in (one, other):
            await branch.login.headers(None)
        clock.now += HOUR
        with pytest.raises(BackendError):
            await one.login.headers(None)
        began = trio.current_time()
        assert await other.login.headers(None) == {"Authorization": "Bearer access-2"}
        assert trio.current_time() == began
        assert await one.login.headers(None) == {"Authorization": "Bearer access-2"}


async def test_tokens_that_the_store_could_not_write_are_written_once_it_is_there_and_no_other_node_spends_the_old_ones(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with open_house() as house, trio.open_nursery() as background:
        family, clock = OnceOnly(), Hand()
        server = FakeAuthorizationServer(family)
        away = Away(house.store)
        one, other = Branch(away, "one", server, clock), Branch(house.store, "other", server, clock)
        for name in ("one", "other"):
            await house.store.write(partial(enter, name=name))
        await log_in(one)
        for branch in (one, other):
            await branch.login.headers(None)
        background.start_soon(one.owed.run)
        clock.now += HOUR
        away.refused = frozenset({"renew"})
        assert await one.login.headers(None) == {"Authorization": "Bearer access-2"}
        clock.now += MINUTE
        # The store is there again for all, and this node has not come to write yet.
        with pytest.raises(BackendError):
            await other.login.headers(None)
        assert family.shown == ["refresh-1"]
        away.refused = frozenset()
        await trio.sleep(AGAIN_SECONDS)
        for branch in (one, other):
            assert await branch.login.headers(None) == {"Authorization": "Bearer access-2"}
        assert await turns(house.store) == [(None, 0)]  # type: ignore[arg-type]
        for turn, branch in ((3, one), (4, other), (5, one)):
            clock.now += HOUR
            assert await branch.login.headers(None) == {"Authorization": f"Bearer access-{turn}"}
        assert not family.revoked
        background.cancel_scope.cancel()


async def test_a_login_that_is_read_anew_while_its_tokens_are_owed_is_not_the_spent_one() -> None:
    async with open_house() as house:
        family, clock = OnceOnly(), Hand()
        away = Away(house.store)
        one = Branch(away, "one", FakeAuthorizationServer(family), clock)
        await house.store.write(partial(enter, name="one"))
        await log_in(one)
        await one.login.headers(None)
        clock.now += HOUR
        away.refused = frozenset({"renew"})
        await one.login.headers(None)
        one.login.changed()  # something else of this upstream was accepted
        with pytest.raises(BackendError):
            await one.login.headers(None)
        away.refused = frozenset()
        assert await one.login.headers(None) == {"Authorization": "Bearer access-2"}
        assert family.shown == ["refresh-1"]


async def test_what_another_node_wrote_meanwhile_wins_against_what_was_owed() -> None:
    async with open_house() as house:
        family, clock = OnceOnly(), Hand()
        server = FakeAuthorizationServer(family)
        away = Away(house.store)
        one, other = Branch(away, "one", server, clock), Branch(house.store, "other", server, clock)
        await house.store.write(partial(enter, name="other"))  # the first one was taken for dead
        await log_in(one)
        for branch in (one, other):
            await branch.login.headers(None)
        clock.now += HOUR
        away.refused = frozenset({"renew"})
        await one.login.headers(None)
        family.newest = 1  # it repeats its answer, as many do for a minute
        await other.login.headers(None)
        away.refused = frozenset()
        await one.owed.settle()
        clock.now += HOUR
        family.newest = 2
        assert await one.login.headers(None) == {"Authorization": "Bearer access-3"}
        assert await other.login.headers(None) == {"Authorization": "Bearer access-3"}
        row = await house.store.read(partial(login_rows.fetch, upstream=FILES, person=""))
        assert row is not None and row[2] == 3


async def test_a_turn_that_could_not_be_given_back_is_given_back_once_it_can() -> None:
    async with open_house() as house:
        family, clock = OnceOnly(), Hand()
        down = FakeAuthorizationServer(family)
        down.down = True
        away = Away(house.store)
        one = Branch(away, "one", down, clock)
        await house.store.write(partial(enter, name="one"))
        await log_in(one)
        await one.login.headers(None)
        clock.now += HOUR
        away.refused = frozenset({"leave_turn"})
        with pytest.raises(BackendError):
            await one.login.headers(None)
        assert await turns(house.store) == [("one", clock.now + TURN_MILLIS)]  # type: ignore[arg-type]
        away.refused, down.down = frozenset(), False
        assert await one.login.headers(None) == {"Authorization": "Bearer access-2"}


async def test_a_refusal_of_old_tokens_ends_no_newer_ones() -> None:
    async with open_house() as house:
        family, clock = OnceOnly(), Hand()
        server = FakeAuthorizationServer(family)
        away = Away(house.store)
        one, other = Branch(away, "one", server, clock), Branch(house.store, "other", server, clock)
        await house.store.write(partial(enter, name="other"))  # the first one was taken for dead
        await log_in(one)
        for branch in (one, other):
            await branch.login.headers(None)
        clock.now += HOUR
        await other.login.headers(None)
        await one.login.give_up()  # the upstream does not take what this one still has
        for branch in (one, other):
            assert await branch.login.headers(None) == {"Authorization": "Bearer access-2"}


async def test_whoever_logs_in_anew_meanwhile_wins_against_both(in_vain: list[str]) -> None:
    async with open_house() as house:
        family, clock = OnceOnly(), Hand()
        server = FakeAuthorizationServer(family)
        one = Branch(house.store, "one", server, clock)
        for name in ("one", "hung"):
            await house.store.write(partial(enter, name=name))
        await log_in(one)
        await one.login.headers(None)
        assert await house.store.write(partial(turn_of, name="hung", now=clock.now + HOUR))
        clock.now += HOUR
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    with pytest.raises(BackendError):
                        await one.login.headers(None)

                nursery.start_soon(call)
                await until(lambda: bool(in_vain))
                await log_in(one, "ul_2")
        assert family.shown == []
        row = await house.store.read(partial(login_rows.fetch, upstream=FILES, person=""))
        assert row is not None and row[1:] == ("ul_2", 1)
        assert await turns(house.store) == [(None, 0)]  # type: ignore[arg-type]
        clock.now -= HOUR  # what was logged in with is good then
        assert await one.login.headers(None) == {"Authorization": "Bearer access-1"}
        assert family.shown == []


def enter(db: Any, name: str) -> None:
    db.execute(
        "INSERT INTO nodes (boot_id, name, home, address, version, started_at, alive_until)"
        " VALUES (?, ?, ?, '', '', 0, 0)",
        name,
        name,
        name,
    )


def turn_of(db: Any, name: str, *, now: int) -> bool:
    return login_rows.take_turn(
        db, FILES, "", login_id="ul_1", version=1, node=name, now=now, millis=TURN_MILLIS
    )
