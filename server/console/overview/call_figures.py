"""What calls came to, as values: the last 24 hours beside the 24 before, tools, whoever called, and what was refused at the door. Jobs that
only read, each of them in a few tens of milliseconds however many calls there were: they read the sums of hours, which are bounded, and
of rows one stretch.

`whose` is a person's id, and then only what they called themselves, or by keys of theirs, is counted; None is everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from auth.grants import last_calls
from auth.values.database import Db, Row
from auth.values.identity_model import Millis
from server.store.call_records.call_record import FAILURES, HOUR, quantile
from server.store.call_records.call_rows import DURATIONS, FAILED_WORDS, STRETCH, OfPerson

HOURS: Final = 24
DAY: Final[Millis] = HOURS * HOUR
# Tools and callers that are told of; whoever has more filters the calls.
MOST_TOOLS: Final = 100
MOST_CALLERS: Final = 100
# Groups that SQL makes before they are put together by caller.
MOST_GROUPS: Final = 5_000

_CALLS: Final = "sum(count) AS calls"
_FAILED: Final = f"sum(CASE WHEN outcome IN ({FAILED_WORDS}) THEN count ELSE 0 END) AS failed"
_BUCKETS: Final = ", ".join(f"sum({each}) AS {each}" for each in DURATIONS)


class HourFigures(msgspec.Struct, frozen=True):
    at: Millis  # when it began
    calls: int
    failed: int


class SlowTool(msgspec.Struct, frozen=True):
    server: str
    tool: str
    p95: float  # ms


class DayFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of 24 hours, of which the last is this one: `hours` in their order."""

    calls: int
    failed: int
    calls_before: int  # in the 24 hours before
    failed_before: int
    slowest: SlowTool | None
    hours: tuple[HourFigures, ...]


