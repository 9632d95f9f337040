"""All rows of a store into another, piece by piece, so that it can be cut off at any moment and goes on where it was.

How far it has come is written in the target, in the transaction of the rows themselves (`store/move_marks.py`). When all is there, every row is
read back from the target and compared; then the source is closed for good, and only then may the target be served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec.structs import replace

from auth.values.database import AuditEntry
from server.cluster.moving.copy_checks import ChainsFound, look_at_chains
from server.cluster.moving.copy_ends import CopiedRow, CopyEnd, Position
from server.cluster.moving.copy_plan import CopiedTable
from server.store import meta_rows, move_marks
from server.store.audit_chain import AuditChain, AuditTail
from server.store.jobs import StatementFailed, StoreDb, StoreError
from server.store.move_marks import CopiedAway, CopiedHere

# As much as is put in one transaction: some tens of milliseconds, and as many megabytes of memory.
PIECE_ROWS: Final = 5_000
PIECE_BYTES: Final = 4 * 1024 * 1024

_ENCODER: Final = msgspec.msgpack.Encoder()
_SUM_BYTES: Final = 16
_MODULUS: Final = 1 << (8 * _SUM_BYTES)


class CopyRefused(StoreError):
    """Nothing was copied, or nothing more; what is in the target already is gone on with."""


class CopyStep(msgspec.Struct, frozen=True, kw_only=True):
    """What is told while it goes on."""

    doing: str  # again | copying | comparing | walking | closing
    table: str = ""
    done: int = 0  # rows, of `of`
    of: int = 0


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    rows: Mapping[str, int]  # of each table
    chains: ChainsFound


class CopyKeys(msgspec.Struct, frozen=True, kw_only=True):
    fingerprint: str
    trail: bytes
    ledger: bytes

    def __repr__(self) -> str:
        return "CopyKeys(…)"


class StoreCopy:
    """`source` and `target` are of the same schema, and nobody else uses them."""

    def __init__(
        self,
        source: CopyEnd,
        target: CopyEnd,
        *,
        tables: Sequence[CopiedTable],
        schema: int,
        keys: CopyKeys,
        copy_id: str,
        by: str,
        now: int,
        told: Callable[[CopyStep], None] = lambda step: None,
        last: Callable[[StoreDb], None] = lambda db: None,
        piece_rows: int = PIECE_ROWS,
    ) -> None:
        """`last` is a job for the transaction in which the target becomes a store like any other."""
        self._source, self._target = source, target
        self._tables = tables
        self._schema = schema
        self._keys = keys
        self._copy_id = copy_id
        self._by, self._now = by, now
        self._told = told
        self._last = last
        self._piece_rows = piece_rows

    def run(self) -> Copied:
        """Raises `StoreError`; the same again goes on with it."""
        for end in (self._source, self._target):
            if end.schema() > self._schema:  # a newer version has added to it
                raise CopyRefused(
                    f"{end.called} is of a newer version (schema {end.schema()}; this one knows {self._schema})",
                    hint="copy it with the newer version: this one does not know all of it",
                )
        mark = self._begin()
        counts = {table.name: self._counted(table) for table in self._tables}
        mark = self._copy(mark, sum(counts.values()))
        for table in self._tables:
            if table.numbered is not None:
                number = self._source.last_number(table)
                self._target.writing(
                    lambda db, table=table, number=number: self._target.give_numbers_after(table, number)
                )
        self._target.settle(self._tables)
        self._compare(mark, counts)
        chains = self._walk()
        self._told(CopyStep(doing="closing"))
        away = CopiedAway(copy=mark.copy, to=self._target.called, at=self._now)
        self._source.writing(partial(move_marks.put, mark=away))
        self._told(CopyStep(doing="closed"))
        self._target.writing(partial(self._finish, rows=sum(counts.values())))
        return Copied(rows=counts, chains=chains)

    # ── beginning ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> CopiedHere:
        """Where this copy is: at its beginning, or where it was cut off."""
        away, here = self._source.reading(move_marks.away), self._target.reading(move_marks.here)
        if here is not None and away is not None and here.copy == away.copy and here.schema == self._schema:
            return here
        if away is not None and away.at is not None:
            raise move_marks.gone(away)
        if here is not None:  # its source was served, or another one, since
            self._told(CopyStep(doing="again"))
        mark = CopiedHere(
            copy=self._copy_id,
            source=self._source.called,
            key=self._keys.fingerprint,
            schema=self._schema,
            begun=self._now,
        )
        self._target.writing(partial(self._put_first, mark=mark))
        self._source.writing(partial(move_marks.put, mark=CopiedAway(copy=mark.copy, to=self._target.called)))
        return mark

    def _put_first(self, db: StoreDb, *, mark: CopiedHere) -> None:
        self._target.empty(self._tables)
        move_marks.put(db, mark)

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _copy(self, mark: CopiedHere, rows: int) -> CopiedHere:
        names = [table.name for table in self._tables]
        begin = names.index(mark.table) if mark.table else 0
        for table in self._tables[begin:]:
            begin_after = mark.after if table.name == mark.table else ()
            for piece, after in self._pieces(self._source, table, begin_after):
                self._check_kinds(table, piece)
                total = int(mark.sums.get(table.name, "0"), 16) + sum(map(_sum_of, piece))
                mark = replace(
                    mark,
                    table=table.name,
                    after=after,
                    rows={**mark.rows, table.name: mark.rows.get(table.name, 0) + len(piece)},
                    sums={**mark.sums, table.name: f"{total % _MODULUS:x}"},
                )
                self._put(table, piece, mark)
                self._told(CopyStep(doing="copying", table=table.name, done=sum(mark.rows.values()), of=rows))
        return mark

    def _pieces(
        self, end: CopyEnd, table: CopiedTable, after: Position
    ) -> Iterator[tuple[list[CopiedRow], Position]]:
        """Rows, and where they end."""
        piece: list[CopiedRow] = []
        weight, at_most = 0, min(table.at_once, self._piece_rows)
        while True:
            found = end.read(table, after, at_most)
            for after, row in found:  # noqa: B007  the last one counts
                if not _is_mark(table, row):
                    piece.append(row)
                    weight += _weight(row)
            if piece and (not found or len(piece) >= self._piece_rows or weight >= PIECE_BYTES):
                yield piece, after
                piece, weight = [], 0
            if len(found) < at_most:
                if piece:
                    yield piece, after
                return

    def _put(self, table: CopiedTable, piece: Sequence[CopiedRow], mark: CopiedHere) -> None:
        def job(db: StoreDb) -> None:
            self._target.put(table, piece)
            move_marks.put(db, mark)

        try:
            self._target.writing(job)
        except StatementFailed:
            for row in piece:
                for column, value in zip(table.columns, row, strict=True):
                    if isinstance(value, str) and "\0" in value:
                        raise CopyRefused(
                            f"{table.name}.{column} of {_named(table, row)} has a character that no text of PostgreSQL"
                            " may have (U+0000)"
                        ) from None
            raise

    def _check_kinds(self, table: CopiedTable, piece: Sequence[CopiedRow]) -> None:
        """SQLite takes any value into any column; what is none of the column's kind was not written by us."""
        kinds = tuple(table.columns.values())
        for row in piece:
            for value, kind, column in zip(row, kinds, table.columns, strict=True):
                if value is not None and type(value) is not kind:
                    raise CopyRefused(
                        f"{table.name}.{column} of {_named(table, row)} is no {_KIND_NAMES[kind]}: it was put there by"
                        " somebody else"
                    )

    # ── at the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _counted(self, table: CopiedTable) -> int:
        marks = 0
        if table.name == _META:
            marks = self._source.reading(
                lambda db: sum(meta_rows.get(db, key) is not None for key in move_marks.MARKS)
            )
        return self._source.count(table) - marks

    def _compare(self, mark: CopiedHere, counts: Mapping[str, int]) -> None:
        """What is in the target, row by row, with what was read from the source."""
        done = 0
        for table in self._tables:
            rows = total = 0
            for piece, _ in self._pieces(self._target, table, ()):
                rows, total = rows + len(piece), total + sum(map(_sum_of, piece))
                done += len(piece)
                self._told(CopyStep(doing="comparing", table=table.name, done=done, of=sum(counts.values())))
            read = mark.rows.get(table.name, 0)
            if not counts[table.name] == read == rows:
                raise CopyRefused(
                    f"{table.name} has {counts[table.name]} rows in the source and {rows} in the target ({read} were read)",
                    hint="did something else write into one of them? empty the target, and begin again",
                )
            if f"{total % _MODULUS:x}" != mark.sums.get(table.name, "0"):
                raise CopyRefused(
                    f"the rows of {table.name} are not the same in the target",
                    hint="did something else write into it? empty the target, and begin again",
                )

    def _walk(self) -> ChainsFound:
        def told(rows: int) -> None:
            self._told(CopyStep(doing="walking", done=rows))

        keys = self._keys
        ends = [
            look_at_chains(end.transactions, keys.trail, keys.ledger, told)
            for end in (self._source, self._target)
        ]
        if ends[0] != ends[1]:
            raise CopyRefused(
                "the audit trail or the ledger is not the same in the target",
                hint="did something else write into it? empty the target, and begin again",
            )
        return ends[1]

    def _finish(self, db: StoreDb, *, rows: int) -> None:
        """The trail says who did it; then it is a store like any other."""
        reason = f"{rows} rows from {self._source.called}"
        tail = AuditTail(AuditChain(self._keys.trail))
        tail.append(db, AuditEntry(self._now, "store.copied", self._by, None, None, None, None, "ok", reason))
        tail.flush(db.execute)
        self._last(db)
        db.execute("DELETE FROM meta WHERE key = ?", move_marks.HERE)


_META: Final = "meta"
_KIND_NAMES: Final[Mapping[type, str]] = {str: "text", int: "whole number", float: "number", bytes: "bytes"}


def _is_mark(table: CopiedTable, row: CopiedRow) -> bool:
    return table.name == _META and row[list(table.columns).index("key")] in move_marks.MARKS


def _sum_of(row: CopiedRow) -> int:
    """Kinds count: a text is not the bytes of it, and 1 is not 1.0."""
    return int.from_bytes(blake2b(_ENCODER.encode(row), digest_size=_SUM_BYTES).digest())


def _weight(row: CopiedRow) -> int:
    return sum(len(value) for value in row if isinstance(value, (str, bytes)))


def _named(table: CopiedTable, row: CopiedRow) -> str:
    values = dict(zip(table.columns, row, strict=True))
    return ", ".join(f"{name} {values[name]!r}"[:100] for name in table.key)
