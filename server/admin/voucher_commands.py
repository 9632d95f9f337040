"""Commands behind the admin socket for vouchers: `ostiary vouchers new`, `list`, `revoke`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from auth.values.entropy import SEED_BYTES
from auth.values.identity_model import Millis
from auth.values.limits_and_lifetimes import DAY
from server.admin.bounded_arguments import line, number, text
from server.admin.control import CommandRefused, Handler, ListPage
from server.admin.ledger_commands import CURRENCY
from server.lib.money.amounts import MOST
from server.payments.seller import vouchers
from server.payments.seller.vouchers import MOST_USES, NewVoucher, Voucher, VoucherOrder
from server.store.jobs import Store, StoreDb

LONGEST_DAYS: Final = 3_650
NOTE: Final = 200
# At a time. Each is a row, and its code is shown once.
MOST_AT_ONCE: Final = 500


def _no_plans() -> Collection[str]:
    return ()


class VoucherAdmin(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    clock: Callable[[], Millis]
    plans: Callable[[], Collection[str]] = _no_plans  # their names

    def commands(self) -> dict[str, Handler]:
        return {
            "vouchers": self.listing,
            "vouchers.make": self.make,
            "vouchers.revoke": self.revoke,
        }

    async def listing(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """List a page. `at` is the id with which the page before ended."""
        found = await self.store.read(partial(vouchers.listing, after=text(arguments, "at", 64) or ""))
        now = self.clock()
        go_on = found[-1].id if len(found) == vouchers.LISTED else None
        return ListPage(rows=[_shown(each, now) for each in found], go_on=go_on)

    async def make(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """Make `count` of them, each worth `amount` or a `plan` or both, for `uses` wallets, until `lasts_ms` from now."""
        now, order = self.clock(), self._order(arguments)
        count = number(arguments, "count") or 1
        if count > MOST_AT_ONCE:
            raise CommandRefused(f"{MOST_AT_ONCE} vouchers at a time are the most")
        seeds = [secrets.token_bytes(SEED_BYTES) for _ in range(count)]

        def job(db: StoreDb) -> list[NewVoucher]:
            return [vouchers.make(db, order, seed=seed, by=actor, now=now) for seed in seeds]

        made = await self.store.write(job)
        return [{**_shown(each.voucher, now), "code": each.code.reveal()} for each in made]

    async def revoke(self, arguments: Mapping[str, Any], actor: str) -> Any:
        voucher_id = text(arguments, "id", 64) or ""
        job = partial(vouchers.revoke, voucher_id=voucher_id, by=actor, now=self.clock())
        if not await self.store.write(job):
            raise CommandRefused("there is no such voucher to revoke", "ostiary vouchers list shows them")
        return {"id": voucher_id}

    def _order(self, arguments: Mapping[str, Any]) -> VoucherOrder:
        amount, plan = number(arguments, "amount") or 0, text(arguments, "plan")
        uses, lasts = number(arguments, "uses") or 1, number(arguments, "lasts_ms")
        if not amount and plan is None:
            raise CommandRefused("a voucher is worth an amount, a plan, or both")
        if amount > MOST or uses > MOST_USES:
            raise CommandRefused("a voucher cannot be worth so much, or used so often")
        if plan is not None and plan not in self.plans():
            raise CommandRefused(f"there is no plan {plan}", "plans stand in the settings: [[plan]]")
        if lasts is None or not 0 < lasts <= LONGEST_DAYS * DAY:
            raise CommandRefused(f"a voucher lasts up to {LONGEST_DAYS} days")
        return VoucherOrder(
            amount=amount,
            currency=CURRENCY,
            plan=plan,
            uses=uses,
            note=line(arguments, "note", NOTE),
            expires_at=self.clock() + lasts,
        )


def _shown(voucher: Voucher, now: Millis) -> dict[str, Any]:
    if voucher.revoked_at is not None:
        state = "revoked"
    elif now >= voucher.expires_at:
        state = "expired"
    else:
        state = "usable" if voucher.uses_left else "used up"
    return {**asdict(voucher), "state": state}
