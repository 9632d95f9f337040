"""Books to try out: a store with its keys, movements with little said, and the whole check at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from server.payments.seller import wallets
from server.payments.seller.book_checks import BooksAt
from server.payments.seller.ledger import Books, Movement, MovementKind, chain_account, revenue_account
from server.store.chains import Break
from server.store.jobs import Position, StoreDb
from tests.engine_under_test import Place, open_at
from tests.store.store_engines import ENGINES, NOW, AnyStore, Database, opener

__all__ = ["ENGINES", "NOW", "AnyStore"]

KEY: Final = b"a key of the books alone"
AUDIT_KEY: Final = b"and one of the trail"
BOOKS: Final = Books(KEY)
ANN: Final = "user:ann"
BEN: Final = "user:ben"
BASE: Final = chain_account("eip155:8453", "0xAbC")
SEARCH: Final = revenue_account("shop", "search")


@asynccontextmanager
async def open_books(
    engine: str, directory: Path, database: Database | None = None
) -> AsyncGenerator[AnyStore]:
    (directory / "backups").mkdir(mode=0o700, exist_ok=True)
    async with opener(engine, directory, database)() as store:
        yield kept(store)


@asynccontextmanager
async def open_books_at(place: Place) -> AsyncGenerator[AnyStore]:
    async with open_at(place, clock=lambda: NOW) as store:
        yield kept(store)


def kept(store: AnyStore) -> AnyStore:
    store.chain_audit(AUDIT_KEY)
    BOOKS.keep(store)
    return store


def moved(kind: MovementKind, source: str, target: str, amount: int, **more: Any) -> Movement:
    return Movement(
        kind=kind, source=source, target=target, amount=amount, currency="USD", principal="user:ann:", **more
    )


def deposit(db: StoreDb, wallet: str, amount: int, payment: str) -> int:
    """What came in from a chain."""
    wallets.open_wallet(db, wallet, "USD", NOW)
    movement = moved("deposit", BASE, wallets.account_of(wallet), amount, payment_id=payment)
    return BOOKS.post(db, movement, NOW)


def begin_charge(db: StoreDb, wallet: str, amount: int, charge: str) -> bool:
    """A priced call that runs: its row, and a hold."""
    if not wallets.hold(db, wallet, amount, NOW):
        return False
    db.execute(
        "INSERT INTO charges (id, call_key, fingerprint, stands, keyed, state, paid, how, server, tool, call_id, caller, wallet,"
        " amount, currency, price, spent, retries_left, owner, created_at, expires_at)"
        " VALUES (?, ?, '', 1, 0, 'running', 0, 'balance', 'shop', 'search', '', '', ?, ?, 'USD', '1', '', 0, 'boot', 0, 0)",
        charge, charge, wallet, amount,
    )  # fmt: skip
    return True


def finish_charge(db: StoreDb, wallet: str, amount: int, charge: str) -> int:
    """It was answered: the hold is spent."""
    db.execute("UPDATE charges SET state = 'done', owner = NULL WHERE id = ? AND state = 'running'", charge)
    movement = moved(
        "charge", wallets.account_of(wallet), SEARCH, amount, server="shop", tool="search", charge_id=charge
    )
    return BOOKS.post(db, movement, NOW)


def release_charge(db: StoreDb, wallet: str, amount: int, charge: str) -> bool:
    """It failed."""
    ended = db.execute(
        "UPDATE charges SET state = 'released', owner = NULL WHERE id = ? AND state = 'running'", charge
    )
    return bool(ended) and wallets.release(db, wallet, amount, NOW)


class Checked:
    """What a whole check found, and in how many pieces."""

    def __init__(self) -> None:
        self.movements = self.accounts = self.pieces = 0
        self.findings: list[str] = []
        self.broken: Break | None = None
        self.head: Position | None = None

    @property
    def is_right(self) -> bool:
        return not self.findings and self.broken is None and self.head is not None


async def checked(store: AnyStore, books: Books = BOOKS, *, at_most: int = 1_000) -> Checked:
    found, at = Checked(), None
    while True:
        piece = await store.read(partial(books.check, at=at, at_most=at_most))
        _add(found, piece)
        at = piece.at
        if at is None:
            return found


def checked_at_once(db: StoreDb, *, at_most: int = 7) -> Checked:
    found = Checked()
    at: BooksAt | None = None
    while True:
        piece = BOOKS.check(db, at, at_most=at_most)
        _add(found, piece)
        at = piece.at
        if at is None:
            return found


def _add(found: Checked, piece: Any) -> None:
    found.movements += piece.movements
    found.accounts += piece.accounts
    found.pieces += 1
    found.findings += piece.findings
    found.broken = found.broken or piece.broken
    found.head = found.head or piece.head


def balances(db: StoreDb) -> dict[str, int]:
    return {
        row["id"]: row["balance"]
        for table in ("wallets", "accounts")
        for row in db.fetch_all(f"SELECT id, balance FROM {table}")
    }


def do(sql: str, *values: object) -> Callable[[StoreDb], int]:
    return lambda db: db.execute(sql, *values)
