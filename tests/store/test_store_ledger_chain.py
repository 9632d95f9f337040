"""The movements' chain in a store (server/store/chain_ends.py): what was undone, wiped or put back."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from store_engines import NOW, AnyStore, Open

from auth.values.database import AuditEntry
from server.store import meta_rows
from server.store.audit_chain import AuditChain
from server.store.chains import Break
from server.store.jobs import BEGINNING, Position, StatementRefused, StoreDb
from server.store.ledger_chain import LedgerChain

KEY, AUDIT_KEY = b"of the ledger", b"of the trail"
CHAIN = LedgerChain(KEY)


def movement(number: int, charge: str | None = None) -> tuple[object, ...]:
    return (
        NOW, "charge", "wallet:user:u", "revenue:s/t", number, "USD", "user:u:", None, None, "s", "t", None,
        charge, None, "v1", None, "",
    )  # fmt: skip


def post(db: StoreDb, number: int = 1, charge: str | None = None) -> int:
    return db.post(movement(number, charge), once=None if charge is None else "charge_id")


def keep(store: AnyStore, heads: tuple[Position, ...] = ()) -> None:
    store.chain_audit(AUDIT_KEY)
    store.chain_ledger(KEY, heads)


async def broken(store: AnyStore) -> Break | None:
    return (await store.read(partial(CHAIN.walk, at=None, at_most=1_000))).broken


async def alarms(store: AnyStore) -> list[str]:
    sql = "SELECT reason FROM audit WHERE event = 'ledger.altered' AND outcome = 'refused' ORDER BY seq"
    return [row["reason"] for row in await store.read(lambda db: db.fetch_all(sql))]


def do(sql: str, *values: object) -> Any:
    return lambda db: db.execute(sql, *values)  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType]


@pytest.fixture
async def chained(store: AnyStore) -> AnyStore:
    keep(store)
    await store.write(lambda db: [post(db, number) for number in range(1, 4)])
    return store


async def test_nothing_is_posted_before_there_is_a_key_or_while_reading(store: AnyStore) -> None:
    with pytest.raises(StatementRefused, match=r"before .* has the key"):
        await store.write(post)
    keep(store)
    with pytest.raises(StatementRefused):
        await store.read(post)
    assert store.ledger_head() is None


async def test_movements_are_numbered_without_gaps_and_those_of_a_job_that_failed_never_were(
    chained: AnyStore,
) -> None:
    def fail(db: StoreDb) -> None:
        post(db, 9)
        db.audit(AuditEntry(NOW, "test.done", "user:u", None, None, None, None, "ok", ""))
        raise LookupError

    numbers: list[int] = []
    failed = 0

    async def one(number: int) -> None:
        nonlocal failed
        try:
            numbers.append(await chained.write(fail if number % 3 == 0 else partial(post, number=number)))  # type: ignore[arg-type]
        except LookupError:
            failed += 1

    async with trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(one, number)
    assert failed == 20
    assert sorted(numbers) == list(range(4, 44))
    assert await broken(chained) is None
    head = chained.ledger_head()
    assert head is not None
    assert head.seq == 43
    trail = AuditChain(AUDIT_KEY)
    assert (await chained.read(partial(trail.walk, at=None, at_most=10))).broken is None


async def test_one_of_its_kind_for_a_cause(chained: AnyStore) -> None:
    assert [await chained.write(partial(post, charge=charge)) for charge in ("a", "b", "a", "c")] == [
        4,
        5,
        0,
        6,
    ]
    assert await broken(chained) is None


@pytest.mark.parametrize(
    ("tampering", "alarm"),
    [
        ("DELETE FROM meta WHERE key = 'ledger_chain'", "removed"),
        ("UPDATE meta SET value = value || 'x' WHERE key = 'ledger_chain'", "altered"),
    ],
)  # fmt: skip
async def test_a_record_that_was_touched_is_noticed_with_the_next_movement_and_for_ever(
    chained: AnyStore, tampering: str, alarm: str
) -> None:
    await chained.write(do(tampering))
    assert await chained.write(partial(post, number=4)) == 4
    assert await chained.write(partial(post, number=5)) == 5
    (said,) = await alarms(chained)
    assert said.endswith(f" was {alarm}")
    assert await broken(chained) == Break(seq=4, what="record altered")


async def test_an_older_record_put_back_with_its_rows_is_noticed(chained: AnyStore) -> None:
    old = await chained.read(partial(meta_rows.get, key=meta_rows.LEDGER_CHAIN))
    await chained.write(partial(post, number=4))
    await chained.write(do("DELETE FROM movements WHERE seq > 3"))
    await chained.write(do("UPDATE meta SET value = ? WHERE key = 'ledger_chain'", old))
    assert await broken(chained) is None  # by itself it is true
    assert await chained.write(partial(post, number=5)) == 5
    assert await alarms(chained) == [
        "the record of where the ledger ends was put back to an older one; row 4 was the last"
    ]
    assert await broken(chained) == Break(seq=4, what="missing")


async def test_a_ledger_that_was_wiped_whole_is_noticed_by_the_process(chained: AnyStore) -> None:
    await chained.write(do("DELETE FROM movements"))
    await chained.write(do("DELETE FROM meta WHERE key = 'ledger_chain'"))
    assert await chained.write(partial(post, number=4)) == 4
    (said,) = await alarms(chained)
    assert said.endswith(" was removed")
    assert await broken(chained) == Break(seq=1, what="missing")


async def test_a_ledger_that_was_wiped_while_nobody_ran_is_noticed_at_the_start(
    open_any: Open, request: pytest.FixtureRequest
) -> None:
    if "memory" in request.node.name:
        return
    async with open_any() as store:
        keep(store)
        await store.write(lambda db: db.begin_ledger())
        await store.write(post)
        for table in ("movements", "meta WHERE key = 'ledger_chain'"):
            await store.write(do(f"DELETE FROM {table}"))
    async with open_any() as store:
        keep(store)
        await store.write(lambda db: db.begin_ledger())
        (said,) = await alarms(store)
        assert said.endswith(" was removed")
        assert await broken(store) == Break(seq=1, what="record altered")


async def test_a_database_of_before_gets_its_ledger_without_an_alarm(open_any: Open) -> None:
    """Its trail says nothing of one, and it has its key for long."""
    async with open_any() as store:
        store.chain_audit(AUDIT_KEY)
        record = "2:0::0::0:0"
        sealed = f"{record} {AuditChain(AUDIT_KEY).seal('record', record)}"
        await store.write(partial(meta_rows.put, key=meta_rows.AUDIT_CHAIN, value=sealed))
        await store.write(partial(meta_rows.put, key=meta_rows.KEY_FINGERPRINT, value="f"))
        keep(store, (BEGINNING,))
        await store.write(lambda db: db.begin_ledger())
        assert await alarms(store) == []
        assert await store.write(post) == 1
        assert await broken(store) is None
        trail = AuditChain(AUDIT_KEY)
        assert (await store.read(partial(trail.walk, at=None, at_most=10))).broken is None


async def test_a_head_that_was_written_down_elsewhere_must_be_in_the_ledger(
    open_any: Open, request: pytest.FixtureRequest
) -> None:
    if "memory" in request.node.name:
        return
    async with open_any() as store:
        keep(store)
        await store.write(lambda db: [post(db, number) for number in range(1, 4)])
        head = store.ledger_head()
    assert head is not None
    async with open_any() as store:
        keep(store, (head,))
        await store.write(lambda db: db.begin_ledger())
        assert await alarms(store) == []
    async with open_any() as store:
        keep(store, (Position(seq=9, mac="0" * 64),))
        await store.write(lambda db: db.begin_ledger())
        assert await alarms(store) == ["row 9 was written once, and is not in this ledger"]


async def test_the_keys_of_trail_and_ledger_are_not_taken_for_each_other(chained: AnyStore) -> None:
    other = LedgerChain(AUDIT_KEY)
    piece = await chained.read(partial(other.walk, at=None, at_most=10))
    assert piece.broken == Break(seq=3, what="record altered")
