"""The audit trail: a million rows, chained under the key of the house by the program's own functions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any, Final

from house import House, Tables
from msgspec.structs import replace
from pair import Ground, Served, compare_starts, fill, served
from people import Entrance

from auth.audit import audit_trail
from auth.values.database import AuditEntry
from server.store import meta_rows
from server.store.audit_chain import AuditChain

MANY: Final = 1_000_000
FEW: Final = 100
DAYS: Final = 20
DAY: Final = 24 * 3_600_000
COMMANDS: Final = 50  # rows that `ostiary audit` shows
PAGE: Final = 2_000  # rows of one question, at most
RARE: Final = "usr_rare"


class Trail:
    def __init__(self, count: int, *, begin: int | None = None) -> None:
        """Until now, if it is not said when they begin."""
        self._count = count
        self._begin = time.time_ns() // 1_000_000 - DAYS * DAY if begin is None else begin
        self._draw = Random(count)

    def fill(self, house: House, tables: Tables) -> None:
        chain = AuditChain(house.subkey(tables)(audit_trail.KEY_PURPOSE))
        record = chain.record(tables)  # pyright: ignore[reportArgumentType]
        if record is None:
            raise LookupError("the trail was not begun")
        head = (record.head, record.head_mac)

        def rows() -> Iterator[tuple[Any, ...]]:
            nonlocal head
            for entry in self._entries():
                seq = head[0] + 1
                mac = chain.mac(head[1], seq, entry)
                head = (seq, mac)
                yield (seq, *entry, mac)

        tables.fill("audit", ("seq", *AuditEntry._fields, "mac"), rows())
        longer = replace(record, head=head[0], head_mac=head[1])
        tables.execute("UPDATE meta SET value = ? WHERE key = ?", chain.sealed(longer), meta_rows.AUDIT_CHAIN)

    def _entries(self) -> Iterator[AuditEntry]:
        begin, step = self._begin, DAYS * DAY / self._count
        for number in range(self._count):
            at, which = begin + int(number * step), self._draw.randrange(100)
            login = f"grt_{self._draw.randrange(self._count):020}"
            if number in (5, self._count // 2):
                yield AuditEntry(at, "key.created", f"user:{RARE}", None, None, "10.0.0.1", "", "ok", "")
            elif which < 95:
                yield AuditEntry(
                    at, "refresh.rotated", "client:ostiary-cli", "ostiary-cli", login, "10.0.0.1", "ostiary/1.0", "ok", ""
                )  # fmt: skip
            elif which < 99:
                person = f"user:usr_{self._draw.randrange(10_000)}"
                yield AuditEntry(
                    at, "device.approved", person, "ostiary-cli", login, "10.0.0.1", "Firefox", "ok", ""
                )
            else:
                yield AuditEntry(
                    at, "refresh.refused", "client:ostiary-cli", "ostiary-cli", login, "10.0.0.1", "", "refused", "login is over"
                )  # fmt: skip


def measure(ground: Ground) -> None:
    sheet, few_count, many_count = ground.sheet, FEW, ground.many(MANY)
    sheet.begin(f"audit rows: {few_count:,} → {many_count:,}")
    few, many = (ground.house(name, "") for name in ("trail_few", "trail_many"))
    entrances = {house.folder.name: Entrance() for house in (few, many)}
    for house, count in ((few, few_count), (many, many_count)):
        fill(house, Trail(count).fill)
        fill(house, entrances[house.folder.name].open)
    compare_starts(ground, few, many)
    with served(ground, few, many) as (little, much):
        compare = partial(sheet.compare, times=ground.times(11))
        now = time.time_ns() // 1_000_000
        for what, wanted in (
            ("ostiary audit", {}),
            ("ostiary audit --outcome refused", {"outcome": "refused"}),
            ("ostiary audit --event device", {"events": ["device"]}),
            ("ostiary audit --since 2h", {"since": now - DAY // 12}),
            ("ostiary audit --until, two weeks ago", {"until": now - 14 * DAY}),
            ("ostiary audit --actor, of one who did two things", {"actor": f"user:{RARE}"}),
            ("ostiary audit --grant, of which nothing is told", {"grant_id": "grt_none"}),
        ):
            compare(what, partial(audit_command, little, wanted), partial(audit_command, much, wanted))
        for what, path in (
            ("page Audit trail", "/account/audit"),
            ("the same, what was refused", "/account/audit?outcome=refused"),
            ("the same, of one who did two things", f"/account/audit?who=user:{RARE}"),
        ):
            compare(
                what,
                partial(entrances["trail_few"].page, little, path),
                partial(entrances["trail_many"].page, much, path),
            )
        compare("login (it writes rows)", little.guest.log_in, much.guest.log_in)
        begun, checked = time.perf_counter(), verify(much)
        sheet.add("ostiary verify", None, checked / (time.perf_counter() - begun), "rows/s")
        sheet.add("resident", little.resident_mib(), much.resident_mib(), "MiB")


def audit_command(served: Served, wanted: dict[str, Any]) -> None:
    """As the command does: page by page, until it has what it shows."""
    found, at = 0, None
    while found < COMMANDS:
        page = served.guest.ask("audit", **wanted, oldest_first=False, at=at, at_most=COMMANDS)
        found, at = found + len(page["rows"]), page["go_on"]
        if at is None:
            return


def verify(served: Served) -> int:
    """How many rows were walked."""
    checked, at = 0, None
    while True:
        piece = served.guest.ask("audit.verify", at=at)
        if piece["broken"] is not None:
            raise AssertionError(f"the trail that was filled in is not sound: {piece}")
        checked, at = checked + piece["checked"], piece["at"]
        if piece["done"]:
            return checked
