"""The audit rows as a chain (`chains.py`), from which the oldest, and refusals of nobody in particular, are swept.

Rows that are swept out of the middle leave a row that stands for them: it has the number and the MAC of the last of them, so that the
next row still follows, and a seal over where they began. What somebody did to the chain is said in a row of its own. Runs inside jobs.
When rows are written is auth/audit/audit_trail.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final

import msgspec
from msgspec.structs import replace

from auth.values.database import AuditEntry
from server.store import meta_rows
from server.store.chain_tail import Tail
from server.store.chains import Break, ChainedTable, Record, RowChain, same
from server.store.jobs import Position, Row, StoreDb

AUDIT: Final = ChainedTable(
    name="audit",
    called="trail",
    record=meta_rows.AUDIT_CHAIN,
    acknowledged=meta_rows.AUDIT_ACKNOWLEDGED,
    columns=AuditEntry._fields,
    numbers=frozenset({"at"}),
    optional=frozenset({"client_id", "grant_id", "ip", "user_agent"}),
)
# What the trail says when somebody had a hand in it; and what is left of rows that were swept out of its middle.
ALTERED: Final = "audit.altered"
SWEPT: Final = "audit.swept"
STORE: Final = "local:store"
# No person, no login, no key: as the index `audit_refused_strangers` has it.
REFUSED_STRANGERS: Final = (
    "outcome = 'refused' AND grant_id IS NULL AND (actor = 'anonymous' OR substr(actor, 1, 7) = 'client:')"
)

_COLUMNS: Final = ", ".join(AUDIT.columns)
_MARKS: Final = ", ".join("?" * (len(AUDIT.columns) + 4))
_INSERT_SWEPT: Final = f"INSERT INTO audit (seq, {_COLUMNS}, mac, first, seal) VALUES ({_MARKS})"
_ENCODER: Final = msgspec.json.Encoder()


class AuditChain(RowChain):
    __slots__ = ()

    table = AUDIT

    def append(self, db: StoreDb, entry: AuditEntry) -> None:
        """One row, with the record brought up to it at once. A store keeps an `AuditTail` for that, one per transaction."""
        tail = AuditTail(self)
        tail.append(db, entry)
        tail.flush(db.execute)

    def was_begun(self, db: StoreDb) -> bool:
        return super().was_begun(db) or meta_rows.get(db, meta_rows.KEY_FINGERPRINT) is not None

    def stands_for(self, db: StoreDb, seq: int) -> bool:
        row = db.fetch_one("SELECT first FROM audit WHERE seq > ? ORDER BY seq LIMIT 1", seq)
        return row is not None and isinstance(row["first"], int) and row["first"] <= seq

    def step(self, at: Position, row: Row) -> Position | Break:
        """The row after `at`, if this is it."""
        seq, first = row["seq"], row["first"]
        if first is None:
            return super().step(at, row)
        if not isinstance(first, int) or first <= at.seq:
            return Break(seq=at.seq + 1, what="altered")
        if first > at.seq + 1:
            return Break(seq=at.seq + 1, what="missing")
        values = self.values(row)
        if values is None:
            return Break(seq=seq, what="altered")
        end = Position(seq=seq, mac=row["mac"] if isinstance(row["mac"], str) else "")
        return (
            end
            if same(_seal_of_swept(self, at, end, values), row["seal"])
            else Break(seq=seq, what="altered")
        )


class AuditTail(Tail):
    """The trail's end during one transaction. What is found out of order is a row of its own, before the one that was to be written."""

    __slots__ = ()

    def append(self, db: StoreDb, entry: AuditEntry) -> tuple[AuditEntry, ...]:
        """The rows that were written: this one, and before it, if need be, one that says what was found."""
        found = () if self.was_read else self.begin(db, at=entry.at)
        self.put(db, entry)
        return (*found, entry)

    def begin(self, db: StoreDb, *, at: int) -> tuple[AuditEntry, ...]:
        """Read the chain's end, if that was not done yet."""
        return self._tell(db, self.look(db), at)

    def begin_with(self, db: StoreDb, heads: Sequence[Position], *, at: int) -> tuple[AuditEntry, ...]:
        """The same, compared with these as well."""
        return self.begin(db, at=at) or self._tell(db, self.compare(db, heads), at)

    def _tell(self, db: StoreDb, trouble: str, at: int) -> tuple[AuditEntry, ...]:
        if not trouble:
            return ()
        entry = AuditEntry(at, ALTERED, STORE, None, None, None, None, "refused", trouble)
        self.put(db, entry)
        return (entry,)

    @property
    def has_ledger(self) -> bool:
        """Whether the ledger was ever begun: it is younger than many a trail. After `begin`."""
        return self._found().beside > 0

    def note_ledger(self) -> None:
        """It is. After `begin`."""
        if not self.has_ledger:
            self._record, self._dirty = replace(self._found(), beside=1), True

    def sweep(self, db: StoreDb, *, before: int, at_most: int, now: int) -> int:
        """Delete the oldest rows, as far as they are from `before` or earlier; how many. After `begin`.

        Only from the end of the chain: a younger row that stands before an older one (a clock was set back) keeps both. A row
        that is not as it was written is evidence and stays, and so does all behind it.
        """
        record = self._found()
        at = floor = Position(seq=record.floor, mac=record.floor_mac)
        for row in _over(db, record.floor, before, at_most):
            found = self._chain.step(at, row)
            if isinstance(found, Break):
                break
            at = found
        if at == floor:
            return 0
        self._record, self._dirty = replace(record, floor=at.seq, floor_mac=at.mac, swept_at=now), True
        return db.execute("DELETE FROM audit WHERE seq > ? AND seq <= ?", floor.seq, at.seq)

    def sweep_refusals(self, db: StoreDb, *, since: int = 0, before: int, at_most: int, now: int) -> int:
        """Delete refusals of nobody in particular from `before` or earlier, and none from before `since`; how many. After `begin`.

        One row stays for each run of neighbours. One that is not as it was written stays as well.
        """
        record = self._found()
        sql = (
            f"SELECT * FROM audit WHERE {REFUSED_STRANGERS} AND at >= ? AND at <= ? ORDER BY at, seq LIMIT ?"
        )
        rows = sorted(db.fetch_all(sql, since, before, at_most), key=lambda row: row["seq"])
        deleted = sum(self._stand_for(db, record, run) for run in _runs(rows))
        if deleted:
            self._record, self._dirty = replace(record, swept_at=now), True
        return deleted

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
        seal = _seal_of_swept(self._chain, start, end, entry)
        db.execute(_INSERT_SWEPT, end.seq, *entry, end.mac, start.seq + 1, seal)
        return end.seq - at.seq


def _seal_of_swept(chain: RowChain, at: Position, end: Position, values: Sequence[object]) -> str:
    """Of the row that stands for those after `at` up to `end`, which are gone."""
    return chain.seal("swept", _ENCODER.encode((at.seq, at.mac, end.seq, end.mac, *values)).decode())


def _over(db: StoreDb, floor: int, before: int, at_most: int) -> Iterator[Row]:
    """From where the chain begins: PostgreSQL would go through what was deleted before it, until that is swept up."""
    rows = db.fetch_all("SELECT * FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", floor, at_most)
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
    row = db.fetch_one("SELECT * FROM audit WHERE seq = ? AND first IS NOT NULL", seq)
    return row if row is not None and isinstance(row["first"], int) else None
