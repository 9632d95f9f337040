"""What somebody has, in words, and what they may change of it (server/run/account_money.py); and what was earned (server/payments/seller/revenue.py)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from auth.values.cashier import ANY_LOGIN, ANY_TOOL, CashierRefusal
from auth.values.identity_model import STRANGER, Principal, PrincipalKind
from server.payments.seller import plan_grants, revenue, spending_caps, vouchers, wallets
from server.payments.seller.ledger import GRANTED, revenue_account
from server.payments.seller.plans import trial_subject
from server.payments.seller.revenue import Revenue
from server.payments.seller.vouchers import VoucherOrder
from server.store.jobs import StoreDb
from server.store.limits import usage_meters
from tests.payments.seller.books_fakes import ANN, BOOKS, NOW, AnyStore, balances, do, moved
from tests.payments.seller.cashier_fakes import a_cashier

DAY = 86_400_000
SEED = bytes(range(32))
CENT = 10_000


def given(db: StoreDb, amount: int, wallet: str = ANN) -> None:
    wallets.open_wallet(db, wallet, "USD", NOW)
    BOOKS.post(db, moved("grant", GRANTED, wallets.account_of(wallet), amount, note="welcome"), NOW)


def called(db: StoreDb, number: int, *, tool: str = "echo", at: int = NOW, amount: int = CENT) -> None:
    assert wallets.hold(db, ANN, amount, at)
    target = revenue_account("agent", tool)
    movement = moved(
        "charge",
        wallets.account_of(ANN),
        target,
        amount,
        server="agent",
        tool=tool,
        charge_id=f"chg_{number}",
    )
    BOOKS.post(db, movement, at)


def asked(db: StoreDb, cashier: Any, scope: str = "mcp:tools") -> str:
    return cashier.asks(db, "ann", "agent", scope, NOW)


async def voucher(store: AnyStore, **order: Any) -> str:
    usual: dict[str, Any] = {
        "amount": 5_000_000, "currency": "USD", "plan": None, "uses": 1, "note": "", "expires_at": NOW + DAY,
    }  # fmt: skip
    made = await store.write(
        partial(vouchers.make, order=VoucherOrder(**usual | order), seed=SEED, by="local:0", now=NOW)
    )
    return made.code.reveal()


def all_of_it(db: StoreDb) -> None:
    given(db, 1_000_000)
    called(db, 1)
    assert wallets.hold(db, ANN, 20_000, NOW)
    plan_grants.grant_plan(
        db, grant_id="plg_1", wallet=ANN, plan="pro", ends_at=NOW + DAY, by="local:0", now=NOW
    )
    usage_meters.raise_meter(db, trial_subject(ANN, "agent/echo"), usage_meters.period_at("ever", NOW), 1, 3)
    spending_caps.set_cap(db, spending_caps.login_subject("grn_1"), "day", 50_000, by="usr", now=NOW)


async def test_what_somebody_has_is_told_in_words(store: AnyStore) -> None:
    cashier = a_cashier(store, BOOKS, per_day="$5", per_login="$20", per_tool="$2")
    await store.write(all_of_it)
    held = await store.read(partial(cashier.look, person="ann", logins=["grn_1", "grn_2"], now=NOW))
    assert (held.balance, held.held) == ("$0.99", "$0.02")
    assert [(line.name, line.words) for line in held.covers] == [
        ("Plan pro", "For those who call often; 100 of 100 calls left this month"),
        ("agent/echo", "2 of 3 free calls left"),
    ]
    assert [(cap.login, cap.words, cap.own) for cap in held.caps] == [
        ("", "$5.00 a day", False),
        (ANY_LOGIN, "$20.00 in all", False),
        (ANY_TOOL, "$2.00 a day", False),
        ("grn_1", "$0.05 a day", True),
    ]
    assert [(shift.words, shift.amount, shift.came_in) for shift in held.shifts] == [
        ("Call: agent/echo", "-$0.01", False),
        ("Given to you: welcome", "+$1.00", True),
    ]


async def test_a_program_is_told_the_same_in_numbers(store: AnyStore) -> None:
    cashier = a_cashier(store, BOOKS, per_day="$5", per_tool="$2")
    await store.write(all_of_it)
    principal = Principal(
        kind=PrincipalKind.USER, subject="ann", scopes=frozenset(), grant_id="grn_1", client_id="cli"
    )
    told = await store.read(partial(cashier.mine, principal=principal, server="agent", now=NOW))
    assert told["plan"] == "pro"
    assert told["quota"] == {
        "pro": {"used": 0, "limit": 100},
        "agent/echo": {"used": 1, "limit": 3, "kind": "trial"},
    }
    assert told["wallet"] == {
        "id": ANN, "currency": "USD", "balance": 990_000, "held": 20_000, "words": "$0.99",
    }  # fmt: skip
    assert [(cap["of"], cap["period"], cap["limit"]) for cap in told["caps"]] == [
        ("wallet", "day", 5_000_000),
        ("login", "day", 50_000),
        ("tool", "day", 2_000_000),
    ]
    assert told["caps"][-1]["words"] == "$2.00 a day on any one tool"
    assert [each["amount"] for each in told["movements"]] == [-CENT, 1_000_000]


async def test_who_bought_a_token_is_told_of_the_balance_and_what_it_is_good_for(store: AnyStore) -> None:
    cashier = a_cashier(store, BOOKS)
    wallet = "payer:eip155:8453:0xab"
    await store.write(lambda db: given(db, 1_000_000, wallet))
    principal = Principal(
        kind=PrincipalKind.PAYER, subject="payer:eip155:8453:0xAB", client_id="payers", grant_id="grn_2"
    )
    told = await store.read(partial(cashier.mine, principal=principal, server="agent", now=NOW))
    assert (told["wallet"]["id"], told["wallet"]["words"]) == (wallet, "$1.00")
    assert [each["amount"] for each in told["movements"]] == [1_000_000]
    assert told["may"] == (
        "Call what is sold here without a login, from this balance, and nothing else: one of its tools costs $0.01 a call."
    )
    elsewhere = await store.read(partial(cashier.mine, principal=principal, server="other", now=NOW))
    assert elsewhere["may"].endswith("and nothing else.")
    stranger = await store.read(partial(cashier.mine, principal=STRANGER, server="agent", now=NOW))
    assert stranger == {}


async def test_who_has_nothing_is_told_so_and_a_nobody_nothing(store: AnyStore) -> None:
    cashier = a_cashier(store, BOOKS)
    held = await store.read(partial(cashier.look, person="ben", logins=[], now=NOW))
    assert (held.balance, held.held, held.covers, held.caps, held.shifts) == ("$0.00", "", (), (), ())
    nobody = Principal(
        kind=PrincipalKind.ANONYMOUS, subject="anonymous", scopes=frozenset(), grant_id=None, client_id=None
    )
    assert await store.read(partial(cashier.mine, principal=nobody, server="agent", now=NOW)) == {}


# ── vouchers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def redeemed(store: AnyStore, typed: str) -> str:
    cashier = a_cashier(store, BOOKS)
    return await store.write(partial(cashier.redeem, person="ann", typed=typed, seed=SEED, now=NOW))


async def test_a_voucher_for_money_and_a_plan_brings_both_in_one_job(store: AnyStore) -> None:
    code = await voucher(store, plan="pro")
    assert await redeemed(store, code) == "$5.00 and the plan pro"
    granted = await store.read(partial(plan_grants.active_grants, wallet=ANN, now=NOW))
    assert [(each.plan, each.ends_at) for each in granted] == [("pro", NOW + 30 * DAY)]
    assert (await store.read(balances))[ANN] == 5_000_000
    with pytest.raises(CashierRefusal, match="used this voucher already"):
        await redeemed(store, code)


async def test_a_voucher_for_a_plan_that_somebody_has_is_not_used_up(store: AnyStore) -> None:
    code = await voucher(store, plan="pro")
    await store.write(
        lambda db: plan_grants.grant_plan(
            db, grant_id="plg_9", wallet=ANN, plan="pro", ends_at=None, by="local:0", now=NOW
        )
    )
    with pytest.raises(CashierRefusal, match="on that plan already"):
        await redeemed(store, code)
    assert ANN not in await store.read(balances)
    assert (await store.read(vouchers.listing))[0].uses_left == 1


@pytest.mark.parametrize(
    ("typed", "words"), [("", "not a voucher"), ("ABCDE", "not a voucher"), ("A" * 25, "no such")]
)
async def test_what_is_no_voucher_is_told_apart(store: AnyStore, typed: str, words: str) -> None:
    with pytest.raises(CashierRefusal, match=words):
        await redeemed(store, typed)


# ── caps ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_cap_of_one_s_own_is_set_replaced_and_taken_away_with_a_row_in_the_trail(
    store: AnyStore,
) -> None:
    cashier = a_cashier(store, BOOKS)
    own = {"person": "ann", "login": "", "period": "day", "by": "ann", "now": NOW}
    for typed in ("$3", "2.50"):
        await store.write(partial(cashier.cap, typed=typed, **own))
    held = await store.read(partial(cashier.look, person="ann", logins=[], now=NOW))
    assert [(cap.words, cap.own) for cap in held.caps] == [("$2.50 a day", True)]
    assert await store.write(partial(cashier.uncap, **own))
    assert not await store.write(partial(cashier.uncap, **own))
    events = await store.read(lambda db: db.fetch_all("SELECT event, actor FROM audit ORDER BY seq"))
    assert [row["event"] for row in events] == ["cap.set", "cap.set", "cap.removed"]
    assert {row["actor"] for row in events} == {"user:ann"}


@pytest.mark.parametrize("typed", ["", "much", "-1", "$0.0000001", "9" * 40])
async def test_an_amount_that_is_none_sets_no_cap(store: AnyStore, typed: str) -> None:
    cashier = a_cashier(store, BOOKS)
    job = partial(cashier.cap, person="ann", login="", typed=typed, period="day", by="ann", now=NOW)
    with pytest.raises(CashierRefusal, match=r"^That is "):
        await store.write(job)
    assert await store.read(lambda db: db.fetch_all("SELECT 1 FROM spend_caps")) == []


# ── before a program is let in ───────────────────────────────────────────────────────────────────────────────────────


async def test_who_is_asked_learns_what_may_be_spent_and_up_to_what(store: AnyStore) -> None:
    await store.write(partial(given, amount=3_200_000))
    bounded = a_cashier(store, BOOKS, per_day="$5", per_tool="$2", per_login="$20")
    assert await store.read(partial(asked, cashier=bounded)) == (
        "It may spend from your balance ($3.20 now), up to $5.00 a day, $2.00 a day on any one tool and $20.00 with this login:"
        " one of its tools costs $0.01 a call. It needs a permission of its own to move any other money."
    )
    unbounded = a_cashier(store, BOOKS)
    assert "up to all of it" in await store.read(partial(asked, cashier=unbounded))
    assert await store.read(partial(asked, cashier=bounded, scope="mcp:resources")) == ""
    assert await store.read(lambda db: bounded.asks(db, "ann", "elsewhere", "mcp:tools", NOW)) == ""


# ── what was earned ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_takings_are_added_up_by_day_month_and_tool_and_go_on_where_they_ended(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revenue, "STRETCH", 2)  # several pieces
    await store.write(partial(given, amount=1_000_000))
    for number, at in enumerate((NOW - 40 * DAY, NOW - DAY, NOW - DAY, NOW)):
        await store.write(partial(called, number=number, at=at))
    counted = Revenue(store)
    first = await counted.look(NOW)
    assert (first.today, first.month) == (CENT, 3 * CENT)
    await store.write(partial(called, number=7, tool="render", amount=5 * CENT))
    back = moved(
        "refund",
        revenue_account("agent", "echo"),
        wallets.account_of(ANN),
        CENT,
        server="agent",
        tool="echo",
        refers=5,
    )
    await store.write(lambda db: BOOKS.post(db, back, NOW))
    for looked in (await counted.look(NOW), await Revenue(store).look(NOW)):
        assert (looked.today, looked.month) == (5 * CENT, 7 * CENT)
        assert [(each.tool, each.today, each.month, each.ever) for each in looked.tools] == [
            ("agent/render", 5 * CENT, 5 * CENT, 5 * CENT),
            ("agent/echo", 0, 2 * CENT, 3 * CENT),
        ]


async def test_the_next_month_begins_with_nothing(store: AnyStore) -> None:
    await store.write(partial(given, amount=1_000_000))
    await store.write(partial(called, number=1))
    counted = Revenue(store)
    assert (await counted.look(NOW)).month == CENT
    later = await counted.look(NOW + 40 * DAY)
    assert (later.today, later.month, later.tools[0].ever) == (0, 0, CENT)


async def test_a_month_begins_with_its_first_moment_and_what_was_before_is_not_added_up(
    store: AnyStore,
) -> None:
    begins = 1_803_859_200_000  # 2027-03-01
    await store.write(partial(given, amount=1_000_000))
    await store.write(partial(called, number=1, at=begins - 1))
    await store.write(partial(called, number=2, at=begins))
    counted = Revenue(store)
    found = await counted.look(begins)
    assert (found.today, found.month, found.tools[0].ever) == (CENT, CENT, 2 * CENT)
    assert {day for _, day in counted._sums} == {begins // DAY}


async def test_payments_without_an_outcome_are_counted_with_the_oldest(store: AnyStore) -> None:
    sql = (
        "INSERT INTO payments (id, network, asset, payer, nonce, proof_hash, purpose, fingerprint, server, caller, atomic, amount,"
        " currency, pay_to, valid_before, state, requirements, tries, created_at, expires_at)"
        " VALUES (?, 'n', 'a', 'p', ?, '', 'call', '', 'agent', '', '1', 1, 'USD', '', 0, ?, '[]', 1, ?, 0)"
    )
    for number, state in enumerate(("settling", "unknown", "settled", "refused")):
        await store.write(do(sql, f"pay_{number}", str(number), state, NOW - number))
    found = (await Revenue(store).look(NOW)).unsettled
    assert (found.count, found.unknown, found.oldest_at) == (2, 1, NOW - 1)
    told = await a_cashier(store, BOOKS).taken(NOW)
    assert told.trouble == "2 payments are not settled yet; of 1 nobody knows yet what became"
