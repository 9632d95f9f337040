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
from msgspec.structs import replace

from server.store import acknowledged_breaks, meta_rows
from server.store.acknowledged_breaks import Gap, KnownBreaks
from server.store.jobs import Position, Row, StoreDb

_ENCODER: Final = msgspec.json.Encoder()
_RECORD: Final = re.compile(r"(?:2|3:(\d+)):(\d+):([0-9a-f]*):(\d+):([0-9a-f]*):(\d+):(\d+)")


class ChainedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose rows are a chain: besides these columns it has `seq` and `mac`."""

    name: str
    called: str  # what people call all of it
    record: str  # where in `meta` its record is
    acknowledged: str  # and where what somebody has acknowledged
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
    # The row at which this record was first found altered, removed or put back, since that was acknowledged last; 0: never. It goes on
    # counting, and never forgets it.
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

    def walk(self, db: StoreDb, at: Position | None, *, at_most: int, known: Sequence[Gap] = ()) -> Piece:
        """Check the next rows; with None from the beginning. A chain that grows or is swept meanwhile is still walked whole.

        `known`: gaps that are passed over like those that were acknowledged.
        """
        record = self.record(db)
        if record is None:
            return self._no_record(db)
        swept, broken = 0, None
        if at is None:
            swept, broken = record.floor, self._before(db, record)
        if at is None or at.seq < record.floor:
            at = Position(seq=record.floor, mac=record.floor_mac)
        checked = 0
        whole = True
        if broken is None:
            sql = f"SELECT * FROM {self.table.name} WHERE seq > ? ORDER BY seq LIMIT ?"
            rows = db.fetch_all(sql, at.seq, at_most)
            whole = len(rows) < at_most
            for row in rows:
                found = self.step(at, row) if at.seq < record.head else Break(seq=row["seq"], what="added")
                if isinstance(found, Position):
                    swept += found.seq - at.seq - 1
                    checked += 1
                elif (beyond := self._beyond(db, at, row, known)) is not None and found.what != "added":
                    found = beyond
                else:
                    broken = found
                    break
                at = found
            if broken is None and whole:
                at, broken = self._at_end(db, at, record, known)
                broken = broken or self.noticed(db)
        done = broken is not None or whole
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
        # Only then, so that a sound chain is not asked for more.
        if not record.noticed or record.noticed <= self.acknowledged(db).noticed:
            return None
        return Break(seq=record.noticed, what="record altered")

    def noticing(self, db: StoreDb, record: Record, seq: int) -> Record:
        """The record, with what was noticed just now, when this was the newest row."""
        known = self.acknowledged(db).noticed
        if record.noticed > known:  # that one is told already
            return record
        return replace(record, noticed=max(seq, known) + 1)

    def acknowledged(self, db: StoreDb) -> KnownBreaks:
        """Nothing, where it is not of this key, or not as it was written."""
        text, _, seal = (meta_rows.get(db, self.table.acknowledged) or "").rpartition(" ")
        is_ours = text != "" and same(self.seal("acknowledged", text), seal)
        return acknowledged_breaks.decoded(text) if is_ours else acknowledged_breaks.NOTHING

    def acknowledge(
        self, db: StoreDb, gaps: Sequence[Gap], *, by: str, at: int, note: str
    ) -> KnownBreaks | None:
        """From here on these gaps and what the record has noticed are no alarm. None: there is nothing of the kind."""
        before, record = self.acknowledged(db), self.record(db)
        noticed = 0 if record is None else record.noticed
        if not gaps and noticed <= before.noticed:
            return None
        newest = self.newest(db)
        now = KnownBreaks(
            noticed=max(noticed, before.noticed),
            gaps=before.gaps,
            by=by,
            at=at,
            note=note,
            up_to=0 if newest is None else newest["seq"],
        ).with_gaps(gaps)
        text = acknowledged_breaks.encoded(now)
        meta_rows.put(db, self.table.acknowledged, f"{text} {self.seal('acknowledged', text)}")
        return now

    def gap(self, db: StoreDb, at: Position) -> Gap | None:
        """How the walk could go on behind a break at this place; None: in no way, as long as nothing more is written."""
        record = self.record(db)
        if record is None:
            return None
        end = Position(seq=record.head, mac=record.head_mac)
        row = db.fetch_one(f"SELECT * FROM {self.table.name} WHERE seq > ? ORDER BY seq LIMIT 1", at.seq)
        if row is not None and row["seq"] <= record.head:
            return Gap(after=at, to=_place_of(row), row=self.seal("row", acknowledged_breaks.sign_of(row)))
        return None if at == end or at.seq > end.seq else Gap(after=at, to=end, row="")

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
        return self.opened(meta_rows.get(db, self.table.record))

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

    def _beyond(self, db: StoreDb, at: Position, row: Row, more: Sequence[Gap]) -> Position | None:
        """Where a walk is with this row, which does not follow, if that was acknowledged."""
        known = self.acknowledged(db).with_gaps(more)
        gap = known.beyond(at)
        if gap is not None and not gap.row:  # rows were written behind what was the end then
            found = self.step(gap.to, row)
            if isinstance(found, Position):
                return found
            gap = known.beyond(gap.to)
        is_same = gap is not None and gap.row == self.seal("row", acknowledged_breaks.sign_of(row))
        return gap.to if gap is not None and is_same else None

    def _at_end(
        self, db: StoreDb, at: Position, record: Record, more: Sequence[Gap]
    ) -> tuple[Position, Break | None]:
        broken = _end(at, record)
        if broken is not None:
            gap = self.acknowledged(db).with_gaps(more).beyond(at)
            end = Position(seq=record.head, mac=record.head_mac)
            if gap is not None and not gap.row and gap.to == end:
                return end, None
        return at, broken

    def _before(self, db: StoreDb, record: Record) -> Break | None:
        """A row among those that were swept, where none can be."""
        sql = f"SELECT seq FROM {self.table.name} WHERE seq <= ? ORDER BY seq LIMIT 1"
        stray = db.fetch_one(sql, record.floor)
        return None if stray is None else Break(seq=stray["seq"], what="added")

    def _no_record(self, db: StoreDb) -> Piece:
        known = meta_rows.get(db, self.table.record) is not None
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


def _place_of(row: Row) -> Position:
    return Position(seq=row["seq"], mac=row["mac"] if isinstance(row["mac"], str) else "")


def _end(at: Position, record: Record) -> Break | None:
    if at.seq < record.head:
        return Break(seq=at.seq + 1, what="missing")
    if at.mac != record.head_mac:
        return Break(seq=at.seq, what="altered")
    return None
