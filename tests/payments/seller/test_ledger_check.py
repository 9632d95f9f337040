"""The check of the books (server/payments/seller/book_checks.py): what it finds, and that it is done in pieces while others are booked."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from server.payments.seller import wallets
from server.payments.seller.book_checks import BooksAt
from server.payments.seller.ledger import GRANTED, Books
from server.store.chains import Break
from server.store.jobs import StoreDb
from tests.payments.seller.books_fakes import (
    ANN,
    BEN,
    BOOKS,
    NOW,
    AnyStore,
    begin_charge,
    checked,
    deposit,
    do,
    finish_charge,
    moved,
    open_books,
)


def furnish(db: StoreDb) -> None:
    """Eight movements: two wallets, four accounts, a call that runs."""
    deposit(db, ANN, 1_000_000, "pay_1")
    deposit(db, BEN, 500_000, "pay_2")
    for number in range(4):
        begin_charge(db, ANN, 10_000, f"chg_{number}")
        finish_charge(db, ANN, 10_000, f"chg_{number}")
    BOOKS.post(db, moved("grant", GRANTED, wallets.account_of(BEN), 20_000), NOW)
    BOOKS.post(db, moved("payout", wallets.account_of(BEN), "paid-out", 5_000), NOW)
    begin_charge(db, BEN, 30_000, "chg_runs")


@pytest.mark.parametrize("at_most", [1, 2, 3, 7, 8, 9, 1_000])
async def test_books_that_are_right_are_found_so_in_pieces_of_any_size(store: AnyStore, at_most: int) -> None:
    found = await checked(store, at_most=at_most)
    assert found.is_right
    assert (found.movements, found.accounts) == (8, 6)
    assert found.head is not None
    assert found.head.seq == 8
    if at_most == 1:
        assert found.pieces > 20


# What somebody does to the database, whose account is named for it, and the sums that are.
TAMPERED = [
    ("UPDATE wallets SET balance = balance + 10000 WHERE id = 'user:ann'", "wallet:user:ann", "$0.97", "$0.96"),
    ("UPDATE accounts SET balance = 50000 WHERE id = 'revenue:shop/search'", "revenue:shop/search", "$0.05", "$0.04"),
    ("UPDATE wallets SET held = held + 10 WHERE id = 'user:ben'", "wallet:user:ben", "$0.03001", "$0.03"),
    ("UPDATE wallets SET held = 10 WHERE id = 'user:ann'", "wallet:user:ann", "$0.00001", "$0.00"),
    ("UPDATE charges SET state = 'done' WHERE id = 'chg_runs'", "wallet:user:ben", "$0.03", "$0.00"),
    ("DELETE FROM wallets WHERE id = 'user:ann'", "wallet:user:ann", "is not there", "movements of it"),
    ("DELETE FROM accounts WHERE id = 'granted'", "granted", "is not there", "movements of it"),
    ("DELETE FROM wallets WHERE id = 'user:ben'", "wallet:user:ben", "a running call", "of it"),
    ("INSERT INTO accounts VALUES ('mine', 'USD', 7)", "mine", "$0.000007", "$0.00"),
    ("INSERT INTO accounts VALUES ('mine', 'USD', 7)", "all balances", "$0.000007", "not nothing"),
]  # fmt: skip


@pytest.mark.parametrize("at_most", [1, 3, 1_000])
@pytest.mark.parametrize(("tampering", "whose", "says", "is_so"), TAMPERED)
async def test_whatever_is_not_what_the_movements_come_to_is_named(
    store: AnyStore, tampering: str, whose: str, says: str, is_so: str, at_most: int
) -> None:
    await store.write(do(tampering))
    found = await checked(store, at_most=at_most)
    assert [
        each
        for each in found.findings
        if each.startswith(f"{whose} ") and f" {says}" in each and each.endswith(f" {is_so}")
    ]
    assert found.broken is None


@pytest.mark.parametrize(
    ("tampering", "seq", "what"),
    [
        ("UPDATE movements SET amount = 9 WHERE seq = 3", 3, "altered"),
        ("UPDATE movements SET note = 'x' WHERE seq = 8", 8, "altered"),
        ("DELETE FROM movements WHERE seq = 4", 4, "missing"),
        ("DELETE FROM movements WHERE seq = 8", 8, "missing"),
        ("INSERT INTO movements SELECT 9, at, kind, source, target, amount, currency, principal, client_id, grant_id,"
         " server, tool, call_id, NULL, NULL, price, refers, note, mac FROM movements WHERE seq = 8", 9, "added"),
        ("DELETE FROM meta WHERE key = 'ledger_chain'", 8, "no record"),
        ("UPDATE meta SET value = 'x' WHERE key = 'ledger_chain'", 8, "record altered"),
    ],
)  # fmt: skip
async def test_a_movement_that_is_not_as_it_was_booked_is_named(
    store: AnyStore, tampering: str, seq: int, what: str
) -> None:
    await store.write(do(tampering))
    for at_most in (1, 3, 1_000):
        found = await checked(store, at_most=at_most)
        assert found.broken == Break(seq=seq, what=what)  # type: ignore[arg-type]


async def test_books_of_another_key_are_not_taken_for_ours(store: AnyStore) -> None:
    piece = await store.read(Books(b"another").check)
    assert piece.broken == Break(seq=8, what="record altered")


async def test_what_is_booked_while_the_check_is_under_way_is_no_finding(store: AnyStore) -> None:
    at: BooksAt | None = None
    pieces = 0
    while True:
        piece = await store.read(partial(BOOKS.check, at=at, at_most=2))
        assert piece.findings == ()
        assert piece.broken is None
        pieces += 1
        at = piece.at
        if at is None:
            break
        if pieces < 40:  # or the chain would never be through

            def book(db: StoreDb, number: int = pieces) -> None:
                begin_charge(db, ANN, 100, f"chg_late_{number}")
                if number % 2:
                    finish_charge(db, ANN, 100, f"chg_late_{number}")

            await store.write(book)
    assert (await checked(store)).is_right


async def test_empty_books_are_right(tmp_path: Path) -> None:
    async with open_books("inline-memory", tmp_path) as empty:
        await empty.write(lambda db: db.begin_ledger())
        found = await checked(empty)
        assert found.is_right
        assert found.head is not None
        assert (found.head.seq, found.movements, found.accounts) == (0, 0, 0)
