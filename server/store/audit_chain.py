"""The audit rows as a chain: none can be altered, left out, put in or cut off without the key file, unnoticed.

Each row's MAC covers the row, its number and the MAC before it. Where the kept part begins and where the chain ends is one
sealed record in `meta`, so that sweeping the oldest rows is told from a theft, and missing newest rows show. Rows are numbered
here, without gaps: a transaction that is undone gives its number back. Whoever has the database *and* the key can write what
he likes; and a whole database can be swapped for an older copy of itself, which only a head written down elsewhere shows.

Runs inside jobs. When rows are written is auth/audit.py's; telling people about a break is the command line's.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from auth.values.db import AuditEntry
from server.store import meta
from server.store.jobs import Row, StoreDb

COLUMNS: Final = AuditEntry._fields

_INSERT: Final = (
    f"INSERT INTO audit (seq, {', '.join(COLUMNS)}, mac) VALUES ({', '.join('?' * (len(COLUMNS) + 2))})"
)
_UPDATE_RECORD: Final = "UPDATE meta SET value = ? WHERE key = ? AND value = ?"
_INSERT_RECORD: Final = "INSERT INTO meta (value, key) VALUES (?, ?)"
_ENCODER: Final = msgspec.json.Encoder()
_RECORD: Final = re.compile(r"1:(\d+):(\d+):([0-9a-f]*):(\d+):([0-9a-f]*):(\d+)")
_NUMBER: Final = frozenset({"at"})
_OPTIONAL: Final = frozenset({"client_id", "grant_id", "ip", "user_agent"})


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Where the chain begins and ends."""

    start: int  # the last row that is older than the chain itself: up to it nothing is protected
    floor: int  # the last row that was swept, or `start`: the walk begins after it
    floor_mac: str
    head: int  # the newest row
    head_mac: str
    # The row at which this record was first found altered or removed; 0: never. It goes on counting, and never forgets it.
    noticed: int = 0

    def __str__(self) -> str:
        return f"1:{self.start}:{self.floor}:{self.floor_mac}:{self.head}:{self.head_mac}:{self.noticed}"


Trouble = Literal["altered", "missing", "added", "no record", "record altered"]


