"""The books: every movement of money from one account to another, and the balances that follow from them. Jobs.

Money that one account loses the other gains, so all of it comes to nothing at any time. The rows are a chain under a key that is not in
the database (`server/store/ledger_chain.py`); the balances of wallets and accounts are sums of them, kept so that nothing need be added
up, and compared with them by `book_checks.py`. A wallet never has less than nothing; any other account may: what came in from a chain is
what the chain's account lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from auth.values.identity_model import Millis
from server.lib.money.amounts import MOST, Micros
from server.payments.seller import book_checks, wallets
from server.payments.seller.book_checks import BooksAt, BooksPiece
from server.store.jobs import AuditedStore, Cause, Position, StoreDb
from server.store.ledger_chain import LedgerChain

# What was given away, and what was paid back by hand.
GRANTED: Final = "granted"
PAID_OUT: Final = "paid-out"
# Movements that a piece of the check looks at: some ten milliseconds of a reading thread.
PIECE: Final = 1_000

_REVENUE: Final = "revenue:"
CHAIN: Final = "chain:"

MovementKind: TypeAlias = Literal[
    "payment", "deposit", "charge", "grant", "voucher", "refund", "payout", "purchase"
]

# The hold becomes money spent.
_SPEND_HELD: Final = (
    "UPDATE wallets SET balance = balance - ?, held = held - ?, updated_at = ?"
    " WHERE id = ? AND currency = ? AND held >= ?"
)
_TAKE: Final = "UPDATE wallets SET balance = balance - ?, updated_at = ? WHERE id = ? AND currency = ? AND balance - held >= ?"
_GIVE: Final = "UPDATE wallets SET balance = balance + ?, updated_at = ? WHERE id = ? AND currency = ?"
_MOVE: Final = (
    "INSERT INTO accounts (id, currency, balance) VALUES (?, ?, ?) ON CONFLICT (id)"
    " DO UPDATE SET balance = accounts.balance + excluded.balance WHERE accounts.currency = excluded.currency"
)


class BooksError(Exception):
    """The failure to book a movement; the job that asked for it is undone."""


class NotCovered(BooksError):
    """A wallet that is not there, is of another currency, or has too little that is free (of a charge: too little that is held)."""


class OtherMovement(BooksError):
    """Another movement of this kind that was booked for the same cause."""


class Movement(msgspec.Struct, frozen=True, kw_only=True):
    """A movement of money; its fields are in the order of the columns."""

    kind: MovementKind
    source: str
    target: str
    amount: Micros
    currency: str
    principal: str  # whose doing it is: the caller's key, or local:<uid>
    client_id: str | None = None
    grant_id: str | None = None
    server: str | None = None
    tool: str | None = None
    call_id: str | None = None
    charge_id: str | None = None  # or another cause that has one movement of its kind: once:<key>
    payment_id: str | None = None
    price: str | None = None  # its version
    refers: int | None = None  # the movement that is taken back
    note: str = ""

    @property
    def cause(self) -> Cause | None:
        """The cause that it is the only one of its kind for. A movement that takes another back is bounded by that one instead."""
        if self.refers is not None:
            return None
        if self.payment_id is not None:
            return "payment_id"
        return None if self.charge_id is None else "charge_id"


def chain_account(network: str, asset: str) -> str:
    return f"{CHAIN}{network}:{asset.lower()}"


def revenue_account(server: str, tool: str) -> str:
    return f"{_REVENUE}{server}/{tool}"


class Books:
    """The ledger, made of its key; holds nothing else."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def keep(self, store: AuditedStore, heads: Sequence[Position] = ()) -> None:
        """Let the store chain movements with the key from here on. `heads`: see `AuditedStore.chain_ledger`."""
        store.chain_ledger(self._key, heads)

    def post(self, db: StoreDb, movement: Movement, now: Millis) -> int:
        """Book a movement, and return its number, or that of the one that was booked before for the same cause.

        Raises `BooksError`."""
        if not 0 < movement.amount <= MOST:
            raise BooksError("an amount is more than nothing, and no more than can be counted")
        if movement.source == movement.target:
            raise BooksError("money moves from one account to another")
        cause = movement.cause
        seq = db.post((now, *msgspec.structs.astuple(movement)), once=cause)
        if not seq:
            assert cause is not None  # or it would have been booked
            return _booked_before(db, movement, cause)
        _take(db, movement, now)
        _give(db, movement, now)
        return seq

    def check(self, db: StoreDb, at: BooksAt | None = None, *, at_most: int = PIECE) -> BooksPiece:
        """Check the next piece; see `book_checks.py`."""
        return book_checks.piece(db, LedgerChain(self._key), at, at_most=at_most)


def gift(kind: MovementKind, wallet: str, amount: Micros, currency: str, **more: Any) -> Movement:
    """Make a movement of money for nothing. `more`: other fields of it."""
    target = wallets.account_of(wallet)
    return Movement(kind=kind, source=GRANTED, target=target, amount=amount, currency=currency, **more)


def booked_for(db: StoreDb, charge_id: str, kind: MovementKind) -> int | None:
    """Find the movement of this kind that there is for a cause."""
    sql = "SELECT seq FROM movements WHERE charge_id = ? AND kind = ? AND refers IS NULL"
    row = db.fetch_one(sql, charge_id, kind)
    return None if row is None else row["seq"]


def _take(db: StoreDb, movement: Movement, now: Millis) -> None:
    amount, currency = movement.amount, movement.currency
    if not movement.source.startswith(wallets.ACCOUNT):
        _move(db, movement.source, currency, -amount)
        return
    wallet = movement.source.removeprefix(wallets.ACCOUNT)
    if movement.kind == "charge":
        taken = db.execute(_SPEND_HELD, amount, amount, now, wallet, currency, amount)
    else:
        taken = db.execute(_TAKE, amount, now, wallet, currency, amount)
    if not taken:
        raise NotCovered(f"{wallet} has not so much")


def _give(db: StoreDb, movement: Movement, now: Millis) -> None:
    amount, currency = movement.amount, movement.currency
    if not movement.target.startswith(wallets.ACCOUNT):
        _move(db, movement.target, currency, amount)
    elif not db.execute(_GIVE, amount, now, movement.target.removeprefix(wallets.ACCOUNT), currency):
        raise NotCovered(f"{movement.target} is not there, or of another currency")


def _move(db: StoreDb, account: str, currency: str, amount: Micros) -> None:
    if not db.execute(_MOVE, account, currency, amount):
        raise BooksError(f"{account} is of another currency")


def _booked_before(db: StoreDb, movement: Movement, cause: Cause) -> int:
    sql = f"SELECT * FROM movements WHERE {cause} = ? AND kind = ? AND refers IS NULL"
    row = db.fetch_one(sql, getattr(movement, cause), movement.kind)
    assert row is not None  # it stood in the way
    names = ("source", "target", "amount", "currency")
    if any(row[name] != getattr(movement, name) for name in names):
        raise OtherMovement(f"movement {row['seq']} is another {movement.kind} of the same {cause}")
    return row["seq"]
