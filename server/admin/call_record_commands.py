"""Commands of the admin socket for the records of calls: a page of them, and what they come to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from server.admin.bounded_arguments import number, text
from server.admin.control import CommandRefused, Handler
from server.store.call_records import call_rows
from server.store.call_records.call_record import HOUR
from server.store.call_records.call_rows import BYS, By, CallFilter
from server.store.jobs import Store, StoreDb

# An answer is a megabyte at most.
ROWS_AT_MOST: Final = 2_000


class CallsAdmin(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    write_down: Callable[[], Awaitable[None]]  # what waits to be written

    def commands(self) -> dict[str, Handler]:
        return {"calls": self.calls, "usage": self.usage}

    async def calls(self, arguments: Mapping[str, Any], actor: str) -> Any:
        """`at` is the `go_on` of the page before."""
        await self.write_down()
        return await self.store.read(partial(page, arguments=arguments))

    async def usage(self, arguments: Mapping[str, Any], actor: str) -> Any:
        await self.write_down()
        return await self.store.read(partial(usage, arguments=arguments))


def page(db: StoreDb, *, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A job, also for whoever reads the database where no server runs. Raises `CommandRefused`."""
    found = call_rows.page(
        db,
        _wanted(arguments),
        oldest_first=arguments.get("oldest_first") is True,
        at=number(arguments, "at"),
        at_most=min(number(arguments, "at_most") or ROWS_AT_MOST, ROWS_AT_MOST),
    )
    return {"rows": [dict(row) for row in found.rows], "go_on": found.go_on}


def usage(db: StoreDb, *, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Likewise. Calls are summed up by the hour, so the hour of `since` is in it whole."""
    for by in BYS:
        if by == arguments.get("by"):
            return {"rows": _used(db, _wanted(arguments), by)}
    raise CommandRefused(f"by is one of {', '.join(BYS)}")


def _used(db: StoreDb, wanted: CallFilter, by: By) -> list[dict[str, Any]]:
    if wanted.since is not None:
        wanted = msgspec.structs.replace(wanted, since=wanted.since // HOUR * HOUR)
    rows: list[dict[str, Any]] = []
    for row in call_rows.usage(db, wanted, by=by):
        facts = asdict(row)
        rows.append({**facts.pop("name"), **facts})
    return rows


def _wanted(arguments: Mapping[str, Any]) -> CallFilter:
    return CallFilter(
        since=number(arguments, "since"),
        until=number(arguments, "until"),
        failed=arguments.get("failed") is True,
        person=text(arguments, "person"),
        server=text(arguments, "server"),
        tool=text(arguments, "tool"),
    )
