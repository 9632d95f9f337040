"""Records of calls: a million of them, and for a month of hours as many sums as there can be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any, Final

from house import House, Tables
from pair import Ground, compare_starts, fill, served
from people import Entrance

from server.store.call_records.call_book import SUMS_AN_HOUR
from server.store.call_records.call_record import BUCKETS, HOUR
from server.store.call_records.call_rows import DURATIONS

MANY: Final = 1_000_000
FEW: Final = 100
DAYS: Final = 30
TOOLS: Final = 20
OUTCOMES: Final = ("ok", "error")
RECORD: Final = (
    "seq", "at", "server", "tool", "outcome", "ms", "kind", "subject", "person", "client_id", "program", "grant_id", "call_id",
    "revision", "is_task", "asked", "answered",
)  # fmt: skip
SUM: Final = (
    "hour",
    "server",
    "tool",
    "caller",
    "outcome",
    "kind",
    "subject",
    "person",
    "program",
    "count",
    "ms",
    *DURATIONS,
)


class Calls:
    def __init__(self, count: int, sums: int) -> None:
        self._count, self._sums = count, sums
        self._draw = Random(count)

    def fill(self, house: House, tables: Tables) -> None:
        del house
        now = time.time_ns() // 1_000_000
        tables.fill("calls", RECORD, self._records(now))
        tables.fill("call_hours", SUM, self._sums_of_hours(now))
        used = [("agent", f"tool_{number}", now) for number in range(TOOLS)]
        tables.fill("tool_uses", ("server", "tool", "called_at"), used)

    def _records(self, now: int) -> Iterator[tuple[Any, ...]]:
        for number in range(self._count):
            person = self._draw.randrange(10_000)
            outcome = "error" if not number % 50 else "ok"
            yield (
                number + 1, now - (self._count - number) * 100, "agent", f"tool_{self._draw.randrange(TOOLS)}", outcome, 1.5, "user",
                f"usr_{person}", f"person-{person}", "ostiary-cli", "ostiary", f"grt_{person:020}", f"call_{number}", "2026-07-28", 0,
                200, 300,
            )  # fmt: skip

    def _sums_of_hours(self, now: int) -> Iterator[tuple[Any, ...]]:
        callers = max(1, self._sums // (TOOLS * len(OUTCOMES)))
        for hour in range(DAYS * 24):
            at = now // HOUR * HOUR - hour * HOUR
            for caller in range(callers):
                who = (f"usr_{caller}", f"person-{caller}")
                for tool in range(TOOLS):
                    for outcome in OUTCOMES:
                        yield (
                            at, "agent", f"tool_{tool}", f"user:{who[0]}:ostiary-cli", outcome, "user", *who, "ostiary", 10, 15.0,
                            10, *(0 for _ in range(BUCKETS - 1)),
                        )  # fmt: skip


def measure(ground: Ground) -> None:
    sheet, few_count, many_count = ground.sheet, FEW, ground.many(MANY)
    sheet.begin(f"records of calls: {few_count:,} → {many_count:,}")
    few, many = (ground.house(name, "") for name in ("calls_few", "calls_many"))
    entrances = {house.folder.name: Entrance() for house in (few, many)}
    for house, count, sums in ((few, few_count, 40), (many, many_count, SUMS_AN_HOUR)):
        fill(house, Calls(count, sums).fill)
        fill(house, entrances[house.folder.name].open)
    compare_starts(ground, few, many)
    with served(ground, few, many) as (little, much):
        compare = partial(sheet.compare, times=ground.times(11))
        for what, path, whose in (
            ("Overview of the owner", "/account", "owner"),
            ("Overview of somebody else", "/account", "somebody"),
            ("page Calls", "/account/calls", "owner"),
            ("the same, of one person", "/account/calls?person=person-7", "owner"),
            ("the same, any failure", "/account/calls?outcome=failures", "owner"),
        ):
            pages = (
                partial(entrances[each.house.folder.name].page, each, path, whose=whose)
                for each in (little, much)
            )
            compare(what, *pages)
        day = time.time_ns() // 1_000_000 - 24 * HOUR
        for what, command, arguments in (
            ("ostiary calls", "calls", {"at_most": 50}),
            ("ostiary usage, of a day", "usage", {"by": "tool", "since": day}),
            ("ostiary usage, of all that is kept", "usage", {"by": "tool"}),
            ("ostiary status", "status", {}),
        ):
            compare(
                what,
                partial(little.guest.ask, command, **arguments),
                partial(much.guest.ask, command, **arguments),
            )
        of_few, of_many = (each.guest.log_in()["access_token"] for each in (little, much))
        sheet.compare(
            "call",
            partial(little.guest.call, of_few),
            partial(much.guest.call, of_many),
            times=ground.times(101),
        )
