"""Plans, free calls and trials: what a caller need not pay. `cover` takes what there is and says what is left to be paid. Jobs.

In this order: a plan that covers every call; free calls of this month; calls a month of a plan; the trial; and then the price, or a plan's
lower one. Who is on which plan is plan_grants.py's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from auth.values.identity_model import Millis
from server.lib.money.amounts import Micros, parse
from server.payments.seller.offers import Offer
from server.payments.seller.plan_grants import active_plans
from server.settings.money_settings import FREE, PlanConfig
from server.store.jobs import StoreDb
from server.store.limits.usage_meters import Raised, period_at, raise_meter, read_meter

How = Literal["pass", "quota", "trial", "due", "refused"]
Reason = Literal["", "trial_exhausted", "quota_exhausted", "plan_required"]

# Nobody has to prove anything to have an address on a chain: what is free for each of those is free for ever.
_FOR_NOTHING: Final = "payer:"


class PlanRules(msgspec.Struct, frozen=True, kw_only=True):
    """A `[[plan]]`, understood."""

    name: str
    words: str
    unlimited: bool
    calls: int
    tool_calls: Mapping[str, int]
    prices: Mapping[str, Micros]
    days: int
    price: str

    @classmethod
    def of(cls, config: PlanConfig) -> PlanRules:
        prices = {name: 0 if text == FREE else parse(text) for name, text in config.prices.items()}
        written: dict[str, Any] = {**msgspec.structs.asdict(config), "prices": prices}
        return cls(**written)

    def price_of(self, offer: Offer) -> Micros | None:
        name = _named(self.prices, offer)
        return None if name is None else self.prices[name]

    def quota_of(self, offer: Offer) -> tuple[str, int] | None:
        """Return by which name calls of it are counted, and up to where."""
        name = _named(self.tool_calls, offer)
        if name is not None:
            return name, self.tool_calls[name]
        return ("*all", self.calls) if self.calls else None


class Cover(msgspec.Struct, frozen=True, kw_only=True):
    """The way in which a call is covered. `raised` goes with the charge; `amount` is what is due."""

    how: How
    amount: Micros = 0
    version: str  # of the price; a plan's own has the plan's name behind it
    plan: str = ""
    raised: tuple[Raised, ...] = ()
    # Of one that is refused, why; of one that is due, what would have covered it and is used up.
    reason: Reason = ""


class Plans:
    """The plans of an installation."""

    def __init__(self, plans: Iterable[PlanConfig] = ()) -> None:
        self.rules: Final[Mapping[str, PlanRules]] = {plan.name: PlanRules.of(plan) for plan in plans}

    def cover(self, db: StoreDb, offer: Offer, wallet: str | None, now: Millis) -> Cover:
        """Take what covers the call. Without plans, free calls and a trial there is not one statement in it."""
        amount, version, plan, reason = offer.amount, offer.version, "", ""
        if wallet is None:
            return self._due(offer, amount, version, plan, reason)
        on = self._on(db, wallet, now) if self.rules else ()
        for each in on:
            if each.unlimited or each.price_of(offer) == 0:
                return Cover(how="pass", version=version, plan=each.name)
        earns = not wallet.startswith(_FOR_NOTHING)
        if offer.free_calls and earns:
            subject, month = free_subject(wallet, offer.name), period_at("month", now)
            if (one := raise_meter(db, subject, month, 1, offer.free_calls)) is not None:
                return Cover(how="quota", version=version, raised=(one,))
            reason = "quota_exhausted"
        for each in on:
            if (quota := each.quota_of(offer)) is None:
                continue
            subject, month = quota_subject(wallet, each.name, quota[0]), period_at("month", now)
            if (one := raise_meter(db, subject, month, 1, quota[1])) is not None:
                return Cover(how="quota", version=version, plan=each.name, raised=(one,))
            reason = "quota_exhausted"
        if offer.trial and earns:
            subject = trial_subject(wallet, offer.name)
            if (one := raise_meter(db, subject, period_at("ever", now), 1, offer.trial)) is not None:
                return Cover(how="trial", version=version, raised=(one,))
            reason = reason or "trial_exhausted"
        for each in on:
            own = each.price_of(offer)
            if own is not None and (offer.plan_only or own < amount) and (not plan or own < amount):
                amount, version, plan = own, f"{offer.version}@{each.name}", each.name
        return self._due(offer, amount, version, plan, reason)

    def _due(self, offer: Offer, amount: Micros, version: str, plan: str, reason: Reason) -> Cover:
        if offer.plan_only and not plan:
            return Cover(how="refused", version=version, reason=reason or "plan_required")
        return Cover(how="due", amount=amount, version=version, plan=plan, reason=reason)

    def _on(self, db: StoreDb, wallet: str, now: Millis) -> Sequence[PlanRules]:
        """List the plans that somebody is on; one that is not in the settings any more covers nothing."""
        return [self.rules[name] for name in active_plans(db, wallet, now) if name in self.rules]

    # ── for people ───────────────────────────────────────────────────────────────────────────────────────────────────

    def standing(self, db: StoreDb, wallet: str, now: Millis) -> list[PlanStanding]:
        """List the plans that somebody is on, and what of this month's calls is left. A job that reads."""
        month = period_at("month", now)
        found: list[PlanStanding] = []
        for each in self._on(db, wallet, now):
            counted = {"*all": each.calls} if each.calls else {}
            left = {
                name: max(limit - read_meter(db, quota_subject(wallet, each.name, name), month), 0)
                for name, limit in {**counted, **each.tool_calls}.items()
            }
            found.append(
                PlanStanding(
                    name=each.name,
                    words=each.words,
                    unlimited=each.unlimited,
                    calls=each.calls,
                    left=left.pop("*all", 0),
                    tools_left=left,
                )
            )
        return found


class PlanStanding(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    words: str
    unlimited: bool
    calls: int
    left: int  # of those, this month
    tools_left: Mapping[str, int]


def free_subject(wallet: str, tool: str) -> str:
    return f"wallet:{wallet}/free/{tool}"


def trial_subject(wallet: str, tool: str) -> str:
    return f"wallet:{wallet}/trial/{tool}"


def quota_subject(wallet: str, plan: str, name: str) -> str:
    return f"wallet:{wallet}/plan:{plan}/{name}"


def _named(table: Mapping[str, object], offer: Offer) -> str | None:
    """Return under which name a plan speaks of the tool: the one that says most."""
    if not table:
        return None
    names = (offer.name, offer.tool, f"{offer.server}/*", "*")
    return next((name for name in names if name in table), None)
