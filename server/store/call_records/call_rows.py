"""Calls in the store, as jobs: writing them, a page of them, and what they come to by day, tool or caller.

A page looks at a bounded stretch of the table, so that a rare failure does not hold a reader up: it may be empty and not the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from auth.grants import last_calls
from auth.values.database import Db
from auth.values.identity_model import Millis
from server.store.call_records.call_book import CallBatch
from server.store.call_records.call_record import (
    BUCKETS,
    FAILURES,
    HOUR,
    CallRecord,
    HourKey,
    HourSum,
    quantile,
)
from server.store.jobs import Row, StoreDb

# Rows that one page looks at: some ten milliseconds of a reading thread.
STRETCH: Final = 20_000
# The newest rows, among which the last of a batch is looked for of which is not known whether it was written: half an hour of a busy process, and some
# tenths of a second of the database.
LOOKED_FOR_AMONG: Final = 1_000_000
# Beyond the cap, so many of the oldest go with each batch: more than one adds.
DROPPED_AT_ONCE: Final = 1_000
GROUPS_AT_MOST: Final = 2_000
DAY: Final = 24 * HOUR
# Each by itself, which is two steps; both of one SELECT are a walk through the whole table.
ENDS: Final = "SELECT (SELECT min(seq) FROM calls) AS low, (SELECT max(seq) FROM calls) AS high"

By: TypeAlias = Literal["hour", "day", "server", "tool", "person", "outcome"]
BYS: Final[tuple[By, ...]] = get_args(By)
# What calls are told apart by, in SQL; by which name the owner knows whoever calls is for those who show it to say.
_GROUPS: Final[Mapping[By, Mapping[str, str]]] = MappingProxyType(
    {
        "hour": {"at": "hour"},
        "day": {"at": f"hour / {DAY} * {DAY}"},
        "server": {"server": "server"},
        "tool": {"server": "server", "tool": "tool"},
        "person": {
            "kind": "CASE WHEN person = '' THEN kind ELSE 'user' END",
            "subject": "CASE WHEN person = '' THEN subject ELSE '' END",
            "person": "person",
            "program": "CASE WHEN person = '' THEN program ELSE '' END",
        },
        "outcome": {"outcome": "outcome"},
    }
)
FAILED_WORDS: Final = ", ".join(f"'{outcome}'" for outcome in sorted(FAILURES))
DURATIONS: Final = tuple(f"d{place}" for place in range(BUCKETS))

_INSERT: Final = (
    "INSERT INTO calls (seq, at, server, tool, outcome, reason, ms, kind, subject, person, client_id, program, grant_id,"
    " call_id, revision, is_task, price, asked, answered, passed_over) VALUES (" + ", ".join("?" * 20) + ")"
)
_ADD: Final = (
    "INSERT INTO call_hours (hour, server, tool, caller, outcome, kind, subject, person, program, count, ms,"
    f" {', '.join(DURATIONS)}) VALUES ({', '.join('?' * (11 + BUCKETS))})"
    " ON CONFLICT (hour, server, tool, caller, outcome) DO UPDATE SET person = excluded.person, program = excluded.program,"
    " count = call_hours.count + excluded.count, ms = call_hours.ms + excluded.ms, "
    + ", ".join(f"{d} = call_hours.{d} + excluded.{d}" for d in DURATIONS)
)
_IS_THERE: Final = "SELECT 1 AS one FROM calls WHERE seq > ? AND call_id = ? AND at = ? AND server = ? AND tool = ? AND ms = ? LIMIT 1"
_USED: Final = (
    "INSERT INTO tool_uses (server, tool, called_at) VALUES (?, ?, ?)"
    " ON CONFLICT (server, tool) DO UPDATE SET called_at = excluded.called_at"
    " WHERE excluded.called_at > tool_uses.called_at"
)


class OfPerson(msgspec.Struct, frozen=True):
    """That a call was made by this person, by their id: with a login or a key of theirs. SQL to go on a WHERE with."""

    sql: str = ""
    values: tuple[str, ...] = ()

    @staticmethod
    def of(user_id: str | None) -> OfPerson:
        if user_id is None:
            return OfPerson()
        return OfPerson(
            " AND ((kind = 'user' AND subject = ?)"
            " OR (kind = 'api_key' AND subject IN (SELECT id FROM api_keys WHERE user_id = ?)))",
            (user_id, user_id),
        )


class CallFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What a call must be; None: anything."""

    since: Millis | None = None  # from then on
    until: Millis | None = None  # before then
    failed: bool = False
    person: str | None = None  # by name, or the subject; of nobody's, the program or key
    server: str | None = None
    tool: str | None = None
    program: str | None = None  # or key, by name
    outcome: str | None = None
    whose: str | None = None  # a person's id: their own

    def condition(self, time: str) -> tuple[str, list[object]]:
        """SQL to go on a WHERE with, and its parameters. `time`: the column that says when."""
        tests: list[str] = []
        values: list[object] = []
        for test, value in (
            (f"{time} >= ?", self.since),
            (f"{time} < ?", self.until),
            ("server = ?", self.server),
            ("tool = ?", self.tool),
            ("program = ?", self.program),
            ("outcome = ?", self.outcome),
        ):
            if value is not None:
                tests.append(test)
                values.append(value)
        if self.person is not None:
            tests.append("(person = ? OR subject = ? OR (person = '' AND program = ?))")
            values += [self.person] * 3
        if self.failed:
            tests.append(f"outcome IN ({FAILED_WORDS})")
        of_whom = OfPerson.of(self.whose)
        return "".join(f" AND {test}" for test in tests) + of_whom.sql, [*values, *of_whom.values]


