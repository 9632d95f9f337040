"""The audit rows as a chain: none can be altered, left out, put in or cut off without the key file, unnoticed.

Each row's MAC covers the row, its number and the MAC before it. Where the kept part begins and where the chain ends is one
sealed record in `meta`, made when the database is bound to its key. So sweeping is told from a theft, and missing newest rows show. Rows
are numbered here, without gaps: a transaction that is undone gives its number back.

An older record, put back together with the rows that it knew, is true by itself. So a process compares what it finds with what it
committed itself (`Tail`), and at its start with a head that is kept outside the database (`audit_head.py`).

Rows that are swept out of the middle leave a row that stands for them: it has the number and the MAC of the last of them, so that the
next row still follows, and a seal over where they began. Runs inside jobs. When rows are written is auth/audit.py's; telling
people about a break is the command line's.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from auth.values.db import AuditEntry
from server.store import meta
from server.store.jobs import Position, Row, StoreDb

COLUMNS: Final = AuditEntry._fields
# What the trail says when somebody had a hand in it; and what is left of rows that were swept out of its middle.
ALTERED: Final = "audit.altered"
SWEPT: Final = "audit.swept"
STORE: Final = "local:store"
# No person, no login, no key: as the index `audit_refused_strangers` has it.
REFUSED_STRANGERS: Final = (
    "outcome = 'refused' AND grant_id IS NULL AND (actor = 'anonymous' OR substr(actor, 1, 7) = 'client:')"
)

_INSERT: Final = (
    f"INSERT INTO audit (seq, {', '.join(COLUMNS)}, mac) VALUES ({', '.join('?' * (len(COLUMNS) + 2))})"
)
_INSERT_SWEPT: Final = f"INSERT INTO audit (seq, {', '.join(COLUMNS)}, mac, first, seal) VALUES ({', '.join('?' * (len(COLUMNS) + 4))})"
_UPDATE_RECORD: Final = "UPDATE meta SET value = ? WHERE key = ? AND value = ?"
_INSERT_RECORD: Final = "INSERT INTO meta (value, key) VALUES (?, ?)"
_ENCODER: Final = msgspec.json.Encoder()
_RECORD: Final = re.compile(r"2:(\d+):([0-9a-f]*):(\d+):([0-9a-f]*):(\d+):(\d+)")
_NUMBER: Final = frozenset({"at"})
_OPTIONAL: Final = frozenset({"client_id", "grant_id", "ip", "user_agent"})


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Where the chain begins and ends."""

    floor: int = 0  # the last row that was swept from the beginning: the walk begins after it
    floor_mac: str = ""
    head: int = 0  # the newest row
    head_mac: str = ""
    # The row at which this record was first found altered, removed or put back; 0: never. It goes on counting, and never forgets it.
    noticed: int = 0
    swept_at: int = 0  # when rows were last swept; 0: never

    def __str__(self) -> str:
        return f"2:{self.floor}:{self.floor_mac}:{self.head}:{self.head_mac}:{self.noticed}:{self.swept_at}"


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


