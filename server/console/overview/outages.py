"""Agents that are out of order, and whom it hits: read for the Overview page, `ostiary status`, `doctor` and the log, so that all of them
say the same.

How many calls failed is counted: of the hour in which it began by the rows of calls, of the hours after that by their sums, so neither
takes long however long it lasts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from auth.values.database import Db, Row
from auth.values.identity_model import Millis
from server.agents.base.catalog import AgentTrouble
from server.calls.servers.endpoint import Endpoint
from server.console.overview.outage_effects import AgentHit, told_hit
from server.store.call_records.call_record import HOUR
from server.store.call_records.call_rows import STRETCH
from server.store.jobs import Store, StoreUnavailable

# Outcomes for which the agent answers; a call that was refused or wrong in itself would have failed anyway.
AGENTS_FAULT: Final = ("error", "failed", "timeout", "crashed")
# Rows of the first hour that are looked at, one stretch after the other.
MOST_ROWS: Final = 5 * STRETCH
# Sums are looked at as far back as this: two weeks of a thousand callers are a tenth of a second.
SUMS_FOR: Final[Millis] = 14 * 24 * HOUR
# The call during which a program dies ends before it is noticed that the program has.
FOUND_OUT: Final[Millis] = 2_000
NAMED: Final = 5
# Of one agent; what has more is told of with these.
MOST_TOOLS: Final = 500


class AgentOutage(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    server: str
    words: str
    since: Millis
    kind: str  # as of `Trouble`
    hit: AgentHit
    backend: object = None

    def told(self) -> dict[str, Any]:
        """For whoever is at the machine."""
        return {
            "name": self.name,
            "server": self.server,
            "words": self.words,
            "since": self.since,
            "kind": self.kind,
            **told_hit(self.hit),
        }


def troubles(endpoints: Mapping[str, Endpoint]) -> list[tuple[str, AgentTrouble]]:
    """With the name of its server; that of the agent begins with it."""
    return [(name, found) for name, endpoint in endpoints.items() for found in endpoint.catalog.troubles()]


async def outages(
    endpoints: Mapping[str, Endpoint], store: Store, write_down: Callable[[], Awaitable[None]], now: Millis
) -> list[AgentOutage]:
    """`write_down`: has what waits to be recorded written. Where the store cannot be read, nobody is said to be hit."""
    found = troubles(endpoints)
    if not found:
        return []
    await write_down()

    async def hit(server: str, each: AgentTrouble) -> AgentHit:
        try:
            return await hit_by(store, server, each, now)
        except StoreUnavailable:
            return AgentHit()

    return [
        AgentOutage(
            name=each.name,
            server=server,
            words=each.trouble.words,
            since=each.trouble.since,
            kind=each.trouble.kind,
            hit=await hit(server, each),
            backend=each.backend,
        )
        for server, each in found
    ]


async def hit_by(store: Store, server: str, found: AgentTrouble, now: Millis) -> AgentHit:
    """Raises what the store raises."""
    tools, refusal, trouble = found.tools[:MOST_TOOLS], found.refusal, found.trouble
    if trouble.kind != "fails" or not (tools or refusal):
        return AgentHit()
    since, counts = trouble.since - FOUND_OUT, Counter[str]()
    next_hour = since // HOUR * HOUR + HOUR
    # Sums do not say with which words a call was refused, so of these there are rows alone.
    which = _refused(refusal) if refusal else _of(tools)
    until = now + FOUND_OUT if refusal else next_hour
    at = await store.read(partial(_first_row, since=since))
    for _ in range(MOST_ROWS // STRETCH):
        if at is None:
            break
        rows, at = await store.read(
            partial(_rows, server=server, which=which, since=since, until=until, at=at)
        )
        counts.update(_names(rows))
    if now >= next_hour and not refusal:
        begin = max(next_hour, now // HOUR * HOUR - SUMS_FOR)
        for row in await store.read(partial(_sums, server=server, which=which, since=begin)):
            counts[_name(row)] += row["calls"]
    named = [name for name, _ in counts.most_common(NAMED)]
    return AgentHit(calls=counts.total(), people=tuple(named), others=len(counts) - len(named))


def _first_row(db: Db, *, since: Millis) -> int | None:
    row = db.fetch_one("SELECT seq FROM calls WHERE at >= ? ORDER BY at LIMIT 1", since)
    return None if row is None else row["seq"]


def _rows(
    db: Db, *, server: str, which: _Which, since: Millis, until: Millis, at: int
) -> tuple[list[Row], int | None]:
    """A job: those of one stretch, and where the next begins."""
    rows = db.fetch_all(
        f"SELECT person, program, kind, subject FROM calls WHERE seq BETWEEN ? AND ? AND at >= ? AND at < ?{which.sql}",
        at,
        at + STRETCH - 1,
        since,
        until,
        server,
        *which.values,
    )
    beyond = db.fetch_one("SELECT at FROM calls WHERE seq = ?", at + STRETCH)
    return rows, at + STRETCH if beyond is not None and beyond["at"] < until else None


def _sums(db: Db, *, server: str, which: _Which, since: Millis) -> list[Row]:
    return db.fetch_all(
        f"SELECT person, program, kind, subject, sum(count) AS calls FROM call_hours WHERE hour >= ?{which.sql}"
        " GROUP BY person, program, kind, subject",
        since,
        server,
        *which.values,
    )


class _Which(NamedTuple):
    """Calls of one server, in SQL to go on a WHERE with; its name comes before these values."""

    sql: str
    values: tuple[str, ...]


def _of(tools: Sequence[str]) -> _Which:
    """Of these tools, whose agent did not answer."""
    marks, outcomes = ", ".join("?" * len(tools)), ", ".join("?" * len(AGENTS_FAULT))
    return _Which(
        f" AND server = ? AND tool IN ({marks}) AND outcome IN ({outcomes})", (*tools, *AGENTS_FAULT)
    )


def _refused(words: str) -> _Which:
    return _Which(" AND server = ? AND outcome = 'refused' AND instr(reason, ?) > 0", (words,))


def _names(rows: Iterable[Row]) -> Iterable[str]:
    return (_name(row) for row in rows)


def _name(row: Row) -> str:
    """Whoever called, as the owner knows them."""
    if row["kind"] == "anonymous":
        return "callers without a login"
    if row["kind"] == "":
        return "further callers"
    return row["person"] or row["program"] or row["subject"]
