"""Rows as a chain: none can be altered, left out, put in or cut off without the key file, unnoticed.

Each row's MAC covers the row, its number and the MAC before it. Where the kept part begins and where the chain ends is one
sealed record in `meta`, made when the database is bound to its key. So sweeping is told from a theft, and missing newest rows show. Rows
are numbered here, without gaps: a transaction that is undone gives its number back.

An older record, put back together with the rows that it knew, is true by itself. So a process compares what it finds with what it
committed itself (`chain_tail.py`, `chain_ends.py`), and at its start with a head that is kept outside the database (`audit_head.py`).

Runs inside jobs. Which tables are chained is said by `audit_chain.py` and `ledger_chain.py`; telling people about a break is the command
line's.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from typing import ClassVar, Final, Literal

import msgspec

from server.store import meta
from server.store.jobs import Position, Row, StoreDb

_ENCODER: Final = msgspec.json.Encoder()
_RECORD: Final = re.compile(r"(?:2|3:(\d+)):(\d+):([0-9a-f]*):(\d+):([0-9a-f]*):(\d+):(\d+)")


class ChainedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose rows are a chain: besides these columns it has `seq` and `mac`."""

    name: str
    called: str  # what people call all of it
    record: str  # where in `meta` its record is
    columns: tuple[str, ...]
    numbers: frozenset[str]
    optional: frozenset[str]

    @property
    def insert(self) -> str:
        marks = ", ".join("?" * (len(self.columns) + 2))
        return f"INSERT INTO {self.name} (seq, {', '.join(self.columns)}, mac) VALUES ({marks})"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Where the chain begins and ends."""

    floor: int = 0  # the last row that was swept from the beginning: the walk begins after it
    floor_mac: str = ""
    head: int = 0  # the newest row
    head_mac: str = ""
    # The row at which this record was first found altered, removed or put back; 0: never. It goes on counting, and never forgets it.
    noticed: int = 0
    swept_at: int = 0  # when rows were last swept; 0: never
    beside: int = 0  # how many other chains there are, which are younger; those of before knew of none

    def __str__(self) -> str:
        return f"3:{self.beside}:{self.floor}:{self.floor_mac}:{self.head}:{self.head_mac}:{self.noticed}:{self.swept_at}"


Trouble = Literal["altered", "missing", "added", "cut off", "another", "no record", "record altered"]


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that is not as it was written."""

    seq: int
    what: Trouble


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows of a walk. `at` is where the next piece begins; with `done` it is the chain's head."""

    checked: int
    at: Position
    done: bool
    broken: Break | None
    swept: int = 0  # rows that are gone by rights: before the first one, and where a row stands for others
    swept_at: int = 0  # when that happened last; 0: never