class AuditChain:
    """Made of the key; holds nothing else."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def has_key(self, key: bytes) -> bool:
        return hmac.compare_digest(self._key, key)

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
        swept, broken = 0, None
        if at is None:
            swept, broken = record.floor, _before(db, record)
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
                swept += found.seq - at.seq - 1
                at, checked = found, checked + 1
            if broken is None and checked < at_most:
                broken = _end(at, record) or self.noticed(db)
        done = broken is not None or checked < at_most
        return Piece(checked=checked, at=at, done=done, broken=broken, swept=swept, swept_at=record.swept_at)

    def holds(self, db: StoreDb, heads: Sequence[Position]) -> Break | None:
        """Whether one of these heads, which were written down elsewhere, is in the trail; the break at the last one otherwise."""
        record = self.opened(meta.get(db, meta.AUDIT_CHAIN))
        return None if record is None else _lacks(db, record, heads)

    def noticed(self, db: StoreDb) -> Break | None:
        """What is known to be wrong without looking at any row."""
        record = self.opened(meta.get(db, meta.AUDIT_CHAIN))
        if record is None:
            return _no_record(db).broken
        return Break(seq=record.noticed, what="record altered") if record.noticed else None

    def step(self, at: Position, row: Row) -> Position | Break:
        """The row after `at`, if this is it."""
        seq, first = row["seq"], row["first"]
        begins = seq if first is None else first
        if not isinstance(begins, int) or begins <= at.seq:
            return Break(seq=at.seq + 1, what="altered")
        if begins > at.seq + 1:
            return Break(seq=at.seq + 1, what="missing")
        entry = _entry(row)
        if entry is None:
            return Break(seq=seq, what="altered")
        if first is None:
            mac = self.mac(at.mac, seq, entry)
            return Position(seq=seq, mac=mac) if _same(mac, row["mac"]) else Break(seq=seq, what="altered")
        end = Position(seq=seq, mac=row["mac"] if isinstance(row["mac"], str) else "")
        seal = self._seal_of_swept(at, end, entry)
        return end if _same(seal, row["seal"]) else Break(seq=seq, what="altered")

    def mac(self, before: str, seq: int, entry: Sequence[object]) -> str:
        # A list in JSON has one reading only; what may stand before the line end is a MAC, and nothing else begins so.
        said = before.encode() + b"\n" + _ENCODER.encode((seq, *entry))
        return hmac.digest(self._key, said, "sha256").hex()

    def put_swept(self, db: StoreDb, at: Position, end: Position, entry: AuditEntry) -> None:
        """The row that stands for those after `at` up to `end`, which are gone."""
        seal = self._seal_of_swept(at, end, entry)
        db.execute(_INSERT_SWEPT, end.seq, *entry, end.mac, at.seq + 1, seal)

    def _seal_of_swept(self, at: Position, end: Position, entry: AuditEntry) -> str:
        said = b"swept\n" + _ENCODER.encode((at.seq, at.mac, end.seq, end.mac, *entry))
        return hmac.digest(self._key, said, "sha256").hex()

    def sealed(self, record: Record) -> str:
        text = str(record)
        return f"{text} {self.seal('record', text)}"

    def seal(self, what: str, text: str) -> str:
        """For a line that stands elsewhere than in the trail."""
        return hmac.digest(self._key, f"{what}\n{text}".encode(), "sha256").hex()

    def opened(self, text: str | None) -> Record | None:
        """None: there is none, or not of this key, or of another version."""
        record, _, seal = (text or "").rpartition(" ")
        return _record_of(record) if _same(self.seal("record", record), seal) else None


class ChainMoved(Exception):
    """The record is not the one that this store committed last: somebody else had a hand in it. Nothing of the transaction may stay."""


class Tail:
    """The chain's end during one transaction: read when the first row comes, written down once before the commit.

    The rows of a job that is undone are undone here, too (`mark`). With `after`, the tail of the transaction that the same store
    committed last, nothing is read: `flush` finds out whether the record is still the one that was written then.

    Otherwise what is found is compared: with what this process wrote (`known`: the last tail that it committed, and one of which it does
    not know whether it did), or, where it has written nothing yet, with the heads. What does not fit is said in a row of its own, and for
    ever in the record; the chain goes on from where this process knows it to have been.
    """

    __slots__ = ("_chain", "_dirty", "_heads", "_known", "_mac", "_record", "_seq", "_text")

    def __init__(
        self,
        chain: AuditChain,
        after: Tail | None = None,
        *,
        known: Sequence[Tail] = (),
        heads: Sequence[Position] = (),
    ) -> None:
        self._chain = chain
        self._known: Sequence[Tail] = known
        self._heads = heads
        self._record: Record | None = None
        self._text: str | None = None  # of the record, as it stands in the table
        self._dirty = False
        self._seq, self._mac = 0, ""
        if after is not None:
            self._go_on(after)

    @property
    def head(self) -> Position:
        return Position(seq=self._seq, mac=self._mac)

    def append(self, db: StoreDb, entry: AuditEntry) -> tuple[AuditEntry, ...]:
        """The rows that were written: this one, and before it, if need be, one that says what was found."""
        found = self.begin(db, at=entry.at) if self._record is None else ()
        self._put(db, entry)
        return (*found, entry)

    def begin(self, db: StoreDb, *, at: int) -> tuple[AuditEntry, ...]:
        """Read the chain's end, if that was not done yet."""
        if self._record is not None:
            return ()
        text = meta.get(db, meta.AUDIT_CHAIN)
        for known in self._known:
            if known._text == text:
                self._go_on(known)
                return ()
        trouble = self._differs(text) if self._known else self._read(db, text)
        self._text, self._dirty = text, self._dirty or text is None
        if not trouble:
            return ()
        # Behind whatever was put there, so that the row can be written.
        newest = db.fetch_one("SELECT seq FROM audit ORDER BY seq DESC LIMIT 1")
        self._seq = max(self._seq, 0 if newest is None else newest["seq"])
        record = self._found()
        self._record = replace(record, noticed=record.noticed or self._seq + 1)
        entry = AuditEntry(at, ALTERED, STORE, None, None, None, None, "refused", trouble)
        self._put(db, entry)
        return (entry,)

    def sweep(self, db: StoreDb, *, before: int, at_most: int, now: int) -> int:
        """Delete the oldest rows, as far as they are from `before` or earlier; how many. After `begin`.

        Only from the end of the chain: a younger row that stands before an older one (a clock was set back) keeps both. A row
        that is not as it was written is evidence and stays, and so does all behind it.
        """
        record = self._found()
        at = floor = Position(seq=record.floor, mac=record.floor_mac)
        for row in _over(db, before, at_most):
            found = self._chain.step(at, row)
            if isinstance(found, Break):
                break
            at = found
        if at == floor:
            return 0
        self._record, self._dirty = replace(record, floor=at.seq, floor_mac=at.mac, swept_at=now), True
        return db.execute("DELETE FROM audit WHERE seq <= ?", at.seq)

    def sweep_refusals(self, db: StoreDb, *, before: int, at_most: int, now: int) -> int:
        """Delete refusals of nobody in particular from `before` or earlier; how many. After `begin`.

        One row stays for each run of neighbours. One that is not as it was written stays as well.
        """
        record = self._found()
        sql = f"SELECT * FROM audit WHERE {REFUSED_STRANGERS} AND at <= ? ORDER BY at, seq LIMIT ?"
        rows = sorted(db.fetch_all(sql, before, at_most), key=lambda row: row["seq"])
        deleted = sum(self._stand_for(db, record, run) for run in _runs(rows))
        if deleted:
            self._record, self._dirty = replace(record, swept_at=now), True
        return deleted

    def mark(self) -> Callable[[], None]:
        """What undoes all that comes from now on."""
        record, text, dirty, seq, mac = self._record, self._text, self._dirty, self._seq, self._mac

        def undo() -> None:
            self._record, self._text, self._dirty, self._seq, self._mac = record, text, dirty, seq, mac

        return undo

    def flush(self, execute: Callable[..., int]) -> bool:
        """Write the record down with `execute(sql, *parameters)`, if there is anything to write; False if it was not even read.

        Raises `ChainMoved`.
        """
        if self._record is None:
            return False
        if self._dirty:
            self._record = replace(self._record, head=self._seq, head_mac=self._mac)
            value = self._chain.sealed(self._record)
            if self._text is None:
                execute(_INSERT_RECORD, value, meta.AUDIT_CHAIN)
            elif not execute(_UPDATE_RECORD, value, meta.AUDIT_CHAIN, self._text):
                raise ChainMoved
            self._text, self._dirty = value, False
        self._known = ()  # from here on it is known itself, and would keep all that were before it
        return True

    def _put(self, db: StoreDb, entry: AuditEntry) -> None:
        seq = self._seq + 1
        mac = self._chain.mac(self._mac, seq, entry)
        db.execute(_INSERT, seq, *entry, mac)
        self._seq, self._mac, self._dirty = seq, mac, True

    def _go_on(self, other: Tail) -> None:
        self._record, self._text = other._record, other._text
        self._seq, self._mac = other._seq, other._mac

    def _found(self) -> Record:
        assert self._record is not None  # `begin` has been there
        return self._record

    def _differs(self, text: str | None) -> str:
        """Another record than those that this process wrote: it goes on with what it wrote. Says what is wrong."""
        self._go_on(self._known[0])
        if text is None:
            return "the record of where the trail ends was removed"
        if self._chain.opened(text) is None:
            return "the record of where the trail ends was altered"
        return (
            f"the record of where the trail ends was put back to an older one; row {self._seq} was the last"
        )

    def _read(self, db: StoreDb, text: str | None) -> str:
        """The first look at a trail. Says what is wrong; empty: nothing."""
        newest = db.fetch_one("SELECT seq, mac FROM audit ORDER BY seq DESC LIMIT 1")
        record, trouble = self._chain.opened(text), ""
        if record is None:
            # What can still be walked is kept: the first altered row is found all the same.
            record = _record_of((text or "").rpartition(" ")[0]) or Record()
            if newest is not None:
                record = replace(record, head=newest["seq"], head_mac=str(newest["mac"]))
            if text is not None:
                trouble = "the record of where the trail ends was altered"
            elif newest is not None or meta.get(db, meta.KEY_FINGERPRINT) is not None:
                trouble = "the record of where the trail ends was removed"
        elif record.head != max(record.floor, 0 if newest is None else newest["seq"]):
            trouble = f"the trail does not end with row {record.head}, which was the last"
        missing = _lacks(db, record, self._heads)
        if missing is not None and not trouble:
            trouble = f"row {missing.seq} was written once, and is not in this trail"
        self._record, self._seq, self._mac = record, record.head, record.head_mac
        return trouble

    def _stand_for(self, db: StoreDb, record: Record, run: Sequence[Row]) -> int:
        """Put one row in the place of these neighbours, as far as they are as they were written; how many are gone."""
        at = _place_before(db, record, run[0]["seq"])
        if at is None:
            return 0
        start, older = at, _swept_at(db, at.seq)
        if older is not None:  # these follow others that were swept: one row for all of them
            begin = _place_before(db, record, older["first"])
            if begin is not None and self._chain.step(begin, older) == at:
                start = begin
        end, last = at, None
        for row in run:
            found = self._chain.step(end, row)
            if isinstance(found, Break):
                break
            end, last = found, row
        if last is None:
            return 0
        db.execute("DELETE FROM audit WHERE seq > ? AND seq <= ?", start.seq, end.seq)
        count = end.seq - start.seq
        reason = (
            f"{count} refusal{'' if count == 1 else 's'} of nobody in particular, from row {start.seq + 1}"
        )
        entry = AuditEntry(last["at"], SWEPT, STORE, None, None, None, None, "ok", reason)
        self._chain.put_swept(db, start, end, entry)
        return end.seq - at.seq


