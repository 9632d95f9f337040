"""Everybody's logins in pages, for whoever owns the server: as long as there are few, those that were used last come first; of very many,
those that were made last, because an order by use would cost a write with every refresh.

A page looks at a bounded stretch of them, so that a search for what is rare holds nobody up: it may be short, or empty, and not the last.
"""

from __future__ import annotations

from typing import Final

import msgspec

from auth.grants.login_records import RECORDS, LoginRecord, recorded, searched
from auth.grants.token_request import epoch
from auth.values.database import Db, Row
from auth.values.identity_model import Millis

# As many are put into an order for one page: some ten milliseconds of a reading thread.
ORDERED: Final = 2_000
# As many one page looks at, of very many.
STRETCH: Final = 5_000

# The places of logins that were not ended, the newest first: read from an index alone, and no further than said.
_PLACES: Final = "SELECT created_at, id FROM grants WHERE revoked_at IS NULL{} ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ?"
_BEFORE: Final = " AND (created_at, id) < (?, ?)"
# The plus keeps a time that says nothing of the order from being taken for the way to find them.
_LIVING: Final = "g.revoked_at IS NULL AND +g.expires_at > ? AND +g.idle_until > ? AND g.epoch = ?"

Place = tuple[Millis, str]


class LoginPage(msgspec.Struct, frozen=True, kw_only=True):
    logins: list[LoginRecord]
    go_on: Place | None  # where the next page begins (`before`); None: there is no more
    by_use: bool  # those that were used last come first


def page(db: Db, now: Millis, *, limit: int, before: Place | None = None, like: str = "") -> LoginPage:
    """A job. `like`: something that the person, the program, its computer or address has in it."""
    beyond = db.fetch_one(_PLACES.format(""), ORDERED)
    return (_by_use if beyond is None else _newest)(db, now, limit, before, like)


def count(db: Db, now: Millis, *, at_most: int) -> tuple[int, bool]:
    """A job: how many live among so many that were made last, and whether there are more."""
    sql = (
        "SELECT count(*) AS n FROM (SELECT expires_at, idle_until, epoch FROM grants WHERE revoked_at IS NULL"
        " ORDER BY created_at DESC, id DESC LIMIT ?) AS newest WHERE expires_at > ? AND idle_until > ? AND epoch = ?"
    )
    row = db.fetch_one(sql, at_most, now, now, epoch(db))
    beyond = db.fetch_one(_PLACES.format(""), at_most)
    return 0 if row is None else row["n"], beyond is not None


def _by_use(db: Db, now: Millis, limit: int, before: Place | None, like: str) -> LoginPage:
    where, values = "g.created_at >= ?", list[object]([0])
    if before is not None:
        where += " AND (g.last_used_at < ? OR (g.last_used_at = ? AND g.id > ?))"
        values += [before[0], *before]
    rows = _found(db, now, where, values, like, "g.last_used_at DESC, g.id", limit + 1)
    go_on = (rows[limit - 1]["last_used_at"], rows[limit - 1]["id"]) if len(rows) > limit else None
    return LoginPage(logins=[recorded(row, now) for row in rows[:limit]], go_on=go_on, by_use=True)


def _newest(db: Db, now: Millis, limit: int, before: Place | None, like: str) -> LoginPage:
    end = db.fetch_one(_PLACES.format("" if before is None else _BEFORE), *(before or ()), STRETCH - 1)
    where, values = "g.created_at >= ?", list[object]([0])
    if end is not None:
        where, values = "(g.created_at, g.id) >= (?, ?)", [end["created_at"], end["id"]]
    if before is not None:
        where += " AND (g.created_at, g.id) < (?, ?)"
        values += before
    rows = _found(db, now, where, values, like, "g.created_at DESC, g.id DESC", limit)
    last = rows[-1] if len(rows) == limit else end
    go_on = None if last is None else (last["created_at"], last["id"])
    return LoginPage(logins=[recorded(row, now) for row in rows], go_on=go_on, by_use=False)


def _found(
    db: Db, now: Millis, where: str, values: list[object], like: str, order: str, limit: int
) -> list[Row]:
    sought, words = searched(like)
    sql = f" WHERE {_LIVING} AND {where}{sought} ORDER BY {order} LIMIT ?"
    return db.fetch_all(RECORDS + sql, now, now, epoch(db), *values, *words, limit)