class RowChain:
    """Made of the key; holds nothing else. Each table has a key of its own."""

    __slots__ = ("_key", "insert")

    table: ClassVar[ChainedTable]

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.insert = self.table.insert

    def has_key(self, key: bytes) -> bool:
        return hmac.compare_digest(self._key, key)

    def walk(self, db: StoreDb, at: Position | None, *, at_most: int) -> Piece:
        """Check the next rows; with None from the beginning. A chain that grows or is swept meanwhile is still walked whole."""
        record = self.record(db)
        if record is None:
            return self._no_record(db)
        swept, broken = 0, None
        if at is None:
            swept, broken = record.floor, self._before(db, record)
        if at is None or at.seq < record.floor:
            at = Position(seq=record.floor, mac=record.floor_mac)
        checked = 0
        if broken is None:
            sql = f"SELECT * FROM {self.table.name} WHERE seq > ? ORDER BY seq LIMIT ?"
            for row in db.fetch_all(sql, at.seq, at_most):
                found = self.step(at, row) if at.seq < record.head else Break(seq=row["seq"], what="added")
                if isinstance(found, Break):
                    broken = found
                    break
                swept += found.seq - at.seq - 1
                at, checked = found, checked + 1
            if broken is None and checked < at_most:
                broken = _end(at, record) or self.noticed(db)
        done = broken is not None or checked < at_most
        return Piece(checked=checked, at=at, done=done, broken=broken, swept=swept, swept_at=record.swept_at)

    def holds(self, db: StoreDb, heads: Sequence[Position]) -> Break | None:
        """Whether one of these heads, which were written down elsewhere, is in the chain; the break at the last one otherwise."""
        record = self.record(db)
        return None if record is None else self.lacks(db, record, heads)

    def lacks(self, db: StoreDb, record: Record, heads: Sequence[Position]) -> Break | None:
        """None if one of the heads is in the chain, or there is none; otherwise what became of the last of them."""
        broken: Break | None = None
        for head in heads:
            broken = self._lacks_one(db, record, head)
            if broken is None:
                return None
        return broken

    def noticed(self, db: StoreDb) -> Break | None:
        """What is known to be wrong without looking at any row."""
        record = self.record(db)
        if record is None:
            return self._no_record(db).broken
        return Break(seq=record.noticed, what="record altered") if record.noticed else None

    def step(self, at: Position, row: Row) -> Position | Break:
        """The row after `at`, if this is it."""
        seq = row["seq"]
        if not isinstance(seq, int) or seq <= at.seq:
            return Break(seq=at.seq + 1, what="altered")
        if seq > at.seq + 1:
            return Break(seq=at.seq + 1, what="missing")
        values = self.values(row)
        if values is None:
            return Break(seq=seq, what="altered")
        mac = self.mac(at.mac, seq, values)
        return Position(seq=seq, mac=mac) if same(mac, row["mac"]) else Break(seq=seq, what="altered")

    def values(self, row: Row) -> tuple[object, ...] | None:
        """The row as it was handed in; None if a column holds another kind of value than was ever written there."""
        numbers, optional = self.table.numbers, self.table.optional
        for name in self.table.columns:
            value = row[name]
            if not (
                isinstance(value, int if name in numbers else str) or (value is None and name in optional)
            ):
                return None
        return tuple(row[name] for name in self.table.columns)

    def mac(self, before: str, seq: int, values: Sequence[object]) -> str:
        # A list in JSON has one reading only; what may stand before the line end is a MAC, and nothing else begins so.
        said = before.encode() + b"\n" + _ENCODER.encode((seq, *values))
        return hmac.digest(self._key, said, "sha256").hex()

    def sealed(self, record: Record) -> str:
        text = str(record)
        return f"{text} {self.seal('record', text)}"

    def seal(self, what: str, text: str) -> str:
        """For a line that stands elsewhere than in the table."""
        return seal(self._key, what, text)

    def record(self, db: StoreDb) -> Record | None:
        return self.opened(meta.get(db, self.table.record))

    def opened(self, text: str | None) -> Record | None:
        """None: there is none, or not of this key, or of another version."""
        record, _, seal = (text or "").rpartition(" ")
        return record_of(record) if same(self.seal("record", record), seal) else None

    def was_begun(self, db: StoreDb) -> bool:
        """Whether there must be a record, as far as this database tells."""
        return self.newest(db) is not None

    def stands_for(self, db: StoreDb, seq: int) -> bool:
        """Whether this row, which is not there, was swept from the middle, and another one says so."""
        del db, seq
        return False

    def newest(self, db: StoreDb) -> Row | None:
        return db.fetch_one(f"SELECT seq, mac FROM {self.table.name} ORDER BY seq DESC LIMIT 1")

    def _lacks_one(self, db: StoreDb, record: Record, head: Position) -> Break | None:
        if head.seq > record.head:
            return Break(seq=head.seq, what="cut off")
        if head.seq <= record.floor:  # swept
            is_same = head.seq < record.floor or head.mac == record.floor_mac
        else:
            row = db.fetch_one(f"SELECT mac FROM {self.table.name} WHERE seq = ?", head.seq)
            # One that is missing is found by walking, or was swept.
            is_same = row is None or row["mac"] == head.mac
        return None if is_same else Break(seq=head.seq, what="another")

    def _before(self, db: StoreDb, record: Record) -> Break | None:
        """A row among those that were swept, where none can be."""
        sql = f"SELECT seq FROM {self.table.name} WHERE seq <= ? ORDER BY seq LIMIT 1"
        stray = db.fetch_one(sql, record.floor)
        return None if stray is None else Break(seq=stray["seq"], what="added")

    def _no_record(self, db: StoreDb) -> Piece:
        known = meta.get(db, self.table.record) is not None
        newest = self.newest(db)
        at = 0 if newest is None else newest["seq"]
        broken = Break(seq=at, what="record altered" if known else "no record")
        return Piece(checked=0, at=Position(seq=0, mac=""), done=True, broken=broken)


def seal(key: bytes, what: str, text: str) -> str:
    return hmac.digest(key, f"{what}\n{text}".encode(), "sha256").hex()


def record_of(text: str) -> Record | None:
    match = _RECORD.fullmatch(text)
    if match is None:
        return None
    beside, floor, floor_mac, head, head_mac, noticed, swept_at = match.groups()
    return Record(
        beside=int(beside or 0),
        floor=int(floor),
        floor_mac=floor_mac,
        head=int(head),
        head_mac=head_mac,
        noticed=int(noticed),
        swept_at=int(swept_at),
    )


def same(mac: str, stored: object) -> bool:
    return isinstance(stored, str) and hmac.compare_digest(mac.encode(), stored.encode())


def _end(at: Position, record: Record) -> Break | None:
    if at.seq < record.head:
        return Break(seq=at.seq + 1, what="missing")
    if at.mac != record.head_mac:
        return Break(seq=at.seq, what="altered")
    return None
