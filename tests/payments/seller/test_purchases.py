"""What was paid to others for a call: in the books once, whatever the store could do when it was paid, and whoever still waits for the call."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from auth.values.identity_model import Principal, PrincipalKind
from server.payments.buyer.outlays import GivenReceipt, Outlay
from server.payments.seller.purchases import MOST_TAKEN, NOT_BOOKED, PurchaseBook
from server.payments.seller.receipts import Receipts
from server.store.jobs import JobTooSlow, StoreBroken, StoreFull, StoreUnavailable
from server.store.write_retry import WriteRetry
from tests.payments.seller.books_fakes import checked
from tests.payments.seller.open_till import OpenTill, no_room, open_till
from tests.payments.seller.test_receipts import ISSUER, a_charge, a_key, opened, receipt

MOST_OWED = 1_000

ASSET = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"
CHAIN = f"chain:eip155:84532:{ASSET.lower()}"


def outlay(**changes: Any) -> Outlay:
    fields: dict[str, Any] = {
        "identifier": "pay-1", "amount": 20_000, "network": "eip155:84532", "asset": ASSET, "tool": "sell", "call_id": "call_1",
        "caller": None, "transaction": "0x01",
    }  # fmt: skip
    return Outlay(**{**fields, **changes})


class Buying:
    def __init__(self, at: OpenTill) -> None:
        store: Any = at.store
        self.at = at
        self.arrears = WriteRetry(store, at.log, NOT_BOOKED)
        self.book = PurchaseBook("main", store, at.books, self.arrears, clock=lambda: at.now, log=at.log)

    async def booked(self) -> list[tuple[str, str, int]]:
        rows = await self.at.rows("movements")
        assert not rows or (await checked(self.at.store.inner, self.at.books)).is_right
        return [(row["source"], row["target"], row["amount"]) for row in rows]


ONCE = [("cost:main/sell", CHAIN, 20_000)]


@asynccontextmanager
async def buying() -> AsyncGenerator[Buying]:
    async with open_till() as at:
        yield Buying(at)


@pytest.mark.parametrize("problem", [StoreUnavailable, StoreFull, StoreBroken, JobTooSlow])
async def test_what_could_not_be_booked_is_booked_as_soon_as_it_can(
    problem: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    async with buying() as it, trio.open_nursery() as background:
        background.start_soon(it.arrears.run)
        it.at.store.failing = lambda name: problem("no room") if name == "post" else None
        await it.book.book(outlay())  # and its call is answered
        assert await it.booked() == []
        assert "purchase.not_booked_yet" in it.at.heard.getvalue()
        it.at.store.failing = lambda name: None
        with trio.fail_after(5):
            while not await it.booked():
                await trio.sleep(0.01)
        assert await it.booked() == ONCE
        assert "purchase.booked_late" in it.at.heard.getvalue()
        background.cancel_scope.cancel()


async def test_one_of_which_nobody_knows_whether_it_was_booked_is_booked_once() -> None:
    async with buying() as it:
        it.at.store.losing = lambda name: name == "post"
        await it.book.book(outlay())
        it.at.store.losing = lambda name: False
        await it.arrears.settle()
        await it.book.book(outlay())  # the call is made again, and tells of the same payment
        assert await it.booked() == ONCE


async def test_whoever_leaves_once_it_is_paid_does_not_keep_it_from_the_books() -> None:
    async with buying() as it:
        with trio.CancelScope() as caller:
            caller.cancel()
            await it.book.book(outlay())
        assert await it.booked() == ONCE


async def test_what_can_never_be_booked_keeps_nobody_from_the_answer_and_is_told() -> None:
    async with buying() as it:
        await it.book.book(outlay())
        await it.book.book(outlay(amount=30_000))
        assert await it.booked() == ONCE
        assert not it.arrears
        assert NOT_BOOKED in it.at.heard.getvalue()
        assert "30000" in it.at.heard.getvalue()


async def test_what_is_still_owed_is_booked_before_the_process_ends() -> None:
    async with buying() as it:
        async with trio.open_nursery() as background:
            background.start_soon(it.arrears.run)
            it.at.store.failing = no_room("post")
            caller = Principal(kind=PrincipalKind.USER, subject="ann")
            await it.book.book(outlay(caller=caller))
            it.at.store.failing = lambda name: None
            background.cancel_scope.cancel()
        assert await it.booked() == ONCE
        (movement,) = await it.at.rows("movements")
        assert movement["principal"] == caller.key()


KEY = a_key()


def given(text: str = "", upstream: str = "shop", issuer: str = ISSUER, **charge: Any) -> GivenReceipt:
    text = text or receipt(KEY, **charge)
    return GivenReceipt(
        text=text, issuer=issuer, upstream=upstream, tool="sell", call_id="call_1", caller=None
    )


async def test_what_an_upstream_takes_from_a_balance_is_booked_once_by_its_receipt() -> None:
    async with buying() as it:
        await it.book.book_receipt(given())
        await it.book.book_receipt(given())  # the call was made again with its key
        await it.book.book_receipt(given(id="chg_2", amount=5_000))
        await it.book.book_receipt(given(upstream="other"))  # which counts by itself
        assert await it.booked() == [
            ("cost:main/sell", "upstream:main/shop", 10_000),
            ("cost:main/sell", "upstream:main/shop", 5_000),
            ("cost:main/sell", "upstream:main/other", 10_000),
        ]
        assert (await it.at.rows("movements"))[0]["note"] == "receipt chg_1"


@pytest.mark.parametrize("charge", [{"how": "payment"}, {"how": "quota"}, {"amount": 0}])
async def test_a_receipt_of_what_took_nothing_from_a_balance_is_not_booked(charge: dict[str, Any]) -> None:
    async with buying() as it:
        await it.book.book_receipt(given(**charge))
        assert await it.booked() == []
        assert it.at.heard.getvalue() == ""


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "a.b.c",
        receipt(KEY, amount=MOST_TAKEN + 1),
        receipt(KEY, amount=10**18),
        receipt(KEY, id="two\nlines"),
        receipt(KEY, id="x" * 101),
        receipt(KEY).replace(".", ".x", 1),
        "x" * 100_000,
    ],
    ids=["word", "parts", "dear", "endless", "lines", "long id", "damaged", "long"],
)
async def test_a_receipt_that_is_none_is_left_and_told_of_in_few_words(text: str) -> None:
    async with buying() as it:
        await it.book.book_receipt(given(text))
        assert await it.booked() == []
        said = it.at.heard.getvalue()
        assert "purchase.unreadable_receipt" in said
        assert len(said) < 1_000


@pytest.mark.parametrize(
    "issuer", ["https://proxy.example", f"{ISSUER}:8443", ISSUER.replace("https", "http"), ""]
)
async def test_a_receipt_of_somebody_else_is_left_and_told_of(issuer: str) -> None:
    async with buying() as it:
        await it.book.book_receipt(given(issuer=issuer))
        assert await it.booked() == []
        assert "purchase.unreadable_receipt" in it.at.heard.getvalue()
        assert ISSUER in it.at.heard.getvalue()


async def test_a_receipt_in_another_currency_is_left() -> None:
    text = Receipts(issuer=ISSUER, key=lambda: opened(KEY), currency="EUR").of(a_charge(), None, at=1_000)
    async with buying() as it:
        await it.book.book_receipt(given(text))
        assert await it.booked() == []
        assert "purchase.unreadable_receipt" in it.at.heard.getvalue()


async def test_a_receipt_that_could_not_be_booked_is_booked_as_soon_as_it_can() -> None:
    async with buying() as it:
        it.at.store.failing = no_room("post")
        await it.book.book_receipt(given())
        it.at.store.failing = lambda name: None
        await it.arrears.settle()
        assert await it.booked() == [("cost:main/sell", "upstream:main/shop", 10_000)]


async def test_receipts_that_cannot_be_booked_are_owed_up_to_a_bound_and_beyond_it_told_of() -> None:
    async with buying() as it:
        it.at.store.failing = no_room("post")
        for number in range(MOST_OWED + 3):
            await it.book.book_receipt(given(id=f"chg_{number}"))
        assert len(it.arrears) == MOST_OWED
        told = [line for line in it.at.heard.getvalue().splitlines() if re.search(rf"{NOT_BOOKED}\b", line)]
        assert len(told) == 3
        for number, line in enumerate(told, MOST_OWED):
            assert f"receipt chg_{number}" in line
            assert "upstream:main/shop" in line
            assert "10000" in line
        await it.book.book(outlay())  # what we paid is owed all the same: the wallet bounds it
        it.at.store.failing = lambda name: None
        await it.arrears.settle()
        assert len(await it.booked()) == MOST_OWED + 1


async def test_the_answers_of_many_calls_at_once_owe_no_more_than_that() -> None:
    async with buying() as it:
        it.at.store.failing = no_room("post")
        async with trio.open_nursery() as calls:
            for number in range(MOST_OWED + 50):
                calls.start_soon(it.book.book_receipt, given(id=f"chg_{number}"))
        assert len(it.arrears) == MOST_OWED


async def test_while_the_store_cannot_write_one_answer_waits_for_it_and_those_after_it_do_not() -> None:
    async with buying() as it:
        tried: list[str] = []

        def failing(name: str) -> Exception | None:
            tried.append(name)
            return StoreUnavailable("no room")

        it.at.store.failing = failing
        for number in range(5):
            await it.book.book_receipt(given(id=f"chg_{number}"))
        assert tried == ["post"]
        it.at.store.failing = lambda name: None
        await it.arrears.settle()
        assert [amount for *_, amount in await it.booked()] == [10_000] * 5