def _record_of(text: str) -> Record | None:
    match = _RECORD.fullmatch(text)
    if match is None:
        return None
    floor, floor_mac, head, head_mac, noticed, swept_at = match.groups()
    return Record(
        floor=int(floor),
        floor_mac=floor_mac,
        head=int(head),
        head_mac=head_mac,
        noticed=int(noticed),
        swept_at=int(swept_at),
    )


def _lacks(db: StoreDb, record: Record, heads: Sequence[Position]) -> Break | None:
    """None if one of the heads is in the trail, or there is none; otherwise what became of the last of them."""
    broken: Break | None = None
    for head in heads:
        broken = _lacks_one(db, record, head)
        if broken is None:
            return None
    return broken


def _lacks_one(db: StoreDb, record: Record, head: Position) -> Break | None:
    if head.seq > record.head:
        return Break(seq=head.seq, what="cut off")
    if head.seq <= record.floor:  # swept
        same = head.seq < record.floor or head.mac == record.floor_mac
    else:
        row = db.fetch_one("SELECT mac FROM audit WHERE seq = ?", head.seq)
        same = row is None or row["mac"] == head.mac  # one that is missing is found by walking, or was swept
    return None if same else Break(seq=head.seq, what="another")


def _over(db: StoreDb, before: int, at_most: int) -> Iterator[Row]:
    rows = db.fetch_all("SELECT * FROM audit ORDER BY seq LIMIT ?", at_most)
    return takewhile(lambda row: row["at"] <= before, rows)


