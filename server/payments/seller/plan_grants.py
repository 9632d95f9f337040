"""Grants of plans: who is on which plan, and until when. Jobs; what a plan is, the settings say (plans.py)."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from auth.values.identity_model import Millis
from server.store.jobs import StoreDb
from server.store.struct_rows import insertion, values_of

DAY: Final[Millis] = 86_400_000
# Of one wallet at once: more is a mistake, and each is looked at with every priced call.
MOST_PLANS: Final = 16
# Of a page of a listing.
LISTED: Final = 200

# Each begins as it is made, so one that is there has begun, also by a clock that is behind the one of whoever made it.
_ACTIVE: Final = "ended_at IS NULL AND (ends_at IS NULL OR ends_at > ?)"
_OF_WALLET: Final = (
    f"FROM plan_grants WHERE wallet = ? AND {_ACTIVE} ORDER BY created_at, id LIMIT {MOST_PLANS}"
)


class PlanGrant(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    wallet: str
    plan: str
    begins_at: Millis
    ends_at: Millis | None  # None: it does not end by itself
    granted_by: str
    created_at: Millis
    ended_at: Millis | None = None


_INSERT: Final = insertion("plan_grants", PlanGrant)


class PlanNotGranted(msgspec.Struct, frozen=True, kw_only=True):
    reason: Literal["already_owned", "too_many"]


def active_plans(db: StoreDb, wallet: str, now: Millis) -> list[str]:
    """Read the names of the plans that a wallet is on, the oldest first."""
    return [row["plan"] for row in db.fetch_all(f"SELECT plan {_OF_WALLET}", wallet, now)]


def active_grants(db: StoreDb, wallet: str, now: Millis) -> list[PlanGrant]:
    """Read the grants of the plans that a wallet is on, the oldest first."""
    return [msgspec.convert(row, PlanGrant) for row in db.fetch_all(f"SELECT * {_OF_WALLET}", wallet, now)]


def grant_plan(
    db: StoreDb,
    *,
    grant_id: str,
    wallet: str,
    plan: str,
    ends_at: Millis | None,
    by: str,
    now: Millis,
) -> PlanGrant | PlanNotGranted:
    """Put a wallet on a plan. `grant_id`: a fresh one. Nobody gets a plan that they have already."""
    active = active_plans(db, wallet, now)
    if plan in active:
        return PlanNotGranted(reason="already_owned")
    if len(active) >= MOST_PLANS:
        return PlanNotGranted(reason="too_many")
    made = PlanGrant(
        id=grant_id, wallet=wallet, plan=plan, begins_at=now, ends_at=ends_at, granted_by=by, created_at=now
    )
    db.execute(_INSERT, *values_of(made))
    return made


def end_plan(db: StoreDb, grant_id: str, now: Millis) -> PlanGrant | None:
    """Take a grant back at once; None where it is not there, or over."""
    row = db.fetch_one("SELECT * FROM plan_grants WHERE id = ?", grant_id)
    if row is None:
        return None
    done = db.execute(f"UPDATE plan_grants SET ended_at = ? WHERE id = ? AND {_ACTIVE}", now, grant_id, now)
    return msgspec.convert({**row, "ended_at": now}, PlanGrant) if done == 1 else None


def page(db: StoreDb, now: Millis, *, after: str = "") -> list[PlanGrant]:
    """Read the grants that count now, in the order of their ids."""
    rows = db.fetch_all(
        f"SELECT * FROM plan_grants WHERE id > ? AND {_ACTIVE} ORDER BY id LIMIT {LISTED}", after, now
    )
    return [msgspec.convert(row, PlanGrant) for row in rows]