class ToolFigures(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    tool: str
    calls: int = 0
    failed: int = 0
    p50: float = 0.0
    p95: float = 0.0
    called_at: Millis | None = None


class CallerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A person with one of their programs, or a key, or a machine."""

    kind: str
    person: str  # empty where nobody stands behind it
    program: str
    calls: int = 0
    failed: int = 0
    called_at: Millis | None = None  # None: some time within the hour of `called_in`
    called_in: Millis | None = None
    place: str = ""


class DoorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of a day, as far as the last `STRETCH` rows of the trail go back."""

    wrong_codes: int = 0
    wrong_sign_ins: int = 0
    new_programs: int = 0
    others: int = 0  # refused for another reason


def begin_of(now: Millis) -> Millis:
    return now // HOUR * HOUR - (HOURS - 1) * HOUR


def day(
    db: Db, *, now: Millis, whose: str | None = None, used: Sequence[ToolFigures] | None = None
) -> DayFigures:
    """`used`: what `tools` found, if that is known."""
    begin, of_whom = begin_of(now), OfPerson.of(whose)
    rows = db.fetch_all(
        f"SELECT hour, {_CALLS}, {_FAILED} FROM call_hours WHERE hour >= ?{of_whom.sql} GROUP BY hour ORDER BY hour",
        begin - DAY,
        *of_whom.values,
    )
    found = {row["hour"]: HourFigures(row["hour"], row["calls"], row["failed"]) for row in rows}
    today = tuple(found.get(at, HourFigures(at, 0, 0)) for at in range(begin, begin + DAY, HOUR))
    before = [each for each in found.values() if each.at < begin]
    if used is None:
        used = tools(db, now=now, whose=whose)
    slowest = max(used, key=lambda each: each.p95, default=None)
    return DayFigures(
        calls=sum(each.calls for each in today),
        failed=sum(each.failed for each in today),
        calls_before=sum(each.calls for each in before),
        failed_before=sum(each.failed for each in before),
        slowest=None if slowest is None else SlowTool(slowest.server, slowest.tool, slowest.p95),
        hours=today,
    )


def tools(db: Db, *, now: Millis, whose: str | None = None) -> list[ToolFigures]:
    """Those that were called in these 24 hours, the most first; see `with_unused`."""
    of_whom = OfPerson.of(whose)
    rows = db.fetch_all(
        f"SELECT server, tool, max(hour) AS hour, {_CALLS}, {_FAILED}, {_BUCKETS} FROM call_hours"
        f" WHERE hour >= ?{of_whom.sql} GROUP BY server, tool ORDER BY calls DESC, server, tool LIMIT ?",
        begin_of(now),
        *of_whom.values,
        MOST_TOOLS,
    )
    return [_tool(row, now) for row in rows]


def _tool(row: Row, now: Millis) -> ToolFigures:
    buckets = [row[each] for each in DURATIONS]
    return ToolFigures(
        server=row["server"],
        tool=row["tool"],
        calls=row["calls"],
        failed=row["failed"],
        p50=quantile(buckets, 0.5),
        p95=quantile(buckets, 0.95),
        called_at=min(row["hour"] + HOUR, now),
    )


def with_unused(
    db: Db, used: Sequence[ToolFigures], *, offered: Sequence[tuple[str, str]]
) -> list[ToolFigures]:
    """A job: those, with their last call to the minute, and behind them what is offered (server, tool) and was not called."""
    known = {(each.server, each.tool): each for each in used}
    missing = [key for key in offered if key not in known][: max(0, MOST_TOOLS - len(known))]
    found: list[ToolFigures] = []
    for server, tool in [*known, *missing]:
        row = db.fetch_one("SELECT called_at FROM tool_uses WHERE server = ? AND tool = ?", server, tool)
        each = known.get((server, tool)) or ToolFigures(server=server, tool=tool)
        at = each.called_at if row is None else row["called_at"]
        found.append(msgspec.structs.replace(each, called_at=at))
    return found


def callers(db: Db, *, now: Millis, whose: str | None = None) -> list[CallerFigures]:
    """Who called last, first: what they called in these 24 hours, and whose login or key called at all."""
    of_whom = OfPerson.of(whose)
    rows = db.fetch_all(
        f"SELECT caller, kind, person, program, max(hour) AS hour, {_CALLS}, {_FAILED} FROM call_hours"
        f" WHERE hour >= ?{of_whom.sql} GROUP BY caller, kind, person, program ORDER BY calls DESC LIMIT ?",
        begin_of(now),
        *of_whom.values,
        MOST_GROUPS,
    )
    found: dict[str, CallerFigures] = {}
    # Of one who is called otherwise by now, the newest name.
    for row in sorted(rows, key=lambda row: row["hour"]):
        before = found.get(row["caller"])
        found[row["caller"]] = CallerFigures(
            kind=row["kind"],
            person=row["person"],
            program=row["program"],
            calls=row["calls"] + (before.calls if before is not None else 0),
            failed=row["failed"] + (before.failed if before is not None else 0),
            called_in=row["hour"],
        )
    for last in last_calls.latest(db, at_most=2 * MOST_CALLERS, whose=whose):
        before = found.get(last.caller) or CallerFigures(
            kind=last.kind, person=last.person, program=last.program
        )
        if before.called_at is None or before.called_at < last.at:
            found[last.caller] = msgspec.structs.replace(before, called_at=last.at, place=last.place)
    ordered = sorted(found.values(), key=lambda each: -(each.called_at or each.called_in or 0))
    return ordered[:MOST_CALLERS]


def at_the_door(db: Db, *, now: Millis) -> DoorFigures:
    newest = db.fetch_one("SELECT max(seq) AS seq FROM audit")
    if newest is None or newest["seq"] is None:
        return DoorFigures()
    rows = db.fetch_all(
        "SELECT event, outcome, count(*) AS n FROM audit WHERE seq > ? AND at >= ?"
        " AND (outcome = 'refused' OR event = 'client.registered') GROUP BY event, outcome",
        newest["seq"] - STRETCH,
        now - DAY,
    )
    counts = {(row["event"], row["outcome"]): row["n"] for row in rows}
    codes = counts.pop(("device.code_entered", "refused"), 0)
    sign_ins = counts.pop(("user.signed_in", "refused"), 0)
    programs = counts.pop(("client.registered", "ok"), 0)
    return DoorFigures(
        wrong_codes=codes, wrong_sign_ins=sign_ins, new_programs=programs, others=sum(counts.values())
    )


def is_failure(outcome: str) -> bool:
    return outcome in FAILURES
