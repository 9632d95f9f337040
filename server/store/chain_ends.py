"""Where the chains of a store end (`chain_tail.py`): as they were committed here, and as they stand in the transaction that is under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from server.store.audit_chain import AuditChain, AuditTail
from server.store.chain_tail import Tail
from server.store.chains import RowChain
from server.store.jobs import Position
from server.store.ledger_chain import LedgerChain

ChainT = TypeVar("ChainT", bound=RowChain)
TailT = TypeVar("TailT", bound=Tail)

# In a row, without one in between that was told to count: some quarter of an hour of a connection that is cut at each commit.
_MOST_TRIED: Final = 256


class KeptEnd(Generic[ChainT, TailT]):
    """Of one chain. Until it has a key nothing is written there. `shared`: others write as well, so each transaction looks afresh."""

    __slots__ = (
        "_begin",
        "_chain",
        "_committed",
        "_heads",
        "_settled",
        "_shared",
        "_tail",
        "_tried",
        "_wanted",
    )

    def __init__(self, begin: Callable[..., TailT], *, shared: bool = False) -> None:
        self._begin = begin
        self._shared = shared
        self._chain: ChainT | None = None
        self._heads: Sequence[Position] = ()
        self._tail: TailT | None = None  # of the transaction under way, as soon as a job has to do with it
        self._settled: TailT | None = None  # of the last commit here, as long as nothing has gone wrong since
        # What this process wrote, whatever has gone wrong since: with its last commit, and with those after it of which it was not told how
        # they ended.
        self._committed: TailT | None = None
        self._tried: list[TailT] = []
        self._wanted = False  # by the last transaction that was committed

    def keep(self, chain: ChainT, key: bytes, heads: Sequence[Position]) -> None:
        """Given a second time, the same key changes nothing."""
        if self._chain is None or not self._chain.has_key(key):
            self._chain, self._heads = chain, heads
            self._tail = self._settled = self._committed = None
            self._tried = []

    @property
    def head(self) -> Position | None:
        """Of the last commit. May be asked from any thread: a tail is not changed after its commit."""
        tail = self._committed
        return None if tail is None else tail.head

    def tail(self) -> TailT | None:
        """None: there is no key."""
        if self._tail is None and self._chain is not None:
            if self._settled is not None:
                self._tail = self._begin(self._chain, self._settled)
            else:
                known = [tail for tail in (self._committed, *self._tried) if tail is not None]
                if self._shared and self._committed is None:  # whether the other one counts is not known
                    known = []
                self._tail = self._begin(self._chain, known=known, heads=self._heads, shared=self._shared)
        return self._tail

    def begin(self, *, afresh: bool) -> None:
        """A transaction begins; afresh: whatever is found in the table is looked at."""
        self._tail = None
        if afresh or self._shared:
            self._settled = None

    def mark(self) -> Callable[[], None]:
        """What undoes all that comes from now on."""
        tail = self._tail
        undo = None if tail is None else tail.mark()

        def back() -> None:
            self._tail = tail
            if undo is not None:
                undo()

        return back

    def flush(self, execute: Callable[..., int]) -> None:
        """Before a commit. Raises `ChainMoved`."""
        self._wanted = self._tail is not None and self._tail.flush(execute)
        if not self._wanted:
            self._tail = self._settled  # no job had to do with it

    def will_ask(self) -> Sequence[tuple[str, str, int]]:
        """What the transaction that has begun will ask, if it is like the one before."""
        tail = self.tail() if self._wanted else None
        asked = None if tail is None else tail.will_ask
        return () if asked is None else (asked,)

    def try_commit(self) -> None:
        """All chains are written down: from here on it is open whether that counts."""
        self._settled = None
        if self._tail is not None:
            self._tried = [*self._tried[1 - _MOST_TRIED :], self._tail]

    def commit(self) -> None:
        """It does."""
        self._settled = self._tail
        if self._tail is not None:
            self._committed, self._tried = self._tail, []


class ChainEnds:
    """Of all chains of a store, which end together."""

    __slots__ = ("audit", "ledger")

    def __init__(self, *, shared: bool = False) -> None:
        self.audit: KeptEnd[AuditChain, AuditTail] = KeptEnd(AuditTail, shared=shared)
        self.ledger: KeptEnd[LedgerChain, Tail] = KeptEnd(Tail, shared=shared)

    def begin(self, *, afresh: bool = False) -> None:
        self.audit.begin(afresh=afresh)
        self.ledger.begin(afresh=afresh)

    def will_ask(self) -> Sequence[tuple[str, str, int]]:
        return (*self.audit.will_ask(), *self.ledger.will_ask())

    def mark(self) -> Callable[[], None]:
        audit, ledger = self.audit.mark(), self.ledger.mark()

        def undo() -> None:
            audit()
            ledger()

        return undo

    def flush(self, execute: Callable[..., int]) -> None:
        """Raises `ChainMoved`."""
        self.audit.flush(execute)
        self.ledger.flush(execute)
        self.audit.try_commit()
        self.ledger.try_commit()

    def commit(self) -> None:
        self.audit.commit()
        self.ledger.commit()
