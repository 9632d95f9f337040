"""What a job holds instead of the connection: a few verbs, and no way to end its neighbours' transaction.

The refusals here keep honest code honest; `transactions.py` still notices when a job has ended the transaction in another way (a trigger, an interrupted statement).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from auth.values.database import AuditEntry
from server.store.audit_chain import STORE, AuditTail
from server.store.chain_ends import ChainEnds
from server.store.chain_tail import Tail
from server.store.jobs import (
    CHANGE_KINDS,
    Cause,
    Change,
    Effect,
    Position,
    Row,
    StatementRefused,
    StoreError,
    Wake,
)
from server.store.ledger_chain import ALTERED, ONCE
from server.store.row_seals import Seal
from server.store.sqlite_engine import SQLITE
from server.store.store_engine import EngineConnection, StoreEngine

# The verbs of portable SQL that stay inside a transaction. No DDL, PRAGMA, ATTACH, VACUUM, and nothing that begins or ends one.
_READ_VERBS: Final = frozenset({"SELECT", "WITH"})
_WRITE_VERBS: Final = _READ_VERBS | {"INSERT", "UPDATE", "DELETE"}

_LEADING_VERB: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*([A-Za-z]+)", re.DOTALL)
_OR_ROLLBACK: Final = re.compile(r"\bOR\s+ROLLBACK\b", re.IGNORECASE)

# A job's result lives in memory. Whoever needs more rows pages; hitting this is a missing LIMIT.
MAX_ROWS: Final = 10_000

# Of a column's description, its name.
_NAME: Final = itemgetter(0)
_SEQ: Final = itemgetter("seq")

# Identifiers are ours and short; this only keeps a mistake from becoming a large row in every process.
MAX_ENTITY_ID: Final = 256
# They are constants of the program, so each is looked at once.
STATEMENTS_KNOWN: Final = 1024


@lru_cache(maxsize=STATEMENTS_KNOWN)
def refusal(sql: str, writable: bool) -> str | None:
    """Why a job may not run this statement, or None. Several statements in one are refused by the engine itself."""
    match = _LEADING_VERB.match(sql)
    verb = match[1].upper() if match else ""
    if verb not in (_WRITE_VERBS if writable else _READ_VERBS):
        return f"a job may not run {verb or 'an empty statement'}" + ("" if writable else " while reading")
    if _OR_ROLLBACK.search(sql):
        return "a job may not run OR ROLLBACK: it would undo its neighbours"
    return None


class Facade:
    """The `Db` of one run of one job; dead once the job has ended."""

    __slots__ = (
        "_at",
        "_connection",
        "_effects",
        "_ended",
        "_ends",
        "_engine",
        "_seal",
        "_trouble",
        "_writable",
        "ends",
    )

    def __init__(
        self,
        connection: EngineConnection,
        *,
        at: int,
        writable: bool,
        ends: ChainEnds | None = None,
        engine: StoreEngine = SQLITE,
        seal: Seal | None = None,
    ) -> None:
        self._connection = connection
        self._engine = engine
        self._at = at
        self._writable = writable
        self._ended = False
        self._trouble: StoreError | None = None
        self._ends = ends
        self._seal = seal
        self._effects: list[Effect] = []
        self.ends = False

    def execute(self, sql: str, *params: object) -> int:
        try:
            cursor = self._run(sql, params)
            returns_rows, count = cursor.description is not None, cursor.rowcount
            cursor.close()
        except self._engine.errors as error:
            raise self._spoil(self._engine.translate(error)) from error
        if returns_rows:  # which not every engine counts before they are fetched
            raise self._spoil(StatementRefused("a statement that returns rows is fetched, not executed"))
        return count

    def put_in(self, sql: str, *params: object) -> None:
        try:
            self._run(sql, params, self._engine.later)
        except self._engine.errors as error:
            raise self._spoil(self._engine.translate(error)) from error

    def foresee(self, sql: str, *params: object) -> None:
        if self._engine.foresee is None:
            return
        try:
            self._run(sql, params, self._engine.foresee)
        except self._engine.errors as error:
            raise self._spoil(self._engine.translate(error)) from error

    def fetch_one(self, sql: str, *params: object) -> Row | None:
        try:
            cursor = self._run(sql, params)
            row = cursor.fetchone()
            # Without a comprehension, whose frame would cost as much again: nearly every job reads single rows.
            found = None if row is None else dict(zip(map(_NAME, cursor.description or ()), row, strict=True))
            cursor.close()
        except self._engine.errors as error:
            raise self._spoil(self._engine.translate(error)) from error
        return found

    def fetch_all(self, sql: str, *params: object) -> list[Row]:
        try:
            cursor = self._run(sql, params)
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchmany(MAX_ROWS + 1)
            cursor.close()
        except self._engine.errors as error:
            raise self._spoil(self._engine.translate(error)) from error
        if len(rows) > MAX_ROWS:
            raise self._spoil(StatementRefused(f"a job may not fetch more than {MAX_ROWS} rows at once"))
        return [dict(zip(names, row, strict=True)) for row in rows]

    def changed(self, kind: str, *entity_ids: str) -> None:
        if kind not in CHANGE_KINDS:
            raise self._spoil(StatementRefused(f"nobody listens for changes of kind {kind!r}"))
        if not all(0 < len(entity_id) <= MAX_ENTITY_ID for entity_id in entity_ids):
            raise self._spoil(StatementRefused("the name of a changed entity is empty or too long"))
        if not entity_ids:
            return
        marks = ", ".join(("(?, ?, ?)",) * len(entity_ids))
        sql = f"INSERT INTO changes (at, kind, entity_id) VALUES {marks} RETURNING seq, entity_id"
        values = [value for entity_id in entity_ids for value in (self._at, kind, entity_id)]
        rows = self.fetch_all(sql, *values)
        rows.sort(key=_SEQ)
        self._effects += [Change(seq=row["seq"], kind=kind, entity_id=row["entity_id"]) for row in rows]

    def wake_others(self) -> None:
        self._effects.append(Wake.OTHERS)

    def takes_away(self) -> None:
        self.ends = True

    def audit(self, entry: AuditEntry) -> None:
        self._effects += self._trail().append(self, entry)

    def seal(self, said: bytes) -> str:
        return self._seals().of(said)

    def altered(self, table: str, key: str) -> None:
        self._seals().note(table, key)

    def begin_audit(self) -> None:
        self._effects += self._trail().begin(self, at=self._at)

    def compare_heads(self, audit: Sequence[Position], ledger: Sequence[Position]) -> None:
        self._effects += self._trail().begin_with(self, audit, at=self._at)
        self._tell_of_ledger(self._ledger().compare(self, ledger))

    def post(self, values: Sequence[object], *, once: Cause | None = None) -> int:
        return self._ledger().put(self, values, ONCE[once])

    def begin_ledger(self) -> None:
        self._ledger()

    def sweep_audit(self, *, before: int, at_most: int) -> int:
        # A store that never audits has nothing to sweep.
        if self._ends is None or self._ends.audit.tail() is None:
            return 0
        self.begin_audit()
        return self._trail().sweep(self, before=before, at_most=at_most, now=self._at)

    def sweep_refusals(self, *, since: int = 0, before: int, at_most: int) -> int:
        if self._ends is None or self._ends.audit.tail() is None:
            return 0
        self.begin_audit()
        return self._trail().sweep_refusals(self, since=since, before=before, at_most=at_most, now=self._at)

    @property
    def trouble(self) -> StoreError | None:
        """Why the job is lost."""
        return self._trouble

    def end(self) -> list[Effect]:
        """The job has returned: what others are to hear of. Raises if any of its statements failed, even if the job looked away."""
        if self._trouble is not None:
            raise self._trouble
        return self._effects

    def close(self) -> None:
        self._ended = True

    def _run(self, sql: str, params: tuple[Any, ...], later: Callable[..., None] | None = None) -> Any:
        if self._ended:
            raise StatementRefused("this job has ended; its database handle must not be kept")
        if self._trouble is not None:
            raise StatementRefused(
                "an earlier statement of this job failed, so it cannot go on"
            ) from self._trouble
        reason = refusal(sql, self._writable)
        if reason is not None:
            raise self._spoil(StatementRefused(reason))
        # The engine checks the types of parameters itself, and names the offender's position, not its value.
        if later is None:
            return self._connection.execute(sql, params)
        return later(self._connection, sql, params)

    def _seals(self) -> Seal:
        if self._seal is None:
            raise self._spoil(StatementRefused("nothing can be sealed before the store has the key for it"))
        return self._seal

    def _trail(self) -> AuditTail:
        tail = None if self._ends is None else self._ends.audit.tail()
        if tail is None:
            raise self._spoil(StatementRefused("nothing can be audited before the store has the key for it"))
        return tail

    def _ledger(self) -> Tail:
        """Read to its end. What somebody did to it is said in the trail, and nobody is refused for it."""
        tail = None if self._ends is None else self._ends.ledger.tail()
        if tail is None:
            raise self._spoil(StatementRefused("nothing can be posted before the store has the key for it"))
        if not tail.was_read:
            self._tell_of_ledger(tail.look(self, was_begun=self._has_ledger))
            if tail.is_new:
                self.begin_audit()
                self._trail().note_ledger()
        return tail

    def _tell_of_ledger(self, trouble: str) -> None:
        if trouble:
            self.audit(AuditEntry(self._at, ALTERED, STORE, None, None, None, None, "refused", trouble))

    def _has_ledger(self) -> bool:
        self.begin_audit()
        return self._trail().has_ledger

    def _spoil(self, trouble: StoreError) -> StoreError:
        self._trouble = self._trouble or trouble
        return trouble
