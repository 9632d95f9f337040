"""The trail's last word on accounts and keys, to compare the rows with: one that was put back as it once was is sealed rightly.

What was swept from the trail says nothing any more. Reading; the seals are `values/sealed_rows.py`'s.
"""

from __future__ import annotations

from typing import Final

import msgspec

from auth.values.database import Db, Row
from auth.values.identity_model import Millis

# As the index `audit_of_rights` has it.
EVENTS: Final = (
    "event IN ('api_key.created', 'api_key.revoked', 'user.disabled', 'user.enabled',"
    " 'user.locked', 'user.unlocked', 'user.removed')"
)
PAGE: Final = 5_000
_OPEN: Final = frozenset({"user.enabled", "user.unlocked"})


class TrailPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows of the trail that speak of rights, in their order."""

    after: int  # this row
    rows: list[Row]
    since: Millis  # the first row that the trail still has

    @property
    def is_last(self) -> bool:
        return len(self.rows) < PAGE


class TrailOfRights:
    """What was decided, as far as the trail goes back, and as far as it has been read: an id for each key that it knows."""

    def __init__(self) -> None:
        self.read_to = 0
        self.since: Millis = 0
        self.made = set[str]()  # keys that were not ended
        self.ended = set[str]()  # keys
        self.shut = dict[str, str]()  # accounts that nobody may use, and the event that said so last

    def take(self, page: TrailPage) -> bool:
        """Read on. False: the page does not begin where this ends, because somebody else has read on meanwhile."""
        if page.after != self.read_to:
            return False
        self.since = page.since
        for row in page.rows:
            self.read_to = row["seq"]
            if row["outcome"] != "ok":
                continue
            event, key, person = row["event"], row["grant_id"] or "", row["reason"].partition(" ")[0]
            if event == "api_key.created":
                self.made.add(key)
            elif event == "api_key.revoked":
                self.made.discard(key)
                self.ended.add(key)
            elif event in _OPEN:
                self.shut.pop(person, None)
            else:
                self.shut[person] = event
        return True

    def contradicts_key(self, row: Row) -> str:
        """Say what speaks against this key, which lives; empty: nothing does."""
        if row["id"] in self.ended:
            return "the trail says that it was ended"
        if row["id"] not in self.made and row["created_at"] > self.since:
            return "the trail does not know who made it"
        return ""

    def contradicts_account(self, row: Row) -> str:
        """Say what speaks against this account; empty: nothing does."""
        event = self.shut.get(row["id"])
        if event is None or (event == "user.disabled" and row["state"] in ("disabled", "locked")):
            return ""
        if event == "user.locked" and row["state"] == "locked":
            return ""
        return f"the trail says: {event}"


def page(db: Db, after: int) -> TrailPage:
    """Read the next rows, as a job."""
    first = db.fetch_one("SELECT at FROM audit ORDER BY seq LIMIT 1")
    sql = f"SELECT seq, event, grant_id, outcome, reason FROM audit WHERE {EVENTS} AND seq > ? ORDER BY seq LIMIT ?"
    return TrailPage(
        after=after, rows=db.fetch_all(sql, after, PAGE), since=0 if first is None else first["at"]
    )