def _runs(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows in the order of their numbers, neighbours together."""
    runs: list[list[Row]] = []
    for row in rows:
        if runs and runs[-1][-1]["seq"] + 1 == row["seq"]:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _place_before(db: StoreDb, record: Record, seq: int) -> Position | None:
    """The place of the row before; None if it is not there."""
    if seq - 1 == record.floor:
        return Position(seq=record.floor, mac=record.floor_mac)
    row = db.fetch_one("SELECT mac FROM audit WHERE seq = ?", seq - 1)
    return Position(seq=seq - 1, mac=row["mac"]) if row is not None and isinstance(row["mac"], str) else None


def _swept_at(db: StoreDb, seq: int) -> Row | None:
    """The row of this number, if it stands for others."""
    return db.fetch_one("SELECT * FROM audit WHERE seq = ? AND typeof(first) = 'integer'", seq)


def _before(db: StoreDb, record: Record) -> Break | None:
    """A row among those that were swept, where none can be."""
    stray = db.fetch_one("SELECT seq FROM audit WHERE seq <= ? ORDER BY seq LIMIT 1", record.floor)
    return None if stray is None else Break(seq=stray["seq"], what="added")


def _end(at: Position, record: Record) -> Break | None:
    if at.seq < record.head:
        return Break(seq=at.seq + 1, what="missing")
    if at.mac != record.head_mac:
        return Break(seq=at.seq, what="altered")
    return None


def _no_record(db: StoreDb) -> Piece:
    known = meta.get(db, meta.AUDIT_CHAIN) is not None
    row = db.fetch_one("SELECT max(seq) AS newest FROM audit")
    newest = 0 if row is None else row["newest"] or 0
    broken = Break(seq=newest, what="record altered" if known else "no record")
    return Piece(checked=0, at=Position(seq=0, mac=""), done=True, broken=broken)


def _same(mac: str, stored: object) -> bool:
    return isinstance(stored, str) and hmac.compare_digest(mac.encode(), stored.encode())


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
