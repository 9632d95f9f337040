"""Reading the books (server/payments/seller/statements.py)."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest

from server.payments.seller import statements, wallets
from server.payments.seller.ledger import GRANTED, revenue_account
from server.payments.seller.statements import Balance, StatementFilter
from server.store.jobs import StoreDb
from tests.payments.seller.books_fakes import (
    ANN,
    BASE,
    BEN,
    BOOKS,
    NOW,
    SEARCH,
    AnyStore,
    begin_charge,
    deposit,
    finish_charge,
    moved,
)


def furnish(db: StoreDb) -> None:
    deposit(db, ANN, 1_000, "pay_1")  # 1
    deposit(db, BEN, 500, "pay_2")  # 2
    for number in range(6):  # 3 to 8
        wallet = ANN if number % 2 == 0 else BEN
        begin_charge(db, wallet, 10, f"chg_{number}")
        finish_charge(db, wallet, 10, f"chg_{number}")
    other = moved("payment", BASE, revenue_account("shop", "sell"), 7, server="shop", tool="sell")
    BOOKS.post(db, other, NOW + 5)  # 9
    BOOKS.post(db, moved("grant", GRANTED, wallets.account_of(BEN), 20), NOW + 6)  # 10
    begin_charge(db, BEN, 30, "chg_runs")


async def pages(store: AnyStore, *, oldest_first: bool, at_most: int, **wanted: Any) -> list[int]:
    found: list[int] = []
    at: int | None = None
    while True:
        job = partial(
            statements.page,
            wanted=StatementFilter(**wanted),
            oldest_first=oldest_first,
            at=at,
            at_most=at_most,
        )
        page = await store.read(job)
        assert len(page.rows) <= at_most
        found += [row["seq"] for row in page.rows]
        at = page.go_on
        if at is None:
            return found


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({}, list(range(1, 11))),
        ({"account": wallets.account_of(ANN)}, [1, 3, 5, 7]),
        ({"account": wallets.account_of(BEN)}, [2, 4, 6, 8, 10]),
        ({"account": SEARCH}, [3, 4, 5, 6, 7, 8]),
        ({"account": GRANTED}, [10]),
        ({"account": "nobody's"}, []),
        ({"server": "shop"}, [3, 4, 5, 6, 7, 8, 9]),
        ({"server": "shop", "tool": "sell"}, [9]),
        ({"kind": "deposit"}, [1, 2]),
        ({"since": NOW + 5}, [9, 10]),
        ({"until": NOW + 5, "kind": "deposit"}, [1, 2]),
        ({"account": wallets.account_of(BEN), "kind": "grant"}, [10]),
        ({"account": wallets.account_of(BEN), "since": NOW + 7}, []),
    ],
)
async def test_pages_come_to_the_end_either_way_and_show_each_movement_once(
    store: AnyStore, wanted: dict[str, Any], numbers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for stretch, at_most in product((1, 3, 20_000), (1, 2, 5, 100)):
        monkeypatch.setattr(statements, "STRETCH", stretch)
        assert await pages(store, oldest_first=True, at_most=at_most, **wanted) == numbers
        assert await pages(store, oldest_first=False, at_most=at_most, **wanted) == numbers[::-1]


async def test_accounts_and_wallets_are_listed_in_pages_with_what_is_held(store: AnyStore) -> None:
    found: list[Balance] = []
    after = ""
    while page := await store.read(partial(statements.accounts, of_wallets=True, after=after, at_most=1)):
        found += page
        after = page[-1].account
    assert found == [
        Balance(account=ANN, currency="USD", balance=970, held=0),
        Balance(account=BEN, currency="USD", balance=490, held=30),
    ]
    of_shop = partial(statements.accounts, of_wallets=False, prefix="revenue:shop/", after="", at_most=9)
    assert [(each.account, each.balance) for each in await store.read(of_shop)] == [
        (SEARCH, 60),
        ("revenue:shop/sell", 7),
    ]


async def test_totals_are_counts_and_sums(store: AnyStore) -> None:
    assert await store.read(partial(statements.totals, of_wallets=True)) == [
        {"currency": "USD", "count": 2, "balance": 1_460, "held": 30}
    ]
    all_others = await store.read(partial(statements.accounts, of_wallets=False, after="", at_most=99))
    assert await store.read(partial(statements.totals, of_wallets=False)) == [
        {"currency": "USD", "count": len(all_others), "balance": -1_460, "held": 0}
    ]
