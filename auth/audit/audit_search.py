"""Reading the audit trail: rows that match, page by page, either way. Writing it is audit_trail.py's.

A page looks at a bounded stretch of the table, so that a rare event does not hold a reader up: it may be empty and not the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from auth.values.database import Db, Row
from auth.values.identity_model import Millis

# Rows that one page looks at: some ten milliseconds of a reading thread.
STRETCH: Final = 20_000
# Each by itself, which is two steps; both of one SELECT are a walk through the whole table.
ENDS: Final = "SELECT (SELECT min(seq) FROM audit) AS low, (SELECT max(seq) FROM audit) AS high"


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a row must be; None: anything."""

    since: Millis | None = None  # from then on
    until: Millis | None = None  # before then
    events: Sequence[str] = ()  # a name, or the part before its dot: `key` is every event of keys
    actor: str | None = None
    outcome: str | None = None
    client_id: str | None = None
    grant_id: str | None = None

    def condition(self) -> tuple[str, list[object]]:
        """The SQL after WHERE, and its parameters."""
        tests: list[str] = []
        values: list[object] = []
        for test, value in (
            ("at >= ?", self.since),
            ("at < ?", self.until),
            ("actor = ?", self.actor),
            ("outcome = ?", self.outcome),
            ("client_id = ?", self.client_id),
            ("grant_id = ?", self.grant_id),
        ):
            if value is not None:
                tests.append(test)
                values.append(value)
        if self.events:
            tests.append(
                "("
                + " OR ".join(["event = ? OR substr(event, 1, CAST(? AS INTEGER)) = ?"] * len(self.events))
                + ")"
            )
            for event in self.events:
                values += [event, len(event) + 1, f"{event}."]
        return "".join(f" AND {test}" for test in tests), values


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[Row, ...]
    go_on: int | None  # where the next page begins (`at`); None: there is no more


def page(db: Db, wanted: AuditFilter, *, oldest_first: bool, at: int | None, at_most: int) -> AuditPage:
    """A job. Rows after the number `at` (oldest first), or before it; None begins at the end that comes first."""
    ends = db.fetch_one(ENDS)
    if ends is None or ends["low"] is None:
        return AuditPage(rows=(), go_on=None)
    low, high = ends["low"], ends["high"]
    if oldest_first:
        after = low - 1 if at is None else max(at, low - 1)
        first, last, order = after + 1, min(after + STRETCH, high), "ASC"
    else:
        before = high + 1 if at is None else min(at, high + 1)
        first, last, order = max(before - STRETCH, low), before - 1, "DESC"
    condition, values = wanted.condition()
    sql = f"SELECT * FROM audit WHERE seq BETWEEN ? AND ?{condition} ORDER BY seq {order} LIMIT ?"
    rows = tuple(db.fetch_all(sql, first, last, *values, at_most))
    if len(rows) == at_most:
        return AuditPage(rows=rows, go_on=rows[-1]["seq"])
    more = last < high if oldest_first else first > low
    return AuditPage(rows=rows, go_on=(last if oldest_first else first) if more else None)
