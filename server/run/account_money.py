"""The till as identity sees it (`auth/values/cashier.py`): what somebody has, in words, and what they may change of it.

Its jobs are handed the store's own database, which can book movements; identity knows less of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from auth.audit import audit_trail
from auth.values import scopes
from auth.values.cashier import (
    ANY_LOGIN,
    ANY_TOOL,
    CapPeriod,
    CashierRefusal,
    MoneyCap,
    MoneyEarned,
    MoneyHeld,
    MoneyLine,
    MoneyShift,
    MoneyTaken,
)
from auth.values.database import Db
from auth.values.entropy import Entropy
from auth.values.identity_model import Millis, Principal, PrincipalKind
from server.agents.base.catalog import Catalog
from server.lib.counted import counted
from server.lib.money.amounts import BadAmount, Micros, parse, shown
from server.payments.seller import spending_caps, vouchers, wallets
from server.payments.seller.balance_view import BalanceView, FreeLeft, HeldPlan, Shift, holdings
from server.payments.seller.claims import Rules
from server.payments.seller.ledger import Books
from server.payments.seller.offers import CURRENCY, PricedTool
from server.payments.seller.plan_grants import DAY, PlanNotGranted, grant_plan
from server.payments.seller.price_tags import words_of_prices
from server.payments.seller.revenue import Revenue, Unsettled
from server.payments.seller.spending_caps import CapStanding
from server.payments.seller.vouchers import NotRedeemed
from server.store.jobs import Store, StoreDb

# Of somebody's caps, those that are shown: a login has one for each period.
MOST_LOGINS: Final = 200
_ON_A_TOOL: Final = "on any one tool"
# Beside it stands a permission for all but "what moves money": that is other people's, or on other accounts than the one here.
_NO_OTHER_MONEY: Final = "It needs a permission of its own to move any other money."

_NOT_REDEEMED: Final[Mapping[str, str]] = {
    "unknown": "There is no such voucher. Look at its letters again.",
    "revoked": "This voucher was taken back.",
    "expired": "This voucher is past its time.",
    "used_up": "This voucher was used already, as often as it may be.",
    "used_before": "You have used this voucher already.",
    "other_currency": "This voucher is of another currency than your balance.",
}
_KINDS: Final[Mapping[str, str]] = {
    "payment": "Paid",
    "deposit": "Paid in",
    "charge": "Call",
    "grant": "Given to you",
    "voucher": "Voucher",
    "refund": "Given back",
    "payout": "Paid out to you",
}


class AccountMoney:
    """`catalogs`: by server, filled in when they are open."""

    def __init__(
        self, *, rules: Rules, books: Books, store: Store, catalogs: Mapping[str, Catalog], takings: Revenue
    ) -> None:
        self._rules = rules
        self._books = books
        self._store = store
        self._catalogs = catalogs
        self.takings: Final = takings

    # ── what somebody has ────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, db: Db, person: str, logins: Sequence[str], now: Millis) -> MoneyHeld:
        own, wallet = cast("StoreDb", db), wallet_of_person(person)
        found = holdings(own, wallet=wallet, login=None, rules=self._rules, tools=self._priced(), now=now)
        mine = {
            (cap.subject, cap.period)
            for cap in spending_caps.caps_of(own, spending_caps.wallet_subject(wallet))
        }
        listed = [_cap("", each, (each.subject, each.period) in mine) for each in found.caps]
        if (bound := self._rules.caps.per_login) is not None:
            words = f"{shown(bound)} in all"
            listed.append(MoneyCap(login=ANY_LOGIN, period="ever", words=words, spent="", own=False))
        if (bound := self._rules.caps.per_tool) is not None:
            words = f"{shown(bound)} a day"
            listed.append(MoneyCap(login=ANY_TOOL, period="day", words=words, spent="", own=False))
        for login in logins[:MOST_LOGINS]:
            own_caps = {cap.period for cap in spending_caps.caps_of(own, spending_caps.login_subject(login))}
            listed += [
                _cap(login, each, True)
                for each in spending_caps.standing(own, self._rules.caps, wallet=None, login=login, now=now)
                if each.period in own_caps
            ]
        return MoneyHeld(
            balance=shown(found.balance, found.currency),
            held=shown(found.held, found.currency) if found.held else "",
            covers=(*map(_plan_line, found.plans), *map(_free_line, found.free)),
            caps=tuple(listed),
            shifts=tuple(_shift(each, found.currency) for each in found.shifts),
        )

    def redeem(self, db: Db, person: str, typed: str, *, seed: bytes, now: Millis) -> str:
        code_hash = vouchers.hash_of(typed)
        if code_hash is None:
            raise CashierRefusal("That is not a voucher: one has five groups of five letters and digits.")
        own, wallet = cast("StoreDb", db), wallet_of_person(person)
        done = vouchers.redeem(own, self._books, code_hash, wallet, principal=wallet, now=now)
        if isinstance(done, NotRedeemed):
            raise CashierRefusal(_NOT_REDEEMED[done.reason])
        worth = [shown(done.amount, done.currency)] if done.amount else []
        if done.plan is not None:
            rules = self._rules.plans.rules.get(done.plan)
            if rules is None:
                raise CashierRefusal(
                    "The plan of this voucher is not offered any more. Ask whoever gave it to you."
                )
            granted = grant_plan(
                own,
                grant_id=Entropy(seed).identifier("plg"),
                wallet=wallet,
                plan=done.plan,
                ends_at=now + rules.days * DAY if rules.days else None,
                by=wallet,
                now=now,
            )
            if isinstance(granted, PlanNotGranted):
                had = (
                    "You are on that plan already"
                    if granted.reason == "already_owned"
                    else "You have as many plans as can be"
                )
                raise CashierRefusal(f"{had}. The voucher was not used.")
            said = f"{done.plan} to {wallet}, by a voucher"
            audit_trail.record(db, at=now, event="plan.granted", actor=audit_trail.actor(person), reason=said)
            worth.append(f"the plan {done.plan}")
        return " and ".join(worth)

    def mine(self, db: Db, principal: Principal, server: str, now: Millis) -> dict[str, Any]:
        """For `ostiary://me`: amounts are in millionths and in words. What is not there is None."""
        wallet = wallets.wallet_of(principal)
        if wallet is None:
            return {}
        found = holdings(
            cast("StoreDb", db),
            wallet=wallet,
            login=principal.grant_id,
            rules=self._rules,
            tools=self._priced(server),
            now=now,
        )
        told = _told(found)
        if (bound := self._rules.caps.per_tool) is not None:
            words = f"{shown(bound)} a day {_ON_A_TOOL}"
            told["caps"].append(
                {"of": "tool", "period": "day", "limit": bound, "spent": None, "words": words}
            )
        if principal.kind is PrincipalKind.PAYER:
            words = words_of_prices(self._for_payers(server), "payer")
            told["may"] = (
                f"Call what is sold here without a login, from this balance, and nothing else{words and ': '}{words}."
            )
        return told

    # ── what they may change of it ───────────────────────────────────────────────────────────────────────────────────

    def cap(
        self, db: Db, person: str, login: str, typed: str, period: CapPeriod, *, by: str, now: Millis
    ) -> None:
        try:
            amount = parse(typed.strip())
        except BadAmount as problem:
            raise CashierRefusal(f"That {problem}.") from None
        subject = _subject(person, login)
        spending_caps.set_cap(cast("StoreDb", db), subject, period, amount, by=by, now=now)
        said = f"{shown(amount, CURRENCY)} {period} of {subject}"
        audit_trail.record(
            db, at=now, event="cap.set", actor=audit_trail.actor(by), grant_id=login or None, reason=said
        )

    def uncap(self, db: Db, person: str, login: str, period: CapPeriod, *, by: str, now: Millis) -> bool:
        subject = _subject(person, login)
        if not spending_caps.drop_cap(cast("StoreDb", db), subject, period):
            return False
        audit_trail.record(
            db,
            at=now,
            event="cap.removed",
            actor=audit_trail.actor(by),
            grant_id=login or None,
            reason=f"{period} of {subject}",
        )
        return True

    # ── before a program is let in ───────────────────────────────────────────────────────────────────────────────────

    def asks(self, db: Db, person: str, server: str, scope: str, now: Millis) -> str:
        words = words_of_prices(self._priced(server, scopes.parse(scope)))
        if not words:
            return ""
        own, wallet = cast("StoreDb", db), wallet_of_person(person)
        limits = [
            each.words
            for each in spending_caps.standing(own, self._rules.caps, wallet=wallet, login=None, now=now)
        ]
        if (each := self._rules.caps.per_tool) is not None:
            limits.append(f"{shown(each, CURRENCY)} a day {_ON_A_TOOL}")
        if (each := self._rules.caps.per_login) is not None:
            limits.append(f"{shown(each, CURRENCY)} with this login")
        found = wallets.find(own, wallet)
        balance = shown(0 if found is None else found.free, CURRENCY)
        upto = f"up to {_listed(limits)}" if limits else "up to all of it"
        return f"It may spend from your balance ({balance} now), {upto}: {words}. {_NO_OTHER_MONEY}"

    def _for_payers(self, server: str) -> Iterable[PricedTool]:
        catalog = self._catalogs.get(server)
        for entry in () if catalog is None else catalog.entries():
            price = entry.price
            if price is not None and price.sold_to(PrincipalKind.PAYER) and entry.terms.tier != "financial":
                yield price

    def _priced(
        self, server: str | None = None, granted: Sequence[str] | None = None
    ) -> Iterable[PricedTool]:
        """Of one server, those that these scopes allow."""
        for name, catalog in self._catalogs.items():
            if server is not None and name != server:
                continue
            for entry in catalog.entries():
                if entry.price is None:
                    continue
                if granted is None or not scopes.missing(frozenset(granted), entry.terms.scopes):
                    yield entry.price

    # ── for the owner ────────────────────────────────────────────────────────────────────────────────────────────────

    async def taken(self, now: Millis) -> MoneyTaken:
        found = await self.takings.look(now)
        return MoneyTaken(
            today=shown(found.today),
            month=shown(found.month),
            tools=tuple(
                MoneyEarned(
                    name=each.tool, today=shown(each.today), month=shown(each.month), ever=shown(each.ever)
                )
                for each in found.tools
            ),
            more=found.more,
            trouble=trouble_of(found.unsettled),
        )


def wallet_of_person(person: str) -> str:
    return f"user:{person}"


def trouble_of(found: Unsettled) -> str:
    """`2 payments are not settled yet, of 1 nobody knows what became`."""
    if not found.count:
        return ""
    said = f"{found.count} payment{' is' if found.count == 1 else 's are'} not settled yet"
    if found.unknown:
        said += f"; of {found.unknown} nobody knows yet what became"
    return said


def _subject(person: str, login: str) -> str:
    return (
        spending_caps.login_subject(login)
        if login
        else spending_caps.wallet_subject(wallet_of_person(person))
    )


def _listed(limits: Sequence[str]) -> str:
    return limits[0] if len(limits) == 1 else f"{', '.join(limits[:-1])} and {limits[-1]}"


def _plan_line(held: HeldPlan) -> MoneyLine:
    plan = held.plan
    said = [plan.words] if plan.words else []
    if plan.unlimited:
        said.append("every call is covered")
    if plan.calls:
        said.append(f"{plan.left} of {counted(plan.calls, 'call')} left this month")
    said += [f"{counted(left, 'call')} of {tool} left this month" for tool, left in plan.tools_left.items()]
    return MoneyLine(name=f"Plan {plan.name}", words="; ".join(said))


def _free_line(free: FreeLeft) -> MoneyLine:
    when = " this month" if free.kind == "month" else ""
    return MoneyLine(name=free.tool, words=f"{free.left} of {free.calls} free calls left{when}")


def _cap(login: str, cap: CapStanding, own: bool) -> MoneyCap:
    return MoneyCap(login=login, period=cap.period, words=cap.words, spent=shown(cap.spent), own=own)


def _shift(shift: Shift, currency: str) -> MoneyShift:
    where = f"{shift.server}/{shift.tool}" if shift.server and shift.tool else ""
    # A voucher's note is its number, which says nothing to whoever redeemed it.
    note = where or ("" if shift.kind == "voucher" else shift.note)
    kind = _KINDS.get(shift.kind, shift.kind)
    return MoneyShift(
        at=shift.at,
        words=f"{kind}: {note}" if note else kind,
        amount=_signed(shift.amount, currency),
        came_in=shift.amount > 0,
    )


def _signed(amount: Micros, currency: str) -> str:
    return f"+{shown(amount, currency)}" if amount > 0 else shown(amount, currency)


def _told(found: BalanceView) -> dict[str, Any]:
    plans = [each.plan for each in found.plans]
    quota: dict[str, Any] = {}
    for plan in plans:
        if plan.calls:
            quota[plan.name] = {"used": plan.calls - plan.left, "limit": plan.calls}
    for each in found.free:
        quota[each.tool] = {"used": each.calls - each.left, "limit": each.calls, "kind": each.kind}
    return {
        "plan": ", ".join(each.name for each in plans) or None,
        "plans": [
            {
                "name": each.plan.name,
                "words": each.plan.words,
                "unlimited": each.plan.unlimited,
                "tools_left": dict(each.plan.tools_left),
                "ends_at": each.ends_at,
            }
            for each in found.plans
        ],
        "quota": quota or None,
        "wallet": {
            "id": found.wallet,
            "currency": found.currency,
            "balance": found.balance,
            "held": found.held,
            "words": shown(found.balance, found.currency),
        },
        "caps": [
            {
                "of": "login" if each.subject.startswith("login:") else "wallet",
                "period": each.period,
                "limit": each.limit,
                "spent": each.spent,
                "words": each.words,
            }
            for each in found.caps
        ],
        "movements": [
            {
                "seq": each.seq,
                "at": each.at,
                "kind": each.kind,
                "amount": each.amount,
                "words": _signed(each.amount, found.currency),
                "server": each.server,
                "tool": each.tool,
            }
            for each in found.shifts
        ],
    }
