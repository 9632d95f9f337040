"""Booking a movement (server/payments/seller/ledger.py): both sides, once for each cause, or not at all."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from server.lib.money.amounts import MOST
from server.payments.seller import wallets
from server.payments.seller.ledger import GRANTED, BooksError, NotCovered, OtherMovement
from server.store.job_connection import Facade
from server.store.jobs import ConstraintFailed, StoreDb
from tests.payments.seller.books_fakes import (
    ANN,
    BASE,
    BEN,
    BOOKS,
    NOW,
    SEARCH,
    AnyStore,
    balances,
    begin_charge,
    checked,
    deposit,
    do,
    finish_charge,
    moved,
)


def numbers(db: StoreDb) -> list[int]:
    return [row["seq"] for row in db.fetch_all("SELECT seq FROM movements ORDER BY seq")]


async def test_what_one_account_loses_the_other_gains(store: AnyStore) -> None:
    def job(db: StoreDb) -> list[int]:
        paid = moved("payment", BASE, SEARCH, 7, charge_id="chg_0", payment_id="pay_0")
        seqs = [BOOKS.post(db, paid, NOW), deposit(db, ANN, 100, "pay_1")]
        assert begin_charge(db, ANN, 30, "chg_1")
        return [*seqs, finish_charge(db, ANN, 30, "chg_1")]

    assert await store.write(job) == [1, 2, 3]
    assert await store.read(balances) == {ANN: 70, BASE: -107, SEARCH: 37}
    found = await store.read(partial(wallets.find, wallet=ANN))
    assert found is not None
    assert found.held == 0
    assert (await checked(store)).is_right


async def test_a_movement_keeps_all_that_was_said_of_it(store: AnyStore) -> None:
    movement = moved(
        "payment", BASE, SEARCH, 7,
        client_id="cli", grant_id="grn_1", server="shop", tool="search", call_id="call_1", charge_id="chg_1",
        payment_id="pay_1", price="v1", note="first",
    )  # fmt: skip
    await store.write(partial(BOOKS.post, movement=movement, now=NOW))
    row = await store.read(lambda db: db.fetch_one("SELECT * FROM movements"))
    assert row is not None
    assert {name: row[name] for name in movement.__struct_fields__} == {
        name: getattr(movement, name) for name in movement.__struct_fields__
    }
    assert (row["seq"], row["at"]) == (1, NOW)


async def test_the_same_charge_and_the_same_payment_are_booked_once(store: AnyStore) -> None:
    def job(db: StoreDb) -> list[int]:
        seqs = [deposit(db, ANN, 100, "pay_1") for _ in range(2)]
        begin_charge(db, ANN, 30, "chg_1")
        return seqs + [finish_charge(db, ANN, 30, "chg_1") for _ in range(2)]

    assert await store.write(job) == [1, 1, 2, 2]
    assert await store.write(partial(deposit, wallet=ANN, amount=100, payment="pay_1")) == 1
    assert await store.read(balances) == {ANN: 70, BASE: -100, SEARCH: 30}
    assert await store.write(partial(deposit, wallet=ANN, amount=5, payment="pay_2")) == 3
    assert (await checked(store)).is_right


async def test_a_payment_that_is_found_settled_later_is_the_same_whoever_asks(store: AnyStore) -> None:
    paid = moved("payment", BASE, SEARCH, 7, charge_id="chg_1", payment_id="pay_1")
    late = moved("payment", BASE, SEARCH, 7, payment_id="pay_1")
    assert [await store.write(partial(BOOKS.post, movement=each, now=NOW)) for each in (paid, late)] == [1, 1]


async def test_another_movement_of_the_same_cause_is_refused_whole(store: AnyStore) -> None:
    await store.write(partial(deposit, wallet=ANN, amount=100, payment="pay_1"))
    for other in (
        moved("deposit", BASE, wallets.account_of(ANN), 99, payment_id="pay_1"),
        moved("deposit", BASE, wallets.account_of(BEN), 100, payment_id="pay_1"),
    ):
        with pytest.raises(OtherMovement):
            await store.write(partial(BOOKS.post, movement=other, now=NOW))
    second = moved("payment", BASE, SEARCH, 7, charge_id="chg_1", payment_id="pay_2")
    await store.write(partial(BOOKS.post, movement=second, now=NOW))
    twice_paid = moved("payment", BASE, SEARCH, 7, charge_id="chg_1", payment_id="pay_3")
    with pytest.raises(ConstraintFailed):
        await store.write(partial(BOOKS.post, movement=twice_paid, now=NOW))
    assert await store.read(numbers) == [1, 2]
    assert (await checked(store)).is_right


async def test_a_wallet_gives_no_more_than_is_free_and_a_charge_no_more_than_is_held(store: AnyStore) -> None:
    def fill(db: StoreDb) -> None:
        deposit(db, ANN, 100, "pay_1")
        begin_charge(db, ANN, 60, "chg_1")

    await store.write(fill)
    for movement in (
        moved("payout", wallets.account_of(ANN), "paid-out", 41),
        moved("charge", wallets.account_of(ANN), SEARCH, 61, charge_id="chg_2"),
        moved("charge", wallets.account_of(BEN), SEARCH, 1, charge_id="chg_2"),
        moved("grant", GRANTED, wallets.account_of(BEN), 1),
    ):
        with pytest.raises(NotCovered):
            await store.write(partial(BOOKS.post, movement=movement, now=NOW))
    assert await store.read(balances) == {ANN: 100, BASE: -100}
    assert await store.read(numbers) == [1]
    assert await store.write(partial(finish_charge, wallet=ANN, amount=60, charge="chg_1")) == 2
    assert (await checked(store)).is_right


@pytest.mark.parametrize("amount", [0, -5, MOST + 1])
async def test_an_amount_is_more_than_nothing_and_can_be_counted(store: AnyStore, amount: int) -> None:
    with pytest.raises(BooksError, match="amount"):
        await store.write(partial(BOOKS.post, movement=moved("payment", BASE, SEARCH, amount), now=NOW))


async def test_money_does_not_move_from_an_account_to_itself(store: AnyStore) -> None:
    with pytest.raises(BooksError, match="to another"):
        await store.write(partial(BOOKS.post, movement=moved("payment", BASE, BASE, 1), now=NOW))


async def test_currencies_are_not_added_up(store: AnyStore) -> None:
    await store.write(partial(deposit, wallet=ANN, amount=100, payment="pay_1"))
    await store.write(do("INSERT INTO wallets VALUES ('user:eu', 'EUR', 0, 0, 0, 0)"))
    await store.write(do("INSERT INTO accounts VALUES ('granted', 'EUR', 0)"))
    for movement in (
        moved("grant", "granted-too", "wallet:user:eu", 1),
        moved("grant", GRANTED, wallets.account_of(ANN), 1),
    ):
        with pytest.raises(BooksError):
            await store.write(partial(BOOKS.post, movement=movement, now=NOW))
    assert await store.read(numbers) == [1]


async def test_a_job_that_fails_gives_its_numbers_back(store: AnyStore) -> None:
    def fail(db: StoreDb) -> None:
        deposit(db, ANN, 1, "pay_1")
        deposit(db, ANN, 1, "pay_2")
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(fail)
    assert await store.write(partial(deposit, wallet=ANN, amount=2, payment="pay_3")) == 1
    with pytest.raises(LookupError):
        await store.write(fail)
    assert await store.write(partial(deposit, wallet=ANN, amount=2, payment="pay_1")) == 2
    assert (await checked(store)).is_right


async def test_a_charge_costs_three_statements_and_the_record_once_in_a_transaction(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def fill(db: StoreDb) -> None:
        deposit(db, ANN, 100, "pay_1")
        for number in range(3):
            begin_charge(db, ANN, 10, f"chg_{number}")

    await store.write(fill)
    ran: list[str] = []

    run = Facade._run  # pyright: ignore[reportPrivateUsage]

    def spied(self: Facade, sql: str, params: tuple[object, ...]) -> object:
        if (
            threading.current_thread().name != "store-changes"
        ):  # which looks now and then what others have changed
            ran.append(sql)
        return run(self, sql, params)

    monkeypatch.setattr(Facade, "_run", spied)

    def job(db: StoreDb) -> None:
        ran.clear()  # it may be run twice
        for number in range(3):
            movement = moved("charge", wallets.account_of(ANN), SEARCH, 10, charge_id=f"chg_{number}")
            BOOKS.post(db, movement, NOW)

    await store.write(job)
    # The record is written by the store itself, once. Where others write as well, the end of the ledger is read, once.
    ends = [sql for sql in ran if "newest.mac" in sql]
    assert len(ran) - len(ends) == 9
    assert len(ends) == (1 if "postgres" in request.node.name else 0)
