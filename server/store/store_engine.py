"""What the store needs of a connection, whichever database is behind it, and what each database says in a way of its own.

A connection of `sqlite3` is one as it is, so that SQLite pays nothing for not being alone. Statements of transactions go through `execute`
like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from server.store.jobs import StoreError

# How long a transaction took to begin, which may be with its first statement; and why it did not.
Begun: TypeAlias = Callable[[float, Exception | None], None]


class EngineCursor(Protocol):
    """What became of one statement."""

    @property
    def description(self) -> Sequence[Any] | None:
        """Of each column a sequence that begins with its name; None: no rows come back."""
        ...

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Sequence[Any] | None: ...

    def fetchmany(self, size: int, /) -> Sequence[Sequence[Any]]: ...

    def close(self) -> None: ...


class EngineConnection(Protocol):
    """Used by one thread at a time. Nothing begins or ends a transaction unasked."""

    @property
    def in_transaction(self) -> bool:
        """Whether there is one that could be committed."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        """An `EngineCursor`; one statement, with `?` for each parameter."""
        ...

    def close(self) -> None: ...


class StoreEngine(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of database."""

    errors: tuple[type[Exception], ...]  # that its connections raise
    # One of them; a new object at each call, because exceptions collect tracebacks.
    translate: Callable[[Any], StoreError]
    # Of these errors, those at which a whole transaction is lost though its jobs are sound: they run again.
    lost: tuple[type[StoreError], ...]
    shared: bool  # other processes may write to it, too
    begin_write: str
    begin_read: str
    commit_telling: str  # ends a transaction in which others have something to hear of
    # Why a connection would only refuse what it is asked now, as far as that is known without asking; none where it never is.
    out_of_reach: Callable[[Any], StoreError | None] | None
    # Said before and after a read on a connection that also writes; none where `begin_read` says it.
    only_reading: tuple[str, str] | None
    # Have a connection ask, while statements run, whether they are to be stopped; and tell of a transaction that begins with its first one.
    watch: Callable[[Any, Callable[[], bool], Begun], None]
    # Ask, with the next statement, what will be asked soon, most likely; the answer counts until something is written. None: there is
    # nothing to be gained.
    foresee: Callable[[Any, str, Sequence[Any]], None] | None
    # The same where the answer counts to the end of the transaction.
    foresee_for_all: Callable[[Any, str, Sequence[Any]], None] | None
    # Run a statement that nobody waits for: before the next one, or before the commit, which are refused if it is. None: there is nothing to
    # be gained, and it is run as any other.
    later: Callable[[Any, str, Sequence[Any]], None] | None
    # The same, and it is refused where it touches another number of rows than one.
    one_row_later: Callable[[Any, str, Sequence[Any]], None] | None


class CommitInDoubt(Exception):
    """The connection was lost while a transaction was being committed: it may or may not have been."""
