"""A hundred thousand movements, nearly all of one wallet and one tool: reading and checking stay in pieces."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from server.payments.seller import statements, wallets
from server.payments.seller.ledger import PIECE
from server.payments.seller.statements import StatementFilter
from server.store.jobs import StoreDb
from tests.engine_under_test import place_of
from tests.payments.seller.books_fakes import (
    ANN,
    BEN,
    BOOKS,
    NOW,
    SEARCH,
    AnyStore,
    checked,
    deposit,
    moved,
    open_books_at,
)

STRETCH = 20_000

MANY = 100_000
JOB = 5_000
PATIENCE = 300  # a bound, not an expectation: each part takes some seconds


def fill(db: StoreDb, first: int) -> None:
    assert wallets.hold(db, ANN, JOB * 10, NOW)
    for number in range(first, first + JOB):
        movement = moved(
            "charge",
            wallets.account_of(ANN),
            SEARCH,
            10,
            server="shop",
            tool="search",
            charge_id=f"chg_{number}",
        )
        BOOKS.post(db, movement, NOW + number)


async def pages(store: AnyStore, wanted: StatementFilter, *, oldest_first: bool) -> tuple[int, int]:
    """How many movements, in how many pages."""
    rows = found = 0
    at: int | None = None
    while True:
        page = await store.read(
            partial(statements.page, wanted=wanted, oldest_first=oldest_first, at=at, at_most=2_000)
        )
        assert len(page.rows) <= 2_000
        rows, found = rows + len(page.rows), found + 1
        at = page.go_on
        if at is None:
            return rows, found


@pytest.mark.slow
async def test_reading_and_checking_stay_in_pieces(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with open_books_at(place_of(tmp_path / "ostiary.db")) as store:
            await store.write(partial(deposit, wallet=ANN, amount=MANY * 10, payment="pay_1"))
            await store.write(partial(deposit, wallet=BEN, amount=7, payment="pay_2"))
            for first in range(0, MANY, JOB):
                await store.write(partial(fill, first=first))
            found = await checked(store, at_most=PIECE)
            assert found.is_right
            assert (found.movements, found.accounts) == (MANY + 2, 4)
            # The chain once, and the two accounts with nearly all of it once each.
            assert 3 * MANY // PIECE <= found.pieces <= 3 * MANY // PIECE + 10

            for account in (wallets.account_of(ANN), SEARCH, None):
                for oldest_first in (True, False):
                    wanted = StatementFilter(account=account, kind="charge")
                    rows, count = await pages(store, wanted, oldest_first=oldest_first)
                    assert (rows, count) == (MANY, MANY // 2_000 + (1 if count > MANY // 2_000 else 0))
            # Of one with few movements the rest is passed by.
            rows, count = await pages(
                store, StatementFilter(account=wallets.account_of(BEN)), oldest_first=True
            )
            assert (rows, count) == (1, 1)
            # A rare kind is looked for in stretches.
            rows, count = await pages(store, StatementFilter(kind="deposit"), oldest_first=True)
            assert (rows, count) == (2, -(-(MANY + 2) // STRETCH))
            (ann, ben) = await store.read(partial(statements.accounts, of_wallets=True, after="", at_most=9))
            assert (ann.balance, ann.held, ben.balance) == (0, 0, 7)
