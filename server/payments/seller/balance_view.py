"""The view of what somebody has here: balance, plans, what is left of free calls and trials, caps, the last movements. A job that reads,
and asks for little: what nobody has begun to use is not looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from auth.values.identity_model import Millis
from server.lib.money.amounts import Micros
from server.payments.seller import spending_caps, statements, wallets
from server.payments.seller.claims import Rules
from server.payments.seller.offers import CURRENCY, PricedTool
from server.payments.seller.plan_grants import active_grants
from server.payments.seller.plans import PlanStanding
from server.payments.seller.spending_caps import CapStanding
from server.payments.seller.statements import StatementFilter
from server.payments.seller.wallets import account_of
from server.store.jobs import StoreDb
from server.store.limits.usage_meters import period_at

MOVEMENTS: Final = 10
# Meters that are looked at: of more tools nobody reads.
METERS: Final = 100


class FreeLeft(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of a tool that cost nothing, if any of them were made: what is offered says the tool itself."""

    tool: str  # server/tool
    kind: Literal["trial", "month"]
    calls: int
    left: int


class HeldPlan(msgspec.Struct, frozen=True, kw_only=True):
    plan: PlanStanding
    ends_at: Millis | None


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """A movement as its wallet sees it."""

    seq: int
    at: Millis
    kind: str
    amount: Micros  # what came in; less than nothing: what went
    server: str | None
    tool: str | None
    note: str


class BalanceView(msgspec.Struct, frozen=True, kw_only=True):
    wallet: str
    currency: str
    balance: Micros
    held: Micros  # of it, for calls that are under way
    plans: tuple[HeldPlan, ...]
    free: tuple[FreeLeft, ...]
    caps: tuple[CapStanding, ...]
    shifts: tuple[Shift, ...]


def holdings(
    db: StoreDb,
    *,
    wallet: str,
    login: str | None,
    rules: Rules,
    tools: Iterable[PricedTool],
    now: Millis,
) -> BalanceView:
    found = wallets.find(db, wallet)
    ends = {each.plan: each.ends_at for each in active_grants(db, wallet, now)} if rules.plans.rules else {}
    plans = rules.plans.standing(db, wallet, now) if ends else []
    return BalanceView(
        wallet=wallet,
        currency=CURRENCY if found is None else found.currency,
        balance=0 if found is None else found.balance,
        held=0 if found is None else found.held,
        plans=tuple(HeldPlan(plan=each, ends_at=ends.get(each.name)) for each in plans),
        free=_free(db, wallet, {f"{each.server}/{each.tool}": each for each in tools}, now),
        caps=tuple(spending_caps.standing(db, rules.caps, wallet=wallet, login=login, now=now)),
        shifts=_shifts(db, wallet),
    )


def _free(db: StoreDb, wallet: str, tools: Mapping[str, PricedTool], now: Millis) -> tuple[FreeLeft, ...]:
    """List what is left. The meters of this wallet stand side by side."""
    found: list[FreeLeft] = []
    month, ever = period_at("month", now).name, period_at("ever", now).name
    prefix = f"wallet:{wallet}/"
    rows = db.fetch_all(
        "SELECT subject, period, amount FROM meters WHERE subject >= ? AND subject < ? AND period IN (?, ?)"
        " ORDER BY subject LIMIT ?",
        prefix, prefix + "\U0010ffff", month, ever, METERS,
    )  # fmt: skip
    for row in rows:
        what, _, name = row["subject"].removeprefix(prefix).partition("/")
        tool = tools.get(name)
        if tool is None:
            continue
        if what == "free" and row["period"] == month:
            kind, calls = "month", tool.free_calls
        elif what == "trial":
            kind, calls = "trial", tool.trial
        else:
            continue
        if calls:
            found.append(FreeLeft(tool=name, kind=kind, calls=calls, left=max(calls - row["amount"], 0)))
    return tuple(found)


def _shifts(db: StoreDb, wallet: str) -> tuple[Shift, ...]:
    account = account_of(wallet)
    page = statements.page(
        db, StatementFilter(account=account), oldest_first=False, at=None, at_most=MOVEMENTS
    )
    return tuple(
        Shift(
            amount=row["amount"] if row["target"] == account else -row["amount"],
            **{name: row[name] for name in ("seq", "at", "kind", "server", "tool", "note")},
        )
        for row in page.rows
    )
