"""Commands behind the admin socket for plans: `ostiary plans grant`, `list`, `end`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from auth.audit import audit_trail
from auth.values.entropy import SEED_BYTES, Entropy
from auth.values.identity_model import Millis
from server.admin.bounded_arguments import lasting, needed_line, optional_line
from server.admin.control import CommandRefused, Handler, ListPage
from server.admin.ledger_commands import wallet_called
from server.payments.seller import plan_grants
from server.payments.seller.plan_grants import DAY, PlanGrant, PlanNotGranted
from server.payments.seller.plans import PlanRules
from server.store.jobs import Store, StoreDb

LONGEST_DAYS: Final = 3_660
WHO: Final = 310
_PREFIX: Final = "plg"


class PlanAdmin(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    clock: Callable[[], Millis]
    plans: Mapping[str, PlanRules]

    def commands(self) -> dict[str, Handler]:
        return {"plans": self.listing, "plans.grant": self.grant, "plans.end": self.end}

    async def listing(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """List who is on which. `at` is the last id of the page before."""
        after, now = optional_line(arguments, "at", WHO) or "", self.clock()

        def job(db: StoreDb) -> list[dict[str, Any]]:
            return [self._shown(db, each) for each in plan_grants.page(db, now, after=after)]

        found = await self.store.read(job)
        return ListPage(rows=found, go_on=found[-1]["id"] if len(found) == plan_grants.LISTED else None)

    async def grant(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Put `who` on `plan`; `lasts_ms` or `never` where it is not to last as long as the plan says."""
        who, name = needed_line(arguments, "who", WHO), needed_line(arguments, "plan", WHO)
        now = self.clock()
        plan = self.plans.get(name)
        if plan is None:
            there = f"there is {', '.join(self.plans)}" if self.plans else "describe it in [[plan]] first"
            raise CommandRefused(f"there is no plan {name}", there)
        ends_at = _ends(arguments, plan, now)
        grant_id = Entropy(secrets.token_bytes(SEED_BYTES)).identifier(_PREFIX)

        def job(db: StoreDb) -> dict[str, Any] | PlanNotGranted:
            wallet = wallet_called(db, who)
            made = plan_grants.grant_plan(
                db, grant_id=grant_id, wallet=wallet, plan=name, ends_at=ends_at, by=actor, now=now
            )
            if isinstance(made, PlanNotGranted):
                return made
            audit_trail.record(db, at=now, event="plan.granted", actor=actor, reason=f"{name} to {wallet}")
            return self._shown(db, made)

        made = await self.store.write(job)
        if isinstance(made, PlanNotGranted):
            owned = made.reason == "already_owned"
            raise CommandRefused(
                f"{who} is on the plan {name} already"
                if owned
                else f"{who} is on as many plans as anybody can be",
                "ostiary plans list shows it, ostiary plans end ends it",
            )
        return made

    async def end(self, arguments: Mapping[str, Any], actor: str) -> Any:
        grant_id, now = needed_line(arguments, "id", WHO), self.clock()

        def job(db: StoreDb) -> dict[str, Any] | None:
            ended = plan_grants.end_plan(db, grant_id, now)
            if ended is None:
                return None
            reason = f"{ended.plan} of {ended.wallet}"
            audit_trail.record(db, at=now, event="plan.ended", actor=actor, reason=reason)
            return self._shown(db, ended)

        ended = await self.store.write(job)
        if ended is None:
            raise CommandRefused(f"there is no {grant_id} to end", "ostiary plans list shows them")
        return ended

    def _shown(self, db: StoreDb, grant: PlanGrant) -> dict[str, Any]:
        kind, _, subject = grant.wallet.partition(":")
        row = db.fetch_one("SELECT name FROM users WHERE id = ?", subject) if kind == "user" else None
        plan = self.plans.get(grant.plan)
        return {
            **asdict(grant),
            "name": None if row is None else row["name"],
            "words": "" if plan is None else plan.words,
            "described": plan is not None,
        }


def _ends(arguments: Mapping[str, Any], plan: PlanRules, now: Millis) -> Millis | None:
    if arguments.get("lasts_ms") is None and arguments.get("never") is not True:
        return now + plan.days * DAY if plan.days else None
    words = f"a plan lasts up to {LONGEST_DAYS} days, or until it is ended"
    lasts = lasting(arguments, days=LONGEST_DAYS, refused=words)
    return None if lasts is None else now + lasts
