"""Statements of the books: accounts with their balances, and the movements of one or all of them, page by page. Jobs that read.

A page looks at a bounded stretch of the ledger, so that a rare movement does not hold a reader up: it may be empty and not the last. For
one account the stretch begins with its next movement, so that whatever lies between costs nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from auth.values.identity_model import Millis
from server.payments.seller.ledger import CHAIN
from server.store.jobs import Row, StoreDb

# Numbers that one page looks at: some ten milliseconds of a reading thread.
STRETCH: Final = 20_000
CHAIN_FACTS: Final = ("transaction", "payer", "pay_to", "network", "asset")
# Movements that are a payment themselves; others that name one have their own way.
_PAID: Final = frozenset({"payment", "deposit"})
_CHAIN_SIDES: Final = MappingProxyType({"payment": "source", "deposit": "source", "purchase": "target"})
_TRANSACTION: Final = re.compile(r"0x[0-9A-Fa-f]{64}")
# Payments that one query looks up by their ids.
_NAMED: Final = 500


class StatementFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on a movement; None: anything."""

    account: str | None = None  # on either side
    server: str | None = None
    tool: str | None = None
    kind: str | None = None
    since: Millis | None = None  # from then on
    until: Millis | None = None  # before then

    def condition(self) -> tuple[str, list[object]]:
        """Return the SQL after WHERE, and its parameters."""
        tests: list[str] = []
        values: list[object] = []
        for test, value in (
            ("server = ?", self.server),
            ("tool = ?", self.tool),
            ("kind = ?", self.kind),
            ("at >= ?", self.since),
            ("at < ?", self.until),
        ):
            if value is not None:
                tests.append(f" AND {test}")
                values.append(value)
        return "".join(tests), values


class StatementPage(msgspec.Struct, frozen=True, kw_only=True):
    rows: tuple[Row, ...]
    go_on: int | None  # where the next page begins (`at`); None: there is no more


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    account: str
    currency: str
    balance: int
    held: int = 0  # of a wallet


def page(
    db: StoreDb, wanted: StatementFilter, *, oldest_first: bool, at: int | None, at_most: int
) -> StatementPage:
    """Read movements after the number `at` (oldest first), or before it; None begins at the end that comes first."""
    begin = _next(db, wanted.account, oldest_first, at)
    if begin is None:
        return StatementPage(rows=(), go_on=None)
    low, high = (begin, begin + STRETCH - 1) if oldest_first else (begin - STRETCH + 1, begin)
    condition, values = wanted.condition()
    order = "ASC" if oldest_first else "DESC"
    if wanted.account is None:
        sql = f"SELECT * FROM movements WHERE seq BETWEEN ? AND ?{condition} ORDER BY seq {order} LIMIT ?"
        rows = db.fetch_all(sql, low, high, *values, at_most)
    else:
        sides = " UNION ALL ".join(
            f"SELECT * FROM movements WHERE {side} = ? AND seq BETWEEN ? AND ?{condition}"
            for side in ("source", "target")
        )
        bounds = (wanted.account, low, high, *values)
        rows = db.fetch_all(f"{sides} ORDER BY seq {order} LIMIT ?", *bounds, *bounds, at_most)
    end = rows[-1]["seq"] if len(rows) == at_most else (high if oldest_first else low)
    more = _next(db, wanted.account, oldest_first, end) is not None
    return StatementPage(rows=tuple(rows), go_on=end if more else None)


def chain_facts(db: StoreDb, rows: Sequence[Row]) -> list[dict[str, str | None]]:
    """Find by which transaction, and between which addresses, each of these movements was paid on a chain. All None for others."""
    named = sorted(
        {row["payment_id"] for row in rows if row["payment_id"] is not None and row["kind"] in _PAID}
    )
    found: dict[str, Row] = {}
    for begin in range(0, len(named), _NAMED):
        some = named[begin : begin + _NAMED]
        marks = ", ".join("?" * len(some))
        sql = (
            f"SELECT id, transaction_hash, payer, pay_to, network, asset FROM payments WHERE id IN ({marks})"
        )
        found |= {row["id"]: row for row in db.fetch_all(sql, *some)}
    return [_chain_facts(row, found.get(row["payment_id"])) for row in rows]


def _chain_facts(movement: Row, payment: Row | None) -> dict[str, str | None]:
    facts: dict[str, str | None] = dict.fromkeys(CHAIN_FACTS)
    kind = movement["kind"]
    side = _CHAIN_SIDES.get(kind)
    if side is not None and movement[side].startswith(CHAIN):
        facts["network"], _, facts["asset"] = movement[side].removeprefix(CHAIN).rpartition(":")
        if kind == "purchase":
            facts["transaction"] = movement["note"] or None
    if kind == "payout" and _TRANSACTION.fullmatch(movement["note"]):  # by hand, in one of its own
        facts["transaction"] = movement["note"]
    if payment is not None and kind in _PAID:
        facts |= {name: payment[name] for name in CHAIN_FACTS if name != "transaction"}
        facts["transaction"] = payment["transaction_hash"] or None
    return facts


def accounts(db: StoreDb, *, of_wallets: bool, prefix: str = "", after: str, at_most: int) -> list[Balance]:
    """List accounts whose ids begin so, and come after this one, in the order of their ids."""
    table, held = ("wallets", "held") if of_wallets else ("accounts", "0 AS held")
    sql = f"SELECT id AS account, currency, balance, {held} FROM {table} WHERE id > ? AND id >= ? AND id < ? ORDER BY id LIMIT ?"
    rows = db.fetch_all(sql, after, prefix, prefix + "\U0010ffff", at_most)
    return [msgspec.convert(row, Balance) for row in rows]


def totals(db: StoreDb, *, of_wallets: bool) -> list[Row]:
    """Count how many there are, and what they have together, for each currency."""
    table, held = ("wallets", "sum(held)") if of_wallets else ("accounts", "0")
    sql = (
        f"SELECT currency, count(*) AS count, sum(balance) AS balance, {held} AS held FROM {table}"
        " GROUP BY currency ORDER BY currency"
    )
    return db.fetch_all(sql)


def _next(db: StoreDb, account: str | None, oldest_first: bool, at: int | None) -> int | None:
    """Return the number of the movement from which on there are more."""
    which, beyond = ("min", ">") if oldest_first else ("max", "<")
    edge = (0 if oldest_first else 2**62) if at is None else at
    if account is None:
        row = db.fetch_one(f"SELECT {which}(seq) AS seq FROM movements WHERE seq {beyond} ?", edge)
        return None if row is None else row["seq"]
    found: list[int] = []
    for side in ("source", "target"):
        sql = f"SELECT {which}(seq) AS seq FROM movements WHERE {side} = ? AND seq {beyond} ?"
        row = db.fetch_one(sql, account, edge)
        if row is not None and row["seq"] is not None:
            found.append(row["seq"])
    return (min if oldest_first else max)(found, default=None)
