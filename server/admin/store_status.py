"""What the store adds to `ostiary status`: who is known, who is in, who waits, and how old the key is."""

from __future__ import annotations

from typing import Any, Final

from auth.administration import login_listing
from auth.authorization import device_authorization as device
from auth.people import user_accounts
from auth.values.database import Db
from auth.values.identity_model import Millis

# As far as people and logins are counted. Whoever has more wants to know that it goes well, not how many seconds a number takes.
COUNTED: Final = 2_000

_PEOPLE: Final = (
    "SELECT count(*) AS n FROM (SELECT 1 AS one FROM users WHERE state = 'enabled' LIMIT ?) AS enabled"
)


def counted(db: Db, now: Millis, at_most: int = COUNTED) -> dict[str, Any]:
    """A job that reads. `more_people`, `more_logins`: there are more than were counted."""
    found = db.fetch_one(_PEOPLE, at_most + 1)
    people = 0 if found is None else found["n"]
    logins, more = login_listing.count(db, now, at_most=at_most)
    key = db.fetch_one("SELECT max(created_at) AS at FROM signing_keys WHERE signs_from <= ?", now)
    return {
        "people": min(people, at_most),
        "more_people": people > at_most,
        "unclaimed": not user_accounts.claimed(db),
        "logins": logins,
        "more_logins": more,
        "waiting": device.waiting(db, now),
        "key_created_at": key["at"] if key is not None else None,
    }
