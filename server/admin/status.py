"""What the store adds to `ostiary status`: who is known, who is in, who waits, and how old the key is."""

from __future__ import annotations

from typing import Any

from auth.device import request as device
from auth.grants import admin as grants
from auth.people import users
from auth.values.db import Db
from auth.values.model import Millis


def counted(db: Db, now: Millis) -> dict[str, Any]:
    """A job that reads."""
    people = db.fetch_one("SELECT count(*) AS n FROM users WHERE state = 'enabled'")
    key = db.fetch_one("SELECT max(created_at) AS at FROM signing_keys WHERE signs_from <= ?", now)
    return {
        "people": people["n"] if people is not None else 0,
        "unclaimed": not users.claimed(db),
        "logins": grants.count(db, now),
        "waiting": device.waiting(db, now),
        "key_created_at": key["at"] if key is not None else None,
    }
