"""Wallets: what somebody has here, and how much of it calls that are under way have taken hold of. Jobs.

What is in a wallet changes by movements alone (`ledger.py`); a hold is none: it only keeps others from spending the same money.
"""

from __future__ import annotations

from typing import Final

import msgspec

from auth.values.identity_model import PAYER, Millis, Principal, PrincipalKind
from server.lib.money.amounts import Micros
from server.store.jobs import Row, StoreDb

# How the books call the account that a wallet is.
ACCOUNT: Final = "wallet:"

_OPEN: Final = (
    "INSERT INTO wallets (id, currency, balance, held, created_at, updated_at) VALUES (?, ?, 0, 0, ?, ?)"
    " ON CONFLICT (id) DO NOTHING"
)
_HOLD: Final = "UPDATE wallets SET held = held + ?, updated_at = ? WHERE id = ? AND balance - held >= ?"
_RELEASE: Final = "UPDATE wallets SET held = held - ?, updated_at = ? WHERE id = ? AND held >= ?"


class Wallet(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    currency: str
    balance: Micros
    held: Micros  # of the balance
    created_at: Millis
    updated_at: Millis

    @classmethod
    def of(cls, row: Row) -> Wallet:
        return msgspec.convert(row, cls)

    @property
    def free(self) -> Micros:
        """What can still be spent."""
        return self.balance - self.held


def wallet_of(principal: Principal) -> str | None:
    """The wallet of whoever calls. None: anonymous callers, who cannot be told apart, and somebody at the machine, have none.

    A person's keys pay from the person's wallet; a token of the settings has its own.
    """
    subject = principal.subject
    match principal.kind:
        case PrincipalKind.USER:
            return f"user:{subject}"
        case PrincipalKind.CLIENT:
            return subject if subject.startswith("client:") else f"client:{subject}"
        case PrincipalKind.API_KEY if principal.user is not None:
            return f"user:{principal.user}"
        case PrincipalKind.API_KEY if subject.startswith("token:"):
            return subject
        case PrincipalKind.PAYER if ":" in subject:
            return PAYER + subject.lower().removeprefix(PAYER)
        case _:
            return None


def account_of(wallet: str) -> str:
    return ACCOUNT + wallet


def open_wallet(db: StoreDb, wallet: str, currency: str, now: Millis) -> bool:
    """False: there is one already."""
    return db.execute(_OPEN, wallet, currency, now, now) == 1


def find(db: StoreDb, wallet: str) -> Wallet | None:
    row = db.fetch_one("SELECT * FROM wallets WHERE id = ?", wallet)
    return None if row is None else Wallet.of(row)


def hold(db: StoreDb, wallet: str, amount: Micros, now: Millis) -> bool:
    """Keep so much for a call; False if so much is not free."""
    _check(amount)
    return db.execute(_HOLD, amount, now, wallet, amount) == 1


def release(db: StoreDb, wallet: str, amount: Micros, now: Millis) -> bool:
    """Give back what was held; False if so much is not held. Once for each hold: whoever calls this ends the charge in the same job,
    with a conditional write."""
    _check(amount)
    return db.execute(_RELEASE, amount, now, wallet, amount) == 1


def _check(amount: Micros) -> None:
    if amount <= 0:
        raise ValueError("a hold is of more than nothing")