class CallPage(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[Row, ...]
    go_on: int | None  # where the next page begins (`at`); None: there is no more


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """What calls came to. `name`: what they have in common."""

    name: dict[str, Any]
    count: int
    failed: int
    ms: float
    p50: float
    p95: float


def write(db: StoreDb, *, batch: CallBatch, most_rows: int) -> None:
    """A job, in as few trips as it can be: it may have thousands of statements, each second. What is beyond `most_rows` goes, the oldest
    first. What is in doubt is looked for by its last row: where anything was counted there is one."""
    ends = db.fetch_one(ENDS)
    seq = (ends["high"] if ends is not None else None) or 0
    if batch.in_doubt and batch.rows and _is_there(db, batch.rows[-1], after=seq - LOOKED_FOR_AMONG):
        return
    for place, record in enumerate(batch.rows, seq + 1):
        db.put_in(_INSERT, place, *_values(record))
    for key, found in batch.sums.items():
        db.put_in(_ADD, *_sums(key, found))
    last_calls.note(db, batch.logins)
    for tool, at in batch.tools.items():
        db.put_in(_USED, *tool, at)
    low = (ends["low"] if ends is not None else None) or 1
    beyond = seq + len(batch.rows) - most_rows
    if beyond >= low:
        db.execute("DELETE FROM calls WHERE seq <= ?", min(beyond, low + DROPPED_AT_ONCE - 1))


def _is_there(db: StoreDb, record: CallRecord, *, after: int) -> bool:
    where = (record.call_id, record.at, record.server, record.tool, _ms(record))
    return db.fetch_one(_IS_THERE, after, *where) is not None


def _ms(record: CallRecord) -> float:
    return round(record.seconds * 1_000, 3)


def _values(record: CallRecord) -> tuple[object, ...]:
    who = record.who
    return (
        record.at,
        record.server,
        record.tool,
        record.outcome,
        record.reason,
        _ms(record),
        who.kind.value,
        who.subject,
        who.person,
        who.client_id,
        who.program,
        who.grant_id,
        record.call_id,
        record.revision,
        record.is_task,
        record.price,
        record.asked or None,
        record.answered or None,
        record.passed_over,
    )


def _sums(key: HourKey, found: HourSum) -> tuple[object, ...]:
    who = found.who
    told = ("", "", "", "") if who is None else (who.kind.value, who.subject, who.person, who.program)
    return (*key, *told, found.count, found.ms, *found.buckets)


def page(db: Db, wanted: CallFilter, *, oldest_first: bool, at: int | None, at_most: int) -> CallPage:
    """A job. Rows after the number `at` (oldest first), or before it; None begins at the end that comes first."""
    ends = db.fetch_one(ENDS)
    if ends is None or ends["low"] is None:
        return CallPage(rows=(), go_on=None)
    low, high = ends["low"], ends["high"]
    if oldest_first:
        after = low - 1 if at is None else max(at, low - 1)
        first, last, order = after + 1, min(after + STRETCH, high), "ASC"
    else:
        before = high + 1 if at is None else min(at, high + 1)
        first, last, order = max(before - STRETCH, low), before - 1, "DESC"
    condition, values = wanted.condition("at")
    sql = f"SELECT * FROM calls WHERE seq BETWEEN ? AND ?{condition} ORDER BY seq {order} LIMIT ?"
    rows = tuple(db.fetch_all(sql, first, last, *values, at_most))
    if len(rows) == at_most:
        return CallPage(rows=rows, go_on=rows[-1]["seq"])
    more = last < high if oldest_first else first > low
    return CallPage(rows=rows, go_on=(last if oldest_first else first) if more else None)


def usage(db: StoreDb, wanted: CallFilter, *, by: By) -> list[UsageRow]:
    """A job that reads: by time in its order, else those that were called most, first. Times are whole hours."""
    condition, values = wanted.condition("hour")
    groups = _GROUPS[by]
    order = "1" if "at" in groups else "calls DESC, 1"
    selected = ", ".join(f"{group} AS {name}" for name, group in groups.items())
    sql = (
        f"SELECT {selected}, sum(count) AS calls, sum(CASE WHEN outcome IN ({FAILED_WORDS}) THEN count ELSE 0 END) AS failed,"
        f" sum(ms) AS total, {', '.join(f'sum({d}) AS {d}' for d in DURATIONS)} FROM call_hours WHERE 1 = 1{condition}"
        f" GROUP BY {', '.join(str(place) for place in range(1, len(groups) + 1))} ORDER BY {order} LIMIT ?"
    )
    return [_row(row, tuple(groups)) for row in db.fetch_all(sql, *values, GROUPS_AT_MOST)]


def usage_of(db: Db, *, server: str, caller: str, since: Millis) -> dict[str, Any]:
    """A job that reads: what one caller called at one server, by the day and by the tool. A promise to programs: fields are added,
    never taken away."""
    where = "FROM call_hours WHERE hour >= ? AND server = ? AND caller = ?"
    sums = f"sum(count) AS calls, sum(CASE WHEN outcome IN ({FAILED_WORDS}) THEN count ELSE 0 END) AS failed"
    days = db.fetch_all(
        f"SELECT hour / {DAY} * {DAY} AS at, {sums} {where} GROUP BY 1 ORDER BY 1", since, server, caller
    )
    tools = db.fetch_all(
        f"SELECT tool AS name, {sums}, sum(ms) AS ms {where} GROUP BY 1 ORDER BY calls DESC, 1 LIMIT ?",
        since,
        server,
        caller,
        GROUPS_AT_MOST,
    )
    return {
        "calls": sum(day["calls"] for day in days),
        "failed": sum(day["failed"] for day in days),
        "days": [dict(day) for day in days],
        "tools": [dict(tool) for tool in tools],
    }


def _row(row: Row, names: Sequence[str]) -> UsageRow:
    buckets = [row[d] for d in DURATIONS]
    return UsageRow(
        name={name: row[name] for name in names},
        count=row["calls"],
        failed=row["failed"],
        ms=row["total"],
        p50=quantile(buckets, 0.5),
        p95=quantile(buckets, 0.95),
    )
