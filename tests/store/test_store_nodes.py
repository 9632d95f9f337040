"""Who is alive (server/store/node_rows.py), and what that means for leases."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from store_engines import NOW

from server.store import node_rows, task_leases
from server.store.inline_store import InlineStore, open_inline_store
from server.store.jobs import StoreDb
from server.store.node_rows import ALIVE_MILLIS, LATE_MILLIS, MemberNode, NodeSaid
from server.store.task_leases import Lease, LeasedTable

CHORES = LeasedTable.CHORES


def node(boot_id: str, home: str = "") -> MemberNode:
    return MemberNode(
        boot_id=boot_id,
        name=f"machine-{boot_id}:1",
        home=home or boot_id,
        address="here",
        version="1",
        started_at=NOW,
    )


A, B = node("a"), node("b")


@pytest.fixture
def engine() -> str:
    return "inline-postgres"


async def silent(store: InlineStore, boot_id: str) -> None:
    """It has not said for long that it is alive."""
    await store.write(lambda db: db.execute("UPDATE nodes SET alive_until = 1 WHERE boot_id = ?", boot_id))


async def took(store: InlineStore, owner: str, *, now: int = NOW) -> Lease | None:
    def take(db: StoreDb) -> Lease | None:
        db.execute(
            "INSERT INTO chores (name, lease_until, fence) VALUES ('x', 0, 0) ON CONFLICT (name) DO NOTHING"
        )
        return task_leases.take(db, CHORES, "x", owner=owner, now=now, millis=1_000)

    return await store.write(take)


def names(found: Any) -> list[str]:
    return [each.boot_id for each in found.alive]


async def test_whoever_enters_says_that_it_lives_or_leaves_is_known_to_the_others(store: InlineStore) -> None:
    assert names(await store.write(partial(node_rows.enter, node=A))) == ["a"]
    assert names(await store.write(partial(node_rows.enter, node=B))) == ["a", "b"]
    (row,) = await store.read(
        lambda db: db.fetch_all(
            "SELECT alive_until - CAST(floor(extract(epoch FROM now()) * 1000) AS BIGINT) AS left FROM nodes WHERE boot_id = 'b'"
        )
    )
    assert 0 < row["left"] <= ALIVE_MILLIS + 1_000
    found = await store.write(partial(node_rows.beat, node=A))
    assert (names(found), found.was_dead, found.at > 0) == (["a", "b"], False, True)
    await store.write(partial(node_rows.leave, node=B))
    assert names(await store.write(partial(node_rows.beat, node=A))) == ["a"]


async def test_one_that_was_silent_is_dead_to_the_others_and_enters_again(store: InlineStore) -> None:
    for each in (A, B):
        await store.write(partial(node_rows.enter, node=each))
    await silent(store, "b")
    assert names(await store.write(partial(node_rows.beat, node=A))) == ["a"]
    assert not await store.read(partial(node_rows.is_alive, boot_id="b"))
    found = await store.write(partial(node_rows.beat, node=B))
    assert (names(found), found.was_dead) == (["a", "b"], True)
    # Nobody had looked: then it has not been dead.
    await silent(store, "b")
    assert not (await store.write(partial(node_rows.beat, node=B))).was_dead


async def since(store: InlineStore, *boot_ids: str, millis: int) -> None:
    """So long ago each of them said that it lives."""
    sql = "UPDATE nodes SET alive_until = alive_until - ? WHERE boot_id = ?"
    for boot_id in boot_ids:
        await store.write(lambda db, boot_id=boot_id: db.execute(sql, millis, boot_id))


@pytest.mark.parametrize("away", [LATE_MILLIS + 500, ALIVE_MILLIS + 2_000])
async def test_whoever_could_not_say_it_either_takes_nobody_for_dead(store: InlineStore, away: int) -> None:
    for each in (A, B):
        await store.write(partial(node_rows.enter, node=each))
    await since(store, "b", millis=ALIVE_MILLIS + 1_000)
    await since(store, "a", millis=away)
    found = await store.write(partial(node_rows.beat, node=A))
    assert (names(found), found.was_late) == (["a", "b"], True)
    found = await store.write(partial(node_rows.beat, node=A, buries=False))
    assert (names(found), found.was_late) == (["a", "b"], False)
    assert not (await store.write(partial(node_rows.beat, node=B))).was_dead
    await since(store, "b", millis=ALIVE_MILLIS + 1_000)
    assert names(await store.write(partial(node_rows.beat, node=A))) == ["a"]


async def test_whoever_comes_takes_nobody_for_dead(store: InlineStore) -> None:
    await store.write(partial(node_rows.enter, node=A))
    await silent(store, "a")
    assert names(await store.write(partial(node_rows.enter, node=B))) == ["a", "b"]
    assert not (await store.write(partial(node_rows.beat, node=A))).was_dead


async def test_who_comes_back_to_a_data_directory_was_the_one_before(store: InlineStore) -> None:
    await store.write(partial(node_rows.enter, node=A))
    assert names(await store.write(partial(node_rows.enter, node=replace(B, home=A.home)))) == ["b"]


async def test_a_lease_is_taken_only_from_who_is_gone_whatever_the_clocks_say(store: InlineStore) -> None:
    for each in (A, B):
        await store.write(partial(node_rows.enter, node=each))
    held = await took(store, "a")
    assert held is not None
    assert await took(store, "b") is None
    # The clock of `b` is a day ahead: to it the lease has expired.
    assert await took(store, "b", now=NOW + 86_400_000) is None
    await silent(store, "a")
    assert await took(store, "b") is None  # nobody has found it dead yet
    await store.write(partial(node_rows.beat, node=B))
    taken = await took(store, "b")
    assert taken is not None
    assert taken.fence > held.fence
    # What it says afterwards is not written.
    await store.write(partial(node_rows.beat, node=A))
    assert not await store.write(partial(task_leases.renew, lease=held, now=NOW, millis=1_000))


async def test_ones_own_lease_that_ran_out_is_taken_again(store: InlineStore) -> None:
    await store.write(partial(node_rows.enter, node=A))
    assert await took(store, "a") is not None
    assert await took(store, "a", now=NOW + 500) is None
    assert await took(store, "a", now=NOW + 1_000) is not None


def seen(found: Any) -> list[tuple[str, str, bool]]:
    return [(each.node.boot_id, each.said.state, each.dead) for each in found]


async def test_how_each_is_can_be_looked_up_and_who_fell_silent_is_remembered_until_it_is_back(
    store: InlineStore,
) -> None:
    for each in (A, B):
        await store.write(partial(node_rows.enter, node=each))
    said = NodeSaid("troubled", "x" * 10_000)
    await store.write(partial(node_rows.beat, node=B, said=said))
    a, b = await store.read(node_rows.look)
    assert seen((a, b)) == [("a", "starting", False), ("b", "troubled", False)]
    assert b.said.trouble == "x" * node_rows.TROUBLE_CHARACTERS
    assert 0 <= b.quiet_ms <= ALIVE_MILLIS
    await silent(store, "b")
    # Nobody has found it dead yet, and it is silent all the same.
    assert seen(await store.read(node_rows.look))[1] == ("b", "troubled", True)
    now = (await store.write(partial(node_rows.beat, node=A))).at
    await store.write(lambda db: db.execute("UPDATE silent_nodes SET heard_at = ?", now - 3_600_000))
    found = await store.read(node_rows.look)
    assert seen(found) == [("a", "serving", False), ("b", "", True)]
    assert 3_600_000 <= found[1].quiet_ms < 3_700_000
    await store.write(partial(node_rows.beat, node=B))
    assert seen(await store.read(node_rows.look)) == [("a", "serving", False), ("b", "serving", False)]
    assert not await store.read(lambda db: db.fetch_all("SELECT * FROM silent_nodes"))


async def test_who_is_silent_for_a_day_or_says_goodbye_is_not_spoken_of_any_more(store: InlineStore) -> None:
    for each in (A, B, node("c")):
        await store.write(partial(node_rows.enter, node=each))
    await store.write(partial(node_rows.leave, node=node("c")))
    await silent(store, "b")
    await store.write(partial(node_rows.beat, node=A))
    assert seen(await store.read(node_rows.look)) == [("a", "serving", False)]  # 1970


async def test_who_fell_silent_is_counted_until_it_is_back_or_a_day_is_over_and_who_said_goodbye_is_not(
    store: InlineStore,
) -> None:
    async def counted() -> int | None:
        return (await store.write(partial(node_rows.beat, node=A, counts_silent=True))).silent

    for each in (A, B, node("c")):
        await store.write(partial(node_rows.enter, node=each))
    await store.write(partial(node_rows.leave, node=node("c")))
    assert await counted() == 0
    await silent(store, "b")
    now = (await store.write(partial(node_rows.beat, node=A))).at
    await store.write(lambda db: db.execute("UPDATE silent_nodes SET heard_at = ?", now - 3_600_000))
    assert await counted() == 1
    assert (await store.write(partial(node_rows.beat, node=A))).silent is None  # it was not asked for
    await store.write(lambda db: db.execute("UPDATE silent_nodes SET heard_at = ?", now - 86_400_001))
    assert await counted() == 0
    await store.write(lambda db: db.execute("UPDATE silent_nodes SET heard_at = ?", now - 3_600_000))
    await store.write(partial(node_rows.beat, node=B))
    assert await counted() == 0


async def test_whoever_is_started_where_one_fell_silent_is_that_one(store: InlineStore) -> None:
    """The machine was started again: nothing of its data directory is known any more but its place."""
    worker = replace(B, worker=1, place="b")
    lost = replace(B, boot_id="lost", home="lost", worker=3, place="b")
    for each in (A, worker, lost):
        await store.write(partial(node_rows.enter, node=each))

    async def found_dead(*boot_ids: str) -> list[str]:
        now = (await store.write(partial(node_rows.beat, node=A))).at
        for boot_id in boot_ids:
            await store.write(
                lambda db, boot_id=boot_id: db.execute(
                    "UPDATE nodes SET alive_until = ? WHERE boot_id = ?", now - 1, boot_id
                )
            )
        await store.write(partial(node_rows.beat, node=A))
        return [each.node.boot_id for each in await store.read(node_rows.look) if each.dead]

    assert await found_dead("lost") == ["lost"]  # while the first of its parent goes on
    assert sorted(await found_dead("b")) == ["b", "lost"]
    second = replace(worker, boot_id="second", home="second", place="again", worker=2)
    await store.write(partial(node_rows.enter, node=second))
    assert sorted(await found_dead()) == ["b", "lost"]
    first = replace(worker, boot_id="first", home="first", place="again", started_at=NOW + 1)
    await store.write(partial(node_rows.enter, node=first))
    assert await found_dead() == []
    # One that another took the place of before it was found dead is not missed.
    only = replace(first, boot_id="only", home="only", worker=0, started_at=NOW + 2)
    await store.write(partial(node_rows.enter, node=only))
    assert await found_dead("first", "second") == []
    assert names(await store.write(partial(node_rows.beat, node=A))) == ["a", "only"]


async def test_on_a_file_whoever_has_it_is_alone() -> None:
    async with open_inline_store(clock=lambda: NOW) as store:
        await store.write(partial(node_rows.enter_alone, node=A))
        assert await took(store, "a") is not None
        assert names(await store.write(partial(node_rows.enter_alone, node=B))) == ["b"]
        assert await took(store, "b") is not None
