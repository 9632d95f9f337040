"""Leases and fences (server/store/task_leases.py)."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from store_engines import AnyStore

from server.store import task_leases
from server.store.inline_store import open_inline_store
from server.store.jobs import StoreDb
from server.store.task_leases import Lease, LeasedTable

MILLIS = 100


def add_chore(db: StoreDb) -> None:
    db.execute("INSERT INTO chores (name, lease_until, fence) VALUES ('c', 0, 0)")


def take(db: StoreDb, *, owner: str, now: int) -> Lease | None:
    return task_leases.take(db, LeasedTable.CHORES, "c", owner=owner, now=now, millis=MILLIS)


@pytest.fixture
async def chores(store: AnyStore) -> AnyStore:
    await store.write(add_chore)
    return store


async def test_a_free_lease_is_taken_once_and_another_owner_waits_until_it_expires(chores: AnyStore) -> None:
    first = await chores.write(partial(take, owner="a", now=0))
    assert first == Lease(LeasedTable.CHORES, "c", "a", 1)
    assert await chores.write(partial(take, owner="b", now=MILLIS - 1)) is None
    assert await chores.write(partial(take, owner="b", now=MILLIS)) == Lease(LeasedTable.CHORES, "c", "b", 2)


async def test_the_holder_itself_cannot_take_it_twice(chores: AnyStore) -> None:
    assert await chores.write(partial(take, owner="a", now=0)) is not None
    assert await chores.write(partial(take, owner="a", now=1)) is None


async def test_whoever_lost_it_can_neither_renew_nor_release_nor_write(chores: AnyStore) -> None:
    lost = await chores.write(partial(take, owner="a", now=0))
    assert lost is not None
    current = await chores.write(partial(take, owner="b", now=MILLIS))
    assert current is not None
    assert not await chores.write(lambda db: task_leases.renew(db, lost, now=MILLIS, millis=MILLIS))
    assert not await chores.write(lambda db: task_leases.release(db, lost))
    assert not await chores.read(lambda db: task_leases.holds(db, lost, now=MILLIS))
    assert await chores.read(lambda db: task_leases.holds(db, current, now=MILLIS))


async def test_the_same_owner_with_an_older_fence_is_not_the_holder(chores: AnyStore) -> None:
    older = await chores.write(partial(take, owner="a", now=0))
    newer = await chores.write(partial(take, owner="a", now=MILLIS))
    assert older is not None
    assert newer is not None
    assert not await chores.read(lambda db: task_leases.holds(db, older, now=MILLIS))
    assert await chores.read(lambda db: task_leases.holds(db, newer, now=MILLIS))


async def test_renewing_extends_and_never_shortens(chores: AnyStore) -> None:
    lease = await chores.write(partial(take, owner="a", now=0))
    assert lease is not None
    assert await chores.write(lambda db: task_leases.renew(db, lease, now=50, millis=MILLIS))
    assert await chores.write(lambda db: task_leases.renew(db, lease, now=51, millis=1))
    assert await chores.write(partial(take, owner="b", now=149)) is None
    assert not await chores.write(lambda db: task_leases.renew(db, lease, now=150, millis=MILLIS))


async def test_a_released_lease_is_free_at_once_and_its_holder_is_out(chores: AnyStore) -> None:
    lease = await chores.write(partial(take, owner="a", now=0))
    assert lease is not None
    assert await chores.write(lambda db: task_leases.release(db, lease))
    assert not await chores.read(lambda db: task_leases.holds(db, lease, now=1))
    assert (await chores.write(partial(take, owner="b", now=1))) == Lease(LeasedTable.CHORES, "c", "b", 2)


async def test_whoever_starts_alone_ends_every_lease_whatever_its_time(chores: AnyStore) -> None:
    dead = await chores.write(partial(take, owner="a", now=10**15))
    assert dead is not None
    await chores.write(task_leases.end_left)
    assert not await chores.read(lambda db: task_leases.holds(db, dead, now=0))
    assert (await chores.write(partial(take, owner="b", now=1))) == Lease(LeasedTable.CHORES, "c", "b", 2)


async def test_there_is_no_lease_on_what_does_not_exist(store: AnyStore) -> None:
    assert await store.write(partial(take, owner="a", now=0)) is None


async def test_of_many_that_try_at_once_one_gets_it(chores: AnyStore) -> None:
    taken: list[Lease | None] = []

    async def contend(owner: str) -> None:
        taken.append(await chores.write(partial(take, owner=owner, now=0)))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(contend, f"o{number}")
    assert len([lease for lease in taken if lease is not None]) == 1


MOVES = st.lists(
    st.tuples(st.sampled_from(["take", "renew", "release"]), st.sampled_from("abc"), st.integers(0, 60)),
    max_size=40,
)


@settings(deadline=None)  # the machine's speed is not the property
@given(MOVES)
async def test_whatever_owners_do_no_two_ever_hold_it_and_fences_only_grow(
    moves: list[tuple[str, str, int]],
) -> None:
    now = 0
    held: dict[str, list[Lease]] = {"a": [], "b": [], "c": []}
    fences: list[int] = []
    async with open_inline_store(clock=lambda: 0) as store:
        await store.write(add_chore)
        for move, owner, pause in moves:
            now += pause
            if move == "take":
                lease = await store.write(partial(take, owner=owner, now=now))
                if lease is not None:
                    held[owner].append(lease)
                    fences.append(lease.fence)
            elif held[owner]:
                lease = held[owner][pause % len(held[owner])]
                if move == "renew":
                    await store.write(partial(task_leases.renew, lease=lease, now=now, millis=MILLIS))
                else:
                    await store.write(partial(task_leases.release, lease=lease))
            every = [lease for each in held.values() for lease in each]
            holding = [
                lease for lease in every if await store.read(partial(task_leases.holds, lease=lease, now=now))
            ]
            assert len(holding) <= 1
        assert fences == sorted(set(fences))
