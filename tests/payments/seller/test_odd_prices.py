"""Thousands of calls at prices that are no round numbers, worked out from their arguments: not a millionth is lost or made up.

What each call has to cost is worked out a second time here, in whole millionths.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any, Final

import pytest
import trio
from till_fakes import priced

from auth.values.identity_model import PrincipalKind
from server.payments.seller import refunds, wallets
from server.payments.seller.ledger import GRANTED, Books, Movement, revenue_account
from server.payments.seller.offers import CURRENCY, Offer
from server.payments.seller.priced_call import Served, Shown, Started
from server.payments.seller.refunds import Refunded, RefundOrder
from server.settings.money_settings import PriceTable
from server.store.jobs import StoreDb
from tests.payments.seller.books_fakes import checked
from tests.payments.seller.open_till import ANN, ANSWER, WALLET, OpenTill, a_call, open_till

pytestmark = pytest.mark.slow

GIVEN: Final = 20_000_000_000  # two dollars for each of ten thousand calls
JOB: Final = 500  # charges in one go
REVENUE: Final = revenue_account("main", "search")
USER: Final = PrincipalKind.USER
# As it is written, and the millionths that it comes to.
PRICES: Final[tuple[tuple[str | PriceTable, Callable[[int], int]], ...]] = (
    ("$0.000001", lambda n: 1),
    ("$0.3333", lambda n: 333_300),
    ("$1.999999", lambda n: 1_999_999),
    (PriceTable(expression="0.000001 * n", most="$2"), lambda n: n),
    (PriceTable(expression="0.1 * rate * n", most="$2"), lambda n: 7 * n),  # the rate is no binary fraction
    (PriceTable(expression="round_up(0.3333 * n / 7000)", most="$2"), lambda n: -(-3333 * n // 70)),
    (PriceTable(expression="1.999999 - 0.000001 * len(text)", most="$2"), lambda n: 1_999_999 - n % 17),
)


def arguments(number: int) -> dict[str, Any]:
    return {"n": number, "rate": 0.00007, "text": "x" * (number % 17)}


async def nobody(function: str, given: Mapping[str, Any]) -> str:
    raise AssertionError(f"nobody was to be asked for {function}")


async def offers(calls: int) -> AsyncGenerator[tuple[int, Offer]]:
    tools = [(priced(price=written), comes_to) for written, comes_to in PRICES]
    for number in range(1, calls + 1):
        tool, comes_to = tools[number % len(tools)]
        offer = await tool.offer(USER, arguments(number), nobody)
        assert offer is not None
        assert offer.amount == comes_to(number), (number, offer)
        yield number, offer


def refunded(db: StoreDb, books: Books, seq: int, number: int, amount: int, now: int) -> int:
    """Of each thirtieth a third, and of each sixtieth all of it, in two parts where there are two."""
    if number % 30:
        return 0
    back = 0
    for part in ([amount // 3] if amount >= 3 else []) + ([None] if number % 60 == 0 else []):
        done = refunds.refund(db, books, RefundOrder(refers=seq, amount=part), by="local:0", now=now)
        assert isinstance(done, Refunded), (number, done)
        back += done.amount
    return back


async def adds_up(at: OpenTill, charged: int, given_back: int) -> None:
    wallet = await at.wallet()
    accounts = {row["id"]: row["balance"] for row in await at.rows("accounts")}
    assert (wallet["balance"], wallet["held"]) == (GIVEN - charged + given_back, 0)
    assert accounts == {GRANTED: -GIVEN, REVENUE: charged - given_back}
    found = await checked(at.store.inner, at.books)
    assert found.is_right, (found.findings, found.broken)


async def test_after_ten_thousand_charges_with_refunds_between_every_millionth_is_accounted_for() -> None:
    def charge(db: StoreDb, at: OpenTill, run: list[tuple[int, Offer]]) -> int:
        back = 0
        for number, offer in run:
            assert wallets.hold(db, WALLET, offer.amount, at.now)
            movement = Movement(
                kind="charge", source=wallets.account_of(WALLET), target=REVENUE, amount=offer.amount,
                currency=CURRENCY, principal=ANN, server="main", tool="search", charge_id=f"chg_{number}",
            )  # fmt: skip
            back += refunded(db, at.books, at.books.post(db, movement, at.now), number, offer.amount, at.now)
        return back

    charged = given_back = 0
    with trio.fail_after(300):
        async with open_till() as at:
            await at.give(GIVEN)
            run: list[tuple[int, Offer]] = []
            async for each in offers(10_000):
                run.append(each)
                charged += each[1].amount
                if len(run) == JOB:
                    given_back += await at.store.inner.write(partial(charge, at=at, run=run))
                    run = []
            assert run == [] and given_back > 0
            await adds_up(at, charged, given_back)


async def test_calls_at_odd_prices_of_which_some_fail_cost_what_was_said() -> None:
    charged = given_back = 0
    with trio.fail_after(300):
        async with open_till() as at:
            await at.give(GIVEN)
            async for number, offer in offers(300):
                call = a_call(arguments(number), call_id=f"call_{number}")
                begun = await at.till.begin(call, offer, Shown())
                assert isinstance(begun, Started)
                if number % 11 == 0:
                    await at.till.release(begun)
                    continue
                served = await at.till.finish(begun, ANSWER)
                assert isinstance(served, Served)
                at.written(served)
                charged += offer.amount

                def give_back(db: StoreDb, number: int = number, amount: int = offer.amount) -> int:
                    row = db.fetch_one("SELECT MAX(seq) AS seq FROM movements")
                    assert row is not None
                    return refunded(db, at.books, row["seq"], number, amount, at.now)

                given_back += await at.store.inner.write(give_back)
            await adds_up(at, charged, given_back)
