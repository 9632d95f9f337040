"""The end of a chain of rows (`chains.py`) during one transaction: what is found there compared with what this process knows of it.

Where several processes write, each in its turn (`server/cluster/postgres/postgres_transaction.py`), another one's rows may stand behind those that were written here.
They are taken for what they are if the record is sealed, the chain ends with the row that it names, and what was committed here last
is in it still.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from server.store import meta_rows
from server.store.chains import Record, RowChain, record_of
from server.store.jobs import Position, Row, StoreDb

_UPDATE_RECORD: Final = "UPDATE meta SET value = ? WHERE key = ? AND value = ?"
_INSERT_RECORD: Final = "INSERT INTO meta (value, key) VALUES (?, ?)"
# Of one snapshot, in one trip: the record, the newest row, and what has the number of a row that is known.
_END: Final = """
SELECT m.value AS record, newest.seq AS seq, newest.mac AS mac, known.mac AS known FROM (SELECT 1 AS one) AS one
  LEFT JOIN meta AS m ON m.key = ?
  LEFT JOIN (SELECT seq, mac FROM {table} ORDER BY seq DESC LIMIT 1) AS newest ON 1 = 1
  LEFT JOIN {table} AS known ON known.seq = ?
"""


class ChainMoved(Exception):
    """The record is not the one that this store committed last: somebody else had a hand in it. Nothing of the transaction may stay."""


class Tail:
    """The chain's end during one transaction: read when the first row comes, written down once before the commit.

    The rows of a job that is undone are undone here, too (`mark`). With `after`, the tail of the transaction that the same store
    committed last, nothing is read: `flush` finds out whether the record is still the one that was written then.

    Otherwise what is found is compared: with what this process wrote (`known`: the last tail that it committed, and one of which it does
    not know whether it did), or, where it has written nothing yet, with the heads. What does not fit is told by `look`, and for
    ever in the record; the chain goes on from where this process knows it to have been.

    `shared`: others write as well, so that another record than those is right if it goes on from the first of `known`.
    """

    __slots__ = ("_chain", "_dirty", "_heads", "_known", "_mac", "_record", "_seq", "_shared", "_text")

    def __init__(
        self,
        chain: RowChain,
        after: Tail | None = None,
        *,
        known: Sequence[Tail] = (),
        heads: Sequence[Position] = (),
        shared: bool = False,
    ) -> None:
        self._chain = chain
        self._shared = shared
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

    @property
    def was_read(self) -> bool:
        return self._record is not None

    @property
    def is_new(self) -> bool:
        """It was read, and there is no record of it yet."""
        return self._record is not None and self._text is None

    def look(self, db: StoreDb, *, was_begun: Callable[[], bool] | None = None) -> str:
        """Read the chain's end, if that was not done yet. Says what is wrong with it; empty: nothing, or it was said before.

        `was_begun`: whether there must be a record, as far as others know.
        """
        if self._record is not None:
            return ""
        if self._known and self._shared:
            text, trouble = self._follow(db)
        else:
            text = meta_rows.get(db, self._chain.table.record)
            for known in self._known:
                if known._text == text:
                    self._go_on(known)
                    return ""
            trouble = self._differs(text) if self._known else self._read(db, text, was_begun)
        self._text, self._dirty = text, self._dirty or text is None
        if not trouble:
            return ""
        # Behind whatever was put there, so that the next row can be written.
        newest = self._chain.newest(db)
        self._seq = max(self._seq, 0 if newest is None else newest["seq"])
        self._record, self._dirty = self._chain.noticing(db, self._found(), self._seq), True
        return trouble

    def compare(self, db: StoreDb, heads: Sequence[Position]) -> str:
        """Says which of these, each of which the chain ended with once, it lacks; and so does the record, for ever. After `look`."""
        record = self._found()
        lacking = next(
            (missing for head in heads if (missing := self._chain.lacks(db, record, [head]))), None
        )
        if lacking is None:
            return ""
        self._record, self._dirty = self._chain.noticing(db, record, self._seq), True
        return f"row {lacking.seq} was written once, and is not in this {self._chain.table.called}"

    @property
    def will_ask(self) -> tuple[str, str, int] | None:
        """The statement and its parameters that come first, as far as that is known."""
        return self._asks() if self._known and self._shared and self._record is None else None

    def put(self, db: StoreDb, values: Sequence[object], clause: str = "") -> int:
        """A row more; its number. With a clause that lets it be left out: 0 if it was. After `look`."""
        seq = self._seq + 1
        mac = self._chain.mac(self._mac, seq, values)
        if not clause:
            db.put_in(self._chain.insert, seq, *values, mac)
        elif not db.execute(self._chain.insert + clause, seq, *values, mac):
            return 0
        self._seq, self._mac, self._dirty = seq, mac, True
        return seq

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
                execute(_INSERT_RECORD, value, self._chain.table.record)
            elif not execute(_UPDATE_RECORD, value, self._chain.table.record, self._text):
                raise ChainMoved
            self._text, self._dirty = value, False
        self._known = ()  # from here on it is known itself, and would keep all that were before it
        return True

    def _asks(self) -> tuple[str, str, int]:
        """What `look` asks first, where others write as well."""
        return _END.format(table=self._chain.table.name), self._chain.table.record, self._known[0]._seq

    def _go_on(self, other: Tail) -> None:
        self._record, self._text = other._record, other._text
        self._seq, self._mac = other._seq, other._mac

    def _found(self) -> Record:
        assert self._record is not None  # `look` has been there
        return self._record

    def _follow(self, db: StoreDb) -> tuple[str | None, str]:
        """The record as it stands, and what is wrong with it or with the rows at the end."""
        last, called = self._known[0], self._chain.table.called
        found = db.fetch_one(*self._asks())
        assert found is not None
        text = found["record"]
        for known in self._known:
            if known._text == text:
                self._go_on(known)
                return text, "" if self._ends(
                    found
                ) else f"the {called} does not end with row {self._seq}, which was the last"
        record = self._chain.opened(text)
        if record is None or record.head < last._seq or not _is_later(record, last._found()):
            return text, self._differs(text)
        self._record, self._seq, self._mac = record, record.head, record.head_mac
        if not self._ends(found):
            return text, f"the {called} does not end with row {self._seq}, which was the last"
        if not self._still_has(db, record, last.head, found["known"]):
            return text, f"row {last._seq} was written once, and is not in this {called}"
        return text, ""

    def _ends(self, found: Row) -> bool:
        """The newest row is the one that the record names."""
        if found["seq"] is None or found["seq"] <= self._found().floor:  # all were swept
            return self._seq == self._found().floor
        return (found["seq"], found["mac"]) == (self._seq, self._mac)

    def _still_has(self, db: StoreDb, record: Record, head: Position, mac: object) -> bool:
        """`mac`: of what has the number of this head, which was the last that was known."""
        if head.seq <= record.floor:
            return head.seq < record.floor or head.mac == record.floor_mac
        return mac == head.mac if mac is not None else self._chain.stands_for(db, head.seq)

    def _differs(self, text: str | None) -> str:
        """Another record than those that this process wrote: it goes on with what it wrote. Says what is wrong."""
        self._go_on(self._known[0])
        where = f"the record of where the {self._chain.table.called} ends"
        if text is None:
            return f"{where} was removed"
        if self._chain.opened(text) is None:
            return f"{where} was altered"
        return f"{where} was put back to an older one; row {self._seq} was the last"

    def _read(self, db: StoreDb, text: str | None, was_begun: Callable[[], bool] | None) -> str:
        """The first look at a chain. Says what is wrong; empty: nothing."""
        newest, called = self._chain.newest(db), self._chain.table.called
        record, trouble = self._chain.opened(text), ""
        if record is None:
            # What can still be walked is kept: the first altered row is found all the same.
            record = record_of((text or "").rpartition(" ")[0]) or Record()
            if newest is not None:
                record = replace(record, head=newest["seq"], head_mac=str(newest["mac"]))
            if text is not None:
                trouble = f"the record of where the {called} ends was altered"
            elif self._chain.was_begun(db) or (was_begun is not None and was_begun()):
                trouble = f"the record of where the {called} ends was removed"
        elif record.head != max(record.floor, 0 if newest is None else newest["seq"]):
            trouble = f"the {called} does not end with row {record.head}, which was the last"
        missing = self._chain.lacks(db, record, self._heads)
        if missing is not None and not trouble:
            trouble = f"row {missing.seq} was written once, and is not in this {called}"
        self._record, self._seq, self._mac = record, record.head, record.head_mac
        return trouble


def _is_later(record: Record, known: Record) -> bool:
    """Of what only grows nothing is less, and what was noticed once is not forgotten."""
    return record.floor >= known.floor and record.beside >= known.beside and record.noticed >= known.noticed
