"""The trail and the ledger of one store, walked under their keys; and every balance added up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import msgspec

from server.payments.seller.book_checks import BooksAt
from server.payments.seller.ledger import Books
from server.store.audit_chain import AuditChain
from server.store.chains import Break
from server.store.jobs import Position, StoreDb
from server.store.transactions import PendingJob, Transactions

T = TypeVar("T")

PIECE: Final = 1_000


class ChainsFound(msgspec.Struct, frozen=True, kw_only=True):
    """Two stores with the same rows have the same of these."""

    rows: int  # of the trail, that are sound
    head: Position
    broken: Break | None
    movements: int
    balances: int
    ledger_head: Position | None
    ledger_broken: Break | None
    findings: tuple[str, ...]  # what is wrong with balances

    @property
    def is_sound(self) -> bool:
        return self.broken is None and self.ledger_broken is None and not self.findings


def look_at_chains(
    transactions: Transactions, trail_key: bytes, ledger_key: bytes, told: Callable[[int], None]
) -> ChainsFound:
    """Raises `StoreError`."""
    chain, at, rows = AuditChain(trail_key), None, 0
    while True:
        piece = _read(transactions, partial(chain.walk, at=at, at_most=PIECE))
        at, rows = piece.at, rows + piece.checked
        told(rows)
        if piece.done:
            break
    books, books_at = Books(ledger_key), BooksAt()
    movements = balances = 0
    findings: list[str] = []
    ledger_head, ledger_broken = None, None
    while books_at is not None:
        found = _read(transactions, partial(books.check, at=books_at))
        movements, balances = movements + found.movements, balances + found.accounts
        findings += found.findings
        ledger_head, ledger_broken = found.head or ledger_head, found.broken or ledger_broken
        told(rows + movements + balances)
        books_at = found.at
    return ChainsFound(
        rows=rows,
        head=at,
        broken=piece.broken,
        movements=movements,
        balances=balances,
        ledger_head=ledger_head,
        ledger_broken=ledger_broken,
        findings=tuple(sorted(findings)),  # in whichever order it has them
    )


def _read(transactions: Transactions, job: Callable[[StoreDb], T]) -> T:
    work = PendingJob(job)
    transactions.run_read(work)
    return work.result()
