"""What the owner gives back and away (server/payments/seller/refunds.py)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from server.payments.seller import refunds, wallets
from server.payments.seller.ledger import OtherMovement
from server.payments.seller.refunds import Granted, NotRefunded, Refunded, RefundOrder
from server.store.jobs import StoreDb
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
    finish_charge,
    moved,
)

DEPOSIT, CHARGE, PAYMENT, GRANT = 1, 2, 3, 4


def furnish(db: StoreDb) -> None:
    deposit(db, ANN, 1_000, "pay_1")
    begin_charge(db, ANN, 100, "chg_1")
    finish_charge(db, ANN, 100, "chg_1")
    paid = moved(
        "payment", BASE, SEARCH, 70, server="shop", tool="search", charge_id="chg_2", payment_id="pay_2"
    )
    BOOKS.post(db, paid, NOW)
    refunds.grant(db, BOOKS, BEN, 50, currency="USD", note="hello", by="local:0", now=NOW)


def refund(db: StoreDb, refers: int, amount: int | None = None, **more: Any) -> Refunded | NotRefunded:
    order = RefundOrder(refers=refers, amount=amount, **more)
    return refunds.refund(db, BOOKS, order, by="local:0", now=NOW)


async def events(store: AnyStore) -> list[tuple[str, str, str]]:
    rows = await store.read(lambda db: db.fetch_all("SELECT event, actor, reason FROM audit ORDER BY seq"))
    return [(row["event"], row["actor"], row["reason"]) for row in rows]


async def test_a_charge_goes_back_into_the_wallet_in_parts_and_never_more_than_was_paid(
    store: AnyStore,
) -> None:
    async def back(amount: int | None) -> tuple[int, int] | NotRefunded:
        done = await store.write(partial(refund, refers=CHARGE, amount=amount))
        return (done.amount, done.left) if isinstance(done, Refunded) else done

    assert await back(101) == NotRefunded(reason="too_much", left=100, currency="USD")
    assert await back(30) == (30, 70)
    assert await back(71) == NotRefunded(reason="too_much", left=70, currency="USD")
    assert await back(None) == (70, 0)
    for amount in (None, 1, 0):
        assert await back(amount) == NotRefunded(reason="too_much", left=0, currency="USD")
    assert (await store.read(balances))[ANN] == 1_000
    assert (await store.read(balances))[SEARCH] == 70
    row = await store.read(lambda db: db.fetch_one("SELECT * FROM movements WHERE seq = 5"))
    assert row is not None
    assert {name: row[name] for name in ("kind", "source", "target", "refers", "charge_id", "server", "tool", "principal")} == {
        "kind": "refund", "source": SEARCH, "target": wallets.account_of(ANN), "refers": CHARGE, "charge_id": "chg_1",
        "server": "shop", "tool": "search", "principal": "local:0",
    }  # fmt: skip
    assert (await checked(store)).is_right
    assert (await events(store))[1:] == [
        ("ledger.refunded", "local:0", "movement 5 takes back $0.00003 of 2"),
        ("ledger.refunded", "local:0", "movement 6 takes back $0.00007 of 2"),
    ]


async def test_what_came_from_a_chain_is_paid_out_by_hand_with_its_reference(store: AnyStore) -> None:
    for refers, source in ((PAYMENT, SEARCH), (DEPOSIT, wallets.account_of(ANN))):
        wrong = await store.write(partial(refund, refers=refers, paid_out=False))
        assert wrong == NotRefunded(reason="no_such_way")
        done = await store.write(partial(refund, refers=refers, amount=20, reference="0xfeed"))
        assert isinstance(done, Refunded)
        assert (done.kind, done.source, done.target) == ("payout", source, "paid-out")
    charge = await store.write(partial(refund, refers=CHARGE, paid_out=True, reference="0xbeef"))
    assert isinstance(charge, Refunded)
    assert (charge.source, charge.target) == (SEARCH, "paid-out")
    assert await store.read(balances) == {
        ANN: 880,
        BEN: 50,
        BASE: -1_070,
        SEARCH: 50,
        "granted": -50,
        "paid-out": 140,
    }
    notes = await store.read(lambda db: db.fetch_all("SELECT note FROM movements WHERE seq > 4 ORDER BY seq"))
    assert [row["note"] for row in notes] == ["0xfeed", "0xfeed", "0xbeef"]
    assert [event for event, _, _ in (await events(store))[1:]] == ["ledger.paid_out"] * 3
    assert (await checked(store)).is_right


async def test_a_cost_that_was_none_goes_back_and_does_not_come_again_with_its_receipt(
    store: AnyStore,
) -> None:
    cost, taken = "cost:shop/search", "upstream:shop/other"
    bought = moved("purchase", cost, taken, 40, server="shop", tool="search", charge_id="once:chg_7")
    seq = await store.write(partial(BOOKS.post, movement=bought, now=NOW))
    assert await store.write(partial(refund, refers=seq, paid_out=True)) == NotRefunded(reason="no_such_way")
    done = await store.write(partial(refund, refers=seq, reference="of no call"))
    assert isinstance(done, Refunded)
    assert (done.kind, done.source, done.target, done.left) == ("refund", taken, cost, 0)
    assert await store.write(partial(BOOKS.post, movement=bought, now=NOW)) == seq
    found = await store.read(balances)
    assert (found[cost], found[taken]) == (0, 0)
    assert (await checked(store)).is_right


async def test_no_more_is_taken_from_a_wallet_than_is_free(store: AnyStore) -> None:
    await store.write(partial(begin_charge, wallet=BEN, amount=20, charge="chg_9"))
    spent = await store.write(partial(refund, refers=GRANT))
    assert spent == NotRefunded(reason="spent", left=50, currency="USD")
    done = await store.write(partial(refund, refers=GRANT, amount=30))
    assert isinstance(done, Refunded)
    assert (done.target, done.left) == ("granted", 20)
    assert (await checked(store)).is_right


async def test_what_takes_back_is_not_taken_back_and_what_is_not_there_neither(store: AnyStore) -> None:
    await store.write(partial(refund, refers=CHARGE))
    assert await store.write(partial(refund, refers=5)) == NotRefunded(reason="not_taken_back")
    assert await store.write(partial(refund, refers=99)) == NotRefunded(reason="unknown")


async def test_a_grant_opens_a_wallet_and_is_in_the_trail(store: AnyStore) -> None:
    give = partial(refunds.grant, books=BOOKS, amount=5, currency="USD", note="", by="local:7", now=NOW)
    assert await store.write(partial(give, wallet="client:new")) == Granted(seq=5)
    assert (await store.read(balances))["client:new"] == 5
    assert (await events(store))[-1] == ("ledger.granted", "local:7", "movement 5 gives client:new $0.000005")
    assert (await checked(store)).is_right


async def test_a_grant_with_a_key_is_given_once_and_never_again(store: AnyStore) -> None:
    give = partial(refunds.grant, books=BOOKS, amount=5, currency="USD", note="", by="local:7", now=NOW)
    first = partial(give, wallet="client:new", once="order-7")
    assert await store.write(first) == Granted(seq=5)
    told = await events(store)
    assert await store.write(first) == Granted(seq=5, given_before=True)
    assert await events(store) == told  # nothing was decided
    assert (await store.read(balances))["client:new"] == 5
    # Also when it was taken back meanwhile.
    await store.write(partial(refund, refers=5))
    assert await store.write(first) == Granted(seq=5, given_before=True)
    assert (await store.read(balances))["client:new"] == 0
    # Another key, and none, are grants of their own.
    assert await store.write(partial(give, wallet="client:new", once="order-8")) == Granted(seq=7)
    assert await store.write(partial(give, wallet="client:new")) == Granted(seq=8)
    assert await store.write(partial(give, wallet="client:new")) == Granted(seq=9)
    assert (await checked(store)).is_right


@pytest.mark.parametrize("other", [{"wallet": "client:old"}, {"amount": 6}])
async def test_the_key_of_one_grant_is_for_no_other(store: AnyStore, other: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"wallet": "client:new", "amount": 5, "once": "order-7"}
    give = partial(refunds.grant, books=BOOKS, currency="USD", note="", by="local:7", now=NOW)
    await store.write(partial(give, **usual))
    with pytest.raises(OtherMovement):
        await store.write(partial(give, **{**usual, **other}))
    found = await store.read(balances)
    assert found["client:new"] == 5
    assert "client:old" not in found
    assert (await checked(store)).is_right
