"""The trail's last word on accounts and keys, to compare the rows with: one that was put back as it once was is sealed rightly.

What was swept from the trail says nothing any more. Reading; the seals are `values/sealed.py`'s.
"""

from __future__ import annotations

from typing import Final

import msgspec

from auth.values.db import Db, Row
from auth.values.model import Millis

# As the index `audit_of_rights` has it.
EVENTS: Final = (
    "event IN ('api_key.created', 'api_key.revoked', 'user.disabled', 'user.enabled',"
    " 'user.locked', 'user.unlocked', 'user.removed')"
)
_PAGE: Final = 5_000
_OPEN: Final = frozenset({"user.enabled", "user.unlocked"})


class TrailOfRights(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided, as far as the trail goes back."""

    since: Millis  # its first row
    made: frozenset[str]  # keys
    ended: frozenset[str]  # keys
    shut: dict[str, str]  # accounts that nobody may use, and the event that said so last

    def contradicts_key(self, row: Row) -> str:
        """Say what speaks against this key, which lives; empty: nothing does."""
        if row["id"] in self.ended:
            return "the trail says that it was ended"
        if row["id"] not in self.made and row["created_at"] > self.since:
            return "the trail does not know who made it"
        return ""

    def contradicts_account(self, row: Row) -> str:
        """The same of an account."""
        event = self.shut.get(row["id"])
        if event is None or (event == "user.disabled" and row["state"] in ("disabled", "locked")):
            return ""
        if event == "user.locked" and row["state"] == "locked":
            return ""
        return f"the trail says: {event}"


def read(db: Db) -> TrailOfRights:
    """A job that reads."""
    made, ended, shut = set[str](), set[str](), dict[str, str]()
    first = db.fetch_one("SELECT at FROM audit ORDER BY seq LIMIT 1")
    rows, after = list[Row](), 0
    while not after or len(rows) == _PAGE:
        sql = f"SELECT seq, event, grant_id, outcome, reason FROM audit WHERE {EVENTS} AND seq > ? ORDER BY seq LIMIT ?"
        rows = db.fetch_all(sql, after, _PAGE)
        after = rows[-1]["seq"] if rows else 1
        for row in rows:
            if row["outcome"] != "ok":
                continue
            event, person = row["event"], row["reason"].partition(" ")[0]
            if event in ("api_key.created", "api_key.revoked"):
                (made if event == "api_key.created" else ended).add(row["grant_id"] or "")
            elif event in _OPEN:
                shut.pop(person, None)
            else:
                shut[person] = event
    return TrailOfRights(
        since=0 if first is None else first["at"],
        made=frozenset(made),
        ended=frozenset(ended),
        shut=shut,
    )
