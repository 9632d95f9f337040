"""Trips to PostgreSQL and back: several statements go in one (libpq's pipeline mode), each prepared with its first use.

The server runs what came in one trip in order, and from the first that it refuses on nothing more of it. When a transaction begins or ends,
and what may go along with something else, is `postgres_transaction.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, zip_longest
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from server.cluster.postgres.postgres_wire import WireConnection

# Statements are constants of the program, some hundreds; each once more for every other mixture of types and of nothing among its
# parameters. Beyond that they are not kept ready.
_PREPARED: Final = 1_000

# Which statement it is an answer to, and under which name it is prepared if the answer is to that.
_Asked: TypeAlias = "tuple[int, tuple[bytes, tuple[int, ...]] | None]"

_DONE: Final = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.PIPELINE_SYNC})


class Statement:
    """One, with what goes into it, as it is sent; also twice, to another connection."""

    __slots__ = ("formats", "sql", "touches_one_row", "types", "values")

    def __init__(
        self,
        sql: bytes,
        values: Sequence[Any] | None = None,
        types: tuple[int, ...] = (),
        formats: Sequence[Format] | None = None,
    ) -> None:
        self.sql = sql
        self.values = values
        self.types = types
        self.formats = formats
        self.touches_one_row = False  # or divides by zero


class TripFailed(Exception):
    """What the server refused, or why there is no connection any more."""

    def __init__(self, error: psycopg.Error, at: int) -> None:
        super().__init__()
        self.error = error
        self.at = at  # which of the statements; -1: none of them in particular


class PostgresTrips:
    """Of one connection, which may be used in other ways in between, after `settle`."""

    def __init__(self, connection: WireConnection) -> None:
        self._connection = connection
        self._wire = connection.pgconn
        self._transformer = Transformer(connection)
        self._prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._numbers = count()
        self._unheard = 0  # answers that nobody has waited for yet

    @property
    def transaction_status(self) -> int:
        """As the server said last. What it was sent and nobody waits for ends a transaction."""
        return TransactionStatus.IDLE if self._unheard else self._wire.transaction_status

    def statement(self, sql: bytes, parameters: Sequence[Any]) -> Statement:
        """Raises psycopg's error for a parameter of a type, or with a value, that no column has."""
        if not parameters:
            return Statement(sql)
        made = self._transformer
        values = made.dump_sequence(parameters, [PyFormat.AUTO] * len(parameters))
        return Statement(sql, values, made.types or (), made.formats)

    def go(self, statements: Sequence[Statement]) -> list[PGresult]:
        """What came back for each. Raises `TripFailed`."""
        before, self._unheard = self._unheard, 0
        try:
            asked = self._send(statements)
            answers = self._connection.wait(self._answers(before + len(asked) + 1))
            if not self._connection.closed:
                self._wire.exit_pipeline_mode()
        except psycopg.Error as error:
            raise TripFailed(error, -1) from None
        for answer in answers[:before]:
            if answer.status not in _DONE:
                raise TripFailed(error_from_result(answer), -1)
        return self._outcomes(asked, answers[before:])

    def go_without_waiting(self, statement: Statement) -> None:
        """It ends the transaction. Its answer is read with the next ones. Raises `TripFailed`."""
        try:
            self._unheard += len(self._send((statement,))) + 1
            self._connection.wait(send(self._wire))
        except psycopg.Error as error:
            raise TripFailed(error, -1) from None

    def settle(self) -> None:
        """Nothing is under way any more. Raises `TripFailed`."""
        if self._unheard:
            self.go(())

    def rows(self, result: PGresult, first: int, end: int) -> list[tuple[Any, ...]]:
        if self._transformer.pgresult is not result:
            self._transformer.set_pgresult(result)
        return self._transformer.load_rows(first, end, tuple)

    def _send(self, statements: Sequence[Statement]) -> list[_Asked]:
        """What each answer will be to."""
        wire, asked = self._wire, list[_Asked]()
        if not wire.pipeline_status:
            wire.enter_pipeline_mode()
        for at, statement in enumerate(statements):
            key = statement.sql, statement.types
            name = self._prepared.get(key)
            if name is None and len(self._prepared) < _PREPARED:
                name = self._prepared[key] = b"o%d" % next(self._numbers)
                wire.send_prepare(name, statement.sql, statement.types)
                asked.append((at, key))
            if name is None:
                wire.send_query_params(
                    statement.sql, statement.values, statement.types, statement.formats, Format.BINARY
                )
            else:
                wire.send_query_prepared(name, statement.values, statement.formats, Format.BINARY)
            asked.append((at, None))
        wire.pipeline_sync()
        return asked

    def _answers(self, asked: int) -> PQGen[list[PGresult]]:
        """One for each that was asked for, as far as the connection lives."""
        yield from send(self._wire)
        found: list[PGresult] = []
        for _ in range(asked):
            try:
                results = yield from fetch_many(self._wire)
            except psycopg.DatabaseError:
                if any(answer.status not in _DONE for answer in found):
                    break  # why it was ended was said before its end
                raise
            if not results:
                break
            found.append(results[0])
        return found

    def _outcomes(self, asked: Sequence[_Asked], answers: Sequence[PGresult]) -> list[PGresult]:
        outcomes: list[PGresult] = []
        failure: TripFailed | None = None
        for (at, prepares), answer in zip_longest(asked, answers[: len(asked)]):  # without that to its end
            if answer is not None and answer.status in _DONE:
                if prepares is None:
                    outcomes.append(answer)
                continue
            if prepares is not None:
                self._prepared.pop(prepares, None)
            if failure is None:
                failure = TripFailed(_cut_off() if answer is None else error_from_result(answer), at)
        if failure is not None:
            raise failure
        return outcomes


def _cut_off() -> psycopg.Error:
    return psycopg.OperationalError("the connection was lost")
