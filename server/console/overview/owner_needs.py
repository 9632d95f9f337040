"""What waits for an owner, as values. Jobs that only read; agents that fail are outages.py's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from auth.authorization import device_authorization as device
from auth.authorization.device_authorization import DeviceRequest
from auth.values.database import Db
from auth.values.identity_model import Millis

DAY: Final[Millis] = 24 * 3_600_000
# Of each kind; more are counted where somebody has to act soon.
SHOWN: Final = 10
# From then on there is time to make another key without hurry.
ENDS_SOON: Final[Millis] = 14 * DAY


class UnusedInvitation(msgspec.Struct, frozen=True):
    name: str
    until: Millis | None  # None: its link has run out


class EndingKey(msgspec.Struct, frozen=True):
    name: str
    person: str
    ends_at: Millis


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    waiting: Sequence[DeviceRequest] = ()
    waiting_count: int = 0
    invitations: Sequence[UnusedInvitation] = ()
    keys: Sequence[EndingKey] = ()


def look(db: Db, *, now: Millis) -> Needs:
    waiting = device.pending(db, now)
    invited = db.fetch_all(
        "SELECT u.name, (SELECT max(l.expires_at) FROM one_time_links l WHERE l.user_id = u.id AND l.used_at IS NULL"
        " AND l.expires_at > ?) AS until FROM users u WHERE u.state = 'invited' ORDER BY u.created_at DESC, u.id LIMIT ?",
        now,
        SHOWN,
    )
    return Needs(
        waiting=waiting[:SHOWN],
        waiting_count=len(waiting),
        invitations=[UnusedInvitation(row["name"], row["until"]) for row in invited],
        keys=ending_keys(db, now=now),
    )


def ending_keys(db: Db, *, now: Millis, whose: str | None = None) -> list[EndingKey]:
    """Those that are still taken, and soon will not be; the first to end first."""
    of_whom, values = ("", ()) if whose is None else (" AND k.user_id = ?", (whose,))
    rows = db.fetch_all(
        "SELECT k.name, k.expires_at, u.name AS user_name FROM api_keys k LEFT JOIN users u ON u.id = k.user_id"
        f" WHERE k.revoked_at IS NULL AND k.expires_at > ? AND k.expires_at < ?{of_whom} ORDER BY k.expires_at, k.id LIMIT ?",
        now,
        now + ENDS_SOON,
        *values,
        SHOWN,
    )
    return [EndingKey(row["name"], row["user_name"] or "", row["expires_at"]) for row in rows]
