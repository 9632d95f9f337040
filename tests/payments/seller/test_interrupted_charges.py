"""Rows of charges that were interrupted, in every database: what of them is kept, and what comes of it."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from server.payments.seller import charge_rows, claims
from server.payments.seller.charge_rows import Charge
from server.store.idempotency.kept_answers import KeptSum, drop_answers, kept_for
from server.store.jobs import StoreDb
from tests.payments.seller.books_fakes import ANN, NOW, AnyStore, deposit

CHARGE = Charge(
    id="chg_1", call_key="key", fingerprint="", keyed=True, state="running", paid=False, how="balance", server="shop", tool="search",
    call_id="call_1", caller="user:ann:", client_id=None, grant_id=None, wallet=ANN, amount=0, currency="USD", price="1",
    spent=claims.NOTHING, payment_id=None, retries_left=0, owner="boot", created_at=NOW, expires_at=NOW + 10,
)  # fmt: skip


def interrupted(db: StoreDb, *, paid: bool, answer: bytes | None = None) -> Charge | None:
    deposit(db, ANN, 1_000, "pay_1")
    db.execute("DELETE FROM charges")
    charge_rows.insert(db, CHARGE)
    db.execute("UPDATE charges SET paid = ?", int(paid))
    cut_off(db, answer)
    return charge_rows.standing(db, "key", NOW + 50)


def cut_off(db: StoreDb, answer: bytes | None = None) -> int | None:
    return claims.interrupt(db, run=CHARGE.run, payment_id=None, now=NOW, answer=answer)


async def test_one_that_was_not_paid_makes_room_like_an_answer(store: AnyStore) -> None:
    found = await store.write(partial(interrupted, paid=False))
    assert found is not None and (found.state, found.paid, found.owner) == ("done", False, None)
    await store.write(lambda db: drop_answers(db, ["chg_1"]))
    assert await store.write(lambda db: charge_rows.standing(db, "key", NOW + 50)) is None


@pytest.mark.parametrize(("answer", "size"), [(None, 1), (b"it failed", 9)])
async def test_one_that_was_not_paid_counts_with_what_is_kept_of_it(
    store: AnyStore, answer: bytes | None, size: int
) -> None:
    await store.write(partial(interrupted, paid=False, answer=answer))
    assert await store.read(lambda db: kept_for(db, CHARGE.caller)) == KeptSum(1, size)
    await store.write(partial(interrupted, paid=True, answer=answer))
    assert await store.read(lambda db: kept_for(db, CHARGE.caller)) == KeptSum(0, 0)


@pytest.mark.parametrize(("paid", "tries", "left"), [(True, 2, 2), (True, 0, 0), (False, 0, None)])
async def test_how_often_it_can_be_made_again_is_told_of_one_that_was_paid(
    store: AnyStore, paid: bool, tries: int, left: int | None
) -> None:
    def job(db: StoreDb) -> int | None:
        deposit(db, ANN, 1_000, "pay_1")
        charge_rows.insert(db, replace(CHARGE, paid=paid, retries_left=tries))
        return cut_off(db)

    assert await store.write(job) == left


# As programs of before there were such rows make room.
_OF_BEFORE = "UPDATE charges SET answer = NULL, answer_bytes = 0 WHERE id = ? AND state = 'done' AND answered_at IS NOT NULL"


async def test_an_older_program_that_makes_room_counts_none_that_it_cannot_drop(store: AnyStore) -> None:
    await store.write(partial(interrupted, paid=False))
    assert (await store.read(lambda db: kept_for(db, CHARGE.caller))).answers == 1
    await store.write(lambda db: db.execute(_OF_BEFORE, "chg_1"))
    assert (await store.read(lambda db: kept_for(db, CHARGE.caller))).answers == 0
    await store.write(partial(interrupted, paid=True))
    assert (await store.read(lambda db: kept_for(db, CHARGE.caller))).answers == 0


async def test_one_that_was_paid_beforehand_never_makes_room_and_is_owed_again(store: AnyStore) -> None:
    found = await store.write(partial(interrupted, paid=True))
    assert found is not None and found.state == "interrupted"
    await store.write(lambda db: drop_answers(db, ["chg_1"]))
    await store.write(lambda db: charge_rows.resume(db, "chg_1"))
    found = await store.write(lambda db: charge_rows.standing(db, "key", NOW + 50))
    assert found is not None and found.state == "owed"
