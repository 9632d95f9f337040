"""Money on the account page and where a program is let in: whose it is, what they may change, and what a stranger to it may not."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from server.payments.seller import spending_caps, vouchers, wallets
from server.payments.seller.ledger import GRANTED, Books, Movement, revenue_account
from server.payments.seller.vouchers import NewVoucher, VoucherOrder
from tests.auth.browser_fakes import START, Browser, House, location
from tests.auth.people_fakes import let_in
from tests.payments.seller.cashier_fakes import a_cashier

REDEEM, CAP, UNCAP = "/account/money/redeem", "/account/money/cap", "/account/money/uncap"
BOOKS = Books(b"k")


def house_that_sells(**settings: str) -> House:
    """Alice owns it, bob may come in, and its tool costs a cent."""
    house = House().owned()
    house.add_user("usr_bob", "bob")
    house.parts = replace(house.parts, cashier=a_cashier(house.store, BOOKS, **settings))
    return house


async def signed_in(house: House, name: str = "bob") -> Browser:
    browser = Browser(house)
    await browser.sign_in(name)
    await browser.get("/account/you")
    return browser


def now(house: House, job: Any) -> Any:
    """A job of the till, whose database books as well."""
    return house.store.now(job)


def given(house: House, amount: int, wallet: str = "user:usr_bob") -> None:
    def job(db: Any) -> None:
        wallets.open_wallet(db, wallet, "USD", house.time)
        movement = Movement(
            kind="grant", source=GRANTED, target=wallets.account_of(wallet), amount=amount, currency="USD",
            principal="local:0",
        )  # fmt: skip
        BOOKS.post(db, movement, house.time)

    house.store.now(job)


def a_voucher(house: House, **order: Any) -> str:
    usual: dict[str, Any] = {
        "amount": 5_000_000, "currency": "USD", "plan": None, "uses": 1, "note": "", "expires_at": START * 2,
    }  # fmt: skip
    made: NewVoucher = now(
        house,
        partial(
            vouchers.make, order=VoucherOrder(**usual | order), seed=bytes(32), by="local:0", now=house.time
        ),
    )
    return made.code.reveal()


async def test_where_nothing_costs_anything_the_page_is_silent_about_money() -> None:
    house = House().owned()
    browser = await signed_in(house, "alice")
    assert "Your money here" not in browser.words
    assert "earned" not in browser.words
    reply = await browser.post(REDEEM, ("voucher", "x"), follow=False)
    assert reply.status == 303
    assert house.rows("wallets") == []


async def test_a_person_sees_balance_and_movements_and_not_what_the_server_earned() -> None:
    house = house_that_sells(per_day="$5")
    given(house, 3_200_000)
    given(house, 9_990_000, "user:" + house.owner_id)
    browser = await signed_in(house)
    assert "$3.20" in browser.words
    assert "$9.99" not in browser.words
    assert "$5.00 a day" in browser.words
    assert "+$3.20" in browser.words
    assert "earned" not in browser.words


async def test_the_owner_sees_what_each_tool_earned() -> None:
    house = house_that_sells()
    given(house, 1_000_000)

    def sold(db: Any) -> None:
        assert wallets.hold(db, "user:usr_bob", 20_000, house.time)
        movement = Movement(
            kind="charge", source="wallet:user:usr_bob", target=revenue_account("agent", "echo"), amount=20_000,
            currency="USD", principal="user:usr_bob:", server="agent", tool="echo", charge_id="chg_1",
        )  # fmt: skip
        BOOKS.post(db, movement, house.time)

    house.store.now(sold)
    browser = await signed_in(house, "alice")
    await browser.get("/account")
    assert "What this server earned" in browser.words
    assert "$0.02 this month, $0.02 of it today" in browser.words
    assert "agent/echo" in browser.words


async def test_a_voucher_is_redeemed_once_and_the_page_says_so() -> None:
    house = house_that_sells()
    code = a_voucher(house)
    browser = await signed_in(house)
    reply = await browser.submit(REDEEM, voucher=code.lower(), follow=False)
    assert location(reply) == "/account/you?did=voucher-redeemed"
    await browser.get("/account/you?did=voucher-redeemed")
    assert "Redeemed." in browser.words
    assert "$5.00" in browser.words
    await browser.submit(REDEEM, voucher=code)
    assert browser.page.status == 400
    assert "used this voucher already" in browser.words
    assert 'aria-invalid="true"' in browser.text
    assert code not in browser.text


@pytest.mark.parametrize("typed", ["", "x", "A" * 25, "<script>", "x" * 3_000])
async def test_what_is_no_voucher_changes_nothing(typed: str) -> None:
    house = house_that_sells()
    browser = await signed_in(house)
    await browser.submit(REDEEM, voucher=typed)
    assert browser.page.status == 400
    assert house.rows("wallets") == []
    assert "<script>" not in browser.text


async def test_a_cap_is_set_for_a_login_shown_and_removed() -> None:
    house = house_that_sells()
    login = let_in(house, "usr_bob")
    browser = await signed_in(house)
    reply = await browser.submit(CAP, login=login, amount="$2", period="day", follow=False)
    assert location(reply) == "/account/you?did=cap-set"
    await browser.get("/account/you")
    assert "$2.00 a day" in browser.words
    found = now(house, partial(spending_caps.caps_of, subject=spending_caps.login_subject(login)))
    assert [(each.period, each.amount, each.set_by) for each in found] == [("day", 2_000_000, "usr_bob")]
    reply = await browser.submit(UNCAP, follow=False)
    assert location(reply) == "/account/you?did=cap-removed"
    assert house.rows("spend_caps") == []


async def test_nobody_sets_a_cap_for_somebody_else_s_login() -> None:
    house = house_that_sells()
    theirs = let_in(house, house.owner_id)
    unknown = "grn_unknown"
    browser = await signed_in(house)
    for login, period in ((theirs, "day"), (unknown, "day"), ("", "hour")):
        await browser.get("/account/you")
        reply = await browser.submit(CAP, login=login, amount="$2", period=period, follow=False)
        assert location(reply) == "/account/you?did=gone"
    assert house.rows("spend_caps") == []


async def test_a_form_of_another_page_or_browser_does_nothing() -> None:
    house = house_that_sells()
    code = a_voucher(house)
    await signed_in(house)
    browser = await signed_in(house)
    for path in (REDEEM, CAP, UNCAP):
        reply = await browser.post(path, ("form_token", "forged"), ("voucher", code), ("amount", "$1"))
        assert reply.status == 403
    assert house.rows("wallets") == []


# ── before a program is let in ───────────────────────────────────────────────────────────────────────────────────────


async def test_whoever_lets_a_device_in_is_told_what_it_may_spend() -> None:
    house = house_that_sells(per_day="$5", per_tool="$2")
    given(house, 1_500_000)
    browser = await signed_in(house)
    await browser.get("/account/you")
    assert "Any one tool" in browser.words
    await browser.look_at(house.ask())
    told = browser.words.partition("It may spend ")[2]
    for fact in ("$1.50 now", "$5.00 a day", "$2.00 a day on any one tool"):
        assert fact in told.partition(":")[0], fact
    # It is no other truth than what the permission says that stands beside it.
    assert "except what moves money" in told and "a permission of its own" in told
    free = House().owned()
    free.add_user("usr_bob", "bob")
    browser = await signed_in(free)
    await browser.look_at(free.ask())
    assert "spend" not in browser.words


async def test_what_was_typed_of_a_cap_stays_where_it_is_no_amount_and_a_voucher_does_not() -> None:
    browser = await signed_in(house_that_sells())
    await browser.submit(CAP, login="", amount="a <lot>", period="day")
    assert browser.page.status == 400
    assert 'value="a &lt;lot&gt;" aria-invalid="true" aria-describedby="problem"' in browser.text
    assert '<option value="day" selected>' in browser.text
    await browser.get("/account/you")
    await browser.submit(REDEEM, voucher="AAAAA-BBBBB")
    assert browser.page.status == 400 and "AAAAA-BBBBB" not in browser.text