class Break(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that is not as it was written."""

    seq: int
    what: Trouble


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a walk has come: the row that was checked last, and its MAC."""

    seq: int
    mac: str


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows of a walk. `at` is where the next piece begins; with `done` it is the chain's head."""

    checked: int
    at: Position
    done: bool
    broken: Break | None
    unchained: int = 0  # rows that are older than the chain; counted by the first piece


class AuditChain:
    """Made of the key; holds nothing else."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def append(self, db: StoreDb, entry: AuditEntry) -> None:
        """One row, with the record brought up to it at once. A store keeps a `Tail` for that, one per transaction."""
        tail = Tail(self)
        tail.append(db, entry)
        tail.flush(db.execute)

    def walk(self, db: StoreDb, at: Position | None, *, at_most: int) -> Piece:
        """Check the next rows; with None from the beginning. A chain that grows or is swept meanwhile is still walked whole."""
        record = self.opened(meta.get(db, meta.AUDIT_CHAIN))
        if record is None:
            return _no_record(db)
        unchained, broken = 0, None
        if at is None:
            unchained, broken = _before(db, record)
        if at is None or at.seq < record.floor:
            at = Position(seq=record.floor, mac=record.floor_mac)
        checked = 0
        if broken is None:
            for row in db.fetch_all(
                "SELECT * FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", at.seq, at_most
            ):
                found = self.step(at, row) if at.seq < record.head else Break(seq=row["seq"], what="added")
                if isinstance(found, Break):
                    broken = found
                    break
                at, checked = found, checked + 1
            if broken is None and checked < at_most:
                broken = _end(at, record)
        done = broken is not None or checked < at_most
        return Piece(checked=checked, at=at, done=done, broken=broken, unchained=unchained)

    def step(self, at: Position, row: Row) -> Position | Break:
        """The row after `at`, if this is it."""
        seq = at.seq + 1
        if row["seq"] > seq:
            return Break(seq=seq, what="missing")
        entry = _entry(row)
        if entry is None:
            return Break(seq=seq, what="altered")
        mac = self.mac(at.mac, seq, entry)
        if not isinstance(row["mac"], str) or not hmac.compare_digest(mac.encode(), row["mac"].encode()):
            return Break(seq=seq, what="altered")
        return Position(seq=seq, mac=mac)

    def mac(self, before: str, seq: int, entry: Sequence[object]) -> str:
        # A list in JSON has one reading only; what may stand before the line end is a MAC, and nothing else begins so.
        said = before.encode() + b"\n" + _ENCODER.encode((seq, *entry))
        return hmac.digest(self._key, said, "sha256").hex()

    def sealed(self, record: Record) -> str:
        text = str(record)
        return f"{text} {self._seal(text)}"

    def _seal(self, record: str) -> str:
        return hmac.digest(self._key, b"record\n" + record.encode(), "sha256").hex()

    def opened(self, text: str | None) -> Record | None:
        record, _, seal = (text or "").rpartition(" ")
        if not hmac.compare_digest(self._seal(record).encode(), seal.encode()):
            return None
        match = _RECORD.fullmatch(record)
        if match is None:
            return None
        start, floor, floor_mac, head, head_mac, noticed = match.groups()
        return Record(
            start=int(start),
            floor=int(floor),
            floor_mac=floor_mac,
            head=int(head),
            head_mac=head_mac,
            noticed=int(noticed),
        )


class ChainMoved(Exception):
    """The record is not the one that this store committed last: somebody else had a hand in it. Nothing of the transaction may stay."""


class Tail:
    """The chain's end during one transaction: read when the first row comes, written down once before the commit.

    The rows of a job that is undone are undone here, too (`mark`, `back_to`). With `after`, the tail of the transaction that the
    same store committed last, nothing is read: `flush` finds out whether the record is still the one that was written then.
    """

    __slots__ = ("_chain", "_dirty", "_mac", "_record", "_seq", "_text")

    def __init__(self, chain: AuditChain, after: Tail | None = None) -> None:
        self._chain = chain
        self._record: Record | None = None
        self._text: str | None = None  # of the record, as it stands in the table
        self._dirty = False
        self._seq, self._mac = 0, ""
        if after is not None:
            self._record, self._text = after._record, after._text
            self._seq, self._mac = after._seq, after._mac

    def append(self, db: StoreDb, entry: AuditEntry) -> None:
        if self._record is None:
            self._read(db)
        seq = self._seq + 1
        mac = self._chain.mac(self._mac, seq, entry)
        db.execute(_INSERT, seq, *entry, mac)
        self._seq, self._mac, self._dirty = seq, mac, True

    def sweep(self, db: StoreDb, *, before: int, at_most: int) -> int:
        """Delete the oldest rows, as far as they are from `before` or earlier; how many.

        Only from the end of the chain: a younger row that stands before an older one (a clock was set back) keeps both. A row
        that is not as it was written is evidence and stays, and so does all behind it.
        """
        if not self._dirty:
            self._record = None  # what is to be deleted is decided by what stands in the table now
        text = meta.get(db, meta.AUDIT_CHAIN)
        if text is None and self._record is None:
            return sweep_unchained(db, before=before, at_most=at_most)
        if self._record is None and self._chain.opened(text) is None:
            return 0
        record = self._record or self._read(db)
        at, last = Position(seq=record.floor, mac=record.floor_mac), 0
        for row in _over(db, before, at_most):
            if row["seq"] > record.start:
                found = self._chain.step(at, row)
                if isinstance(found, Break):
                    break
                at = found
            last = row["seq"]
        if at.seq != record.floor:
            self._record, self._dirty = replace(record, floor=at.seq, floor_mac=at.mac), True
        return db.execute("DELETE FROM audit WHERE seq <= ?", last) if last else 0

    def mark(self) -> tuple[Record | None, bool, int, str]:
        return self._record, self._dirty, self._seq, self._mac

    def back_to(self, mark: tuple[Record | None, bool, int, str]) -> None:
        self._record, self._dirty, self._seq, self._mac = mark

    def flush(self, execute: Callable[..., int]) -> None:
        """Write the record down with `execute(sql, *parameters)`, if there is anything to write. Raises `ChainMoved`."""
        if self._record is None or not self._dirty:
            return
        value = self._chain.sealed(replace(self._record, head=self._seq, head_mac=self._mac))
        if self._text is None:
            execute(_INSERT_RECORD, value, meta.AUDIT_CHAIN)
        elif not execute(_UPDATE_RECORD, value, meta.AUDIT_CHAIN, self._text):
            raise ChainMoved
        self._text, self._dirty = value, False

    def _read(self, db: StoreDb) -> Record:
        text = meta.get(db, meta.AUDIT_CHAIN)
        record = self._chain.opened(text) or _recovered(db, text)
        self._record, self._text = record, text
        self._seq, self._mac = record.head, record.head_mac
        return record


def _over(db: StoreDb, before: int, at_most: int) -> Iterator[Row]:
    rows = db.fetch_all("SELECT * FROM audit ORDER BY seq LIMIT ?", at_most)
    return takewhile(lambda row: row["at"] <= before, rows)


def sweep_unchained(db: StoreDb, *, before: int, at_most: int) -> int:
    """Like `Tail.sweep`, for whoever has no key: rows of a chain stay."""
    over = [row["seq"] for row in takewhile(lambda row: not row["mac"], _over(db, before, at_most))]
    return db.execute("DELETE FROM audit WHERE seq <= ?", over[-1]) if over else 0


def _recovered(db: StoreDb, text: str | None) -> Record:
    """A first record; or one that goes on where somebody altered or removed it, and says so for ever."""
    row = db.fetch_one("SELECT seq, mac FROM audit ORDER BY seq DESC LIMIT 1")
    newest, mac = (0, "") if row is None else (row["seq"], row["mac"])
    tampered = text is not None or bool(mac)
    match = _RECORD.fullmatch((text or "").rpartition(" ")[0])
    if match is None:
        return Record(
            start=newest,
            floor=newest,
            floor_mac="",
            head=newest,
            head_mac="",
            noticed=newest + 1 if tampered else 0,
        )
    # What can still be walked is kept: the first altered row is found all the same.
    return Record(
        start=int(match[1]),
        floor=int(match[2]),
        floor_mac=match[3],
        head=newest,
        head_mac=mac,
        noticed=int(match[6]) or newest + 1,
    )


def _before(db: StoreDb, record: Record) -> tuple[int, Break | None]:
    """How many rows are older than the chain; and whether one among them, or among those swept, does not belong there."""
    row = db.fetch_one("SELECT count(*) AS n FROM audit WHERE seq <= ? AND mac = ''", record.start)
    stray = db.fetch_one(
        "SELECT seq FROM audit WHERE seq <= ? AND (seq > ? OR seq < 1 OR mac <> '') ORDER BY seq LIMIT 1",
        record.floor,
        record.start,
    )
    unchained = 0 if row is None else row["n"]
    return unchained, None if stray is None else Break(seq=stray["seq"], what="added")


def _end(at: Position, record: Record) -> Break | None:
    if at.seq < record.head:
        return Break(seq=at.seq + 1, what="missing")
    if at.mac != record.head_mac:
        return Break(seq=at.seq, what="altered")
    return Break(seq=record.noticed, what="record altered") if record.noticed else None


def _no_record(db: StoreDb) -> Piece:
    known = meta.get(db, meta.AUDIT_CHAIN) is not None
    row = db.fetch_one("SELECT count(*) AS n, max(seq) AS newest FROM audit")
    count, newest = (0, 0) if row is None else (row["n"], row["newest"] or 0)
    broken = Break(seq=newest, what="record altered" if known else "no record")
    return Piece(checked=0, at=Position(seq=0, mac=""), done=True, broken=broken, unchained=count)


def _entry(row: Row) -> AuditEntry | None:
    """The row as it was handed in; None if a column holds another kind of value than was ever written there."""
    for name in COLUMNS:
        value = row[name]
        if name in _NUMBER:
            fits = isinstance(value, int)
        else:
            fits = isinstance(value, str) or (value is None and name in _OPTIONAL)
        if not fits:
            return None
    return AuditEntry(*(row[name] for name in COLUMNS))
