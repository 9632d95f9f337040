"""Vouchers: codes that put money into a wallet, or its owner on a plan. Stored as a hash, and counted once for each wallet. Jobs.

Putting somebody on a plan is `plans.py`'s; whoever redeems does both in one job.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal

import msgspec

from auth.audit import audit_trail
from auth.values.entropy import Entropy
from auth.values.identity_model import Millis
from server.lib.money.amounts import Micros, shown
from server.lib.secret import Secret
from server.payments.seller import wallets
from server.payments.seller.ledger import Books, gift
from server.store.jobs import Row, StoreDb

# 123 bits in letters that are not taken for each other, so that a hash without salt is enough.
_LETTERS: Final = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
_GROUPS: Final = 5
_GROUP: Final = 5
_CODE: Final = re.compile(f"[{_LETTERS}]{{{_GROUPS * _GROUP}}}")
HINT_LETTERS: Final = 4
# By how much of the hash a voucher is called.
ID_DIGITS: Final = 16
_ID: Final = re.compile(f"[0-9a-f]{{{ID_DIGITS}}}")
LISTED: Final = 500
MOST_USES: Final = 100_000


class VoucherOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order for a voucher: money, a plan, or both."""

    amount: Micros
    currency: str
    plan: str | None
    uses: int
    note: str
    expires_at: Millis


class Voucher(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    hint: str
    amount: Micros
    currency: str
    plan: str | None
    uses_left: int
    used: int
    note: str
    created_by: str
    created_at: Millis
    expires_at: Millis
    revoked_at: Millis | None

    @classmethod
    def of(cls, row: Row) -> Voucher:
        return msgspec.convert({**row, "id": row["code_hash"][:ID_DIGITS]}, cls)


class NewVoucher(msgspec.Struct, frozen=True, kw_only=True):
    voucher: Voucher
    code: Secret


class Redeemed(msgspec.Struct, frozen=True, kw_only=True):
    amount: Micros
    currency: str
    plan: str | None  # that the wallet is to be put on, in the same job
    seq: int | None  # of the movement; None: there was no money in it


class NotRedeemed(msgspec.Struct, frozen=True):
    reason: Literal["unknown", "revoked", "expired", "used_up", "used_before", "other_currency"]


def draw(seed: bytes) -> str:
    text = Entropy(seed).letters(_LETTERS, _GROUPS * _GROUP)
    return "-".join(text[start : start + _GROUP] for start in range(0, len(text), _GROUP))


def hash_of(typed: str) -> str | None:
    """Hash a code as people type it: in small letters, without the dashes, with blanks. None: that is no code."""
    text = re.sub(r"[\s-]", "", typed[:100]).upper()
    return hashlib.sha256(text.encode()).hexdigest() if _CODE.fullmatch(text) else None


def make(db: StoreDb, order: VoucherOrder, *, seed: bytes, by: str, now: Millis) -> NewVoucher:
    if not order.amount and order.plan is None:
        raise ValueError("a voucher is for something")
    code = draw(seed)
    code_hash = hash_of(code)
    assert code_hash is not None  # it was drawn
    hint = code[-HINT_LETTERS:]
    db.execute(
        "INSERT INTO vouchers (code_hash, hint, amount, currency, plan, uses_left, note, created_by, created_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        code_hash, hint, order.amount, order.currency, order.plan, order.uses, order.note, by, now, order.expires_at,
    )  # fmt: skip
    money = shown(order.amount, order.currency) if order.amount else ""
    worth = " and ".join(filter(None, (money, order.plan)))
    said = f"{code_hash[:ID_DIGITS]}: {worth}, for {order.uses}"
    audit_trail.record(db, at=now, event="voucher.made", actor=audit_trail.actor(by), reason=said)
    row = db.fetch_one(f"{_SELECT} WHERE code_hash = ?", code_hash)
    assert row is not None  # it was inserted
    return NewVoucher(voucher=Voucher.of(row), code=Secret(code))


def listing(db: StoreDb, *, after: str = "", at_most: int = LISTED) -> list[Voucher]:
    """List vouchers whose ids come after this one, in the order of their ids."""
    # No hash that begins with the id comes after it and this letter.
    edge = f"{after}g" if after else ""
    rows = db.fetch_all(f"{_SELECT} WHERE code_hash > ? ORDER BY code_hash LIMIT ?", edge, at_most)
    return [Voucher.of(row) for row in rows]


def revoke(db: StoreDb, voucher_id: str, *, by: str, now: Millis) -> bool:
    """Let nobody redeem a voucher any more; what it gave stays. False: there is none, or it was revoked before."""
    if _ID.fullmatch(voucher_id) is None:
        return False
    ended = db.execute(
        "UPDATE vouchers SET revoked_at = ? WHERE code_hash > ? AND code_hash < ? AND revoked_at IS NULL",
        now, voucher_id, f"{voucher_id}g",
    )  # fmt: skip
    if ended:
        audit_trail.record(
            db, at=now, event="voucher.revoked", actor=audit_trail.actor(by), reason=voucher_id
        )
    return bool(ended)


def redeem(
    db: StoreDb,
    books: Books,
    code_hash: str,
    wallet: str,
    *,
    principal: str,
    now: Millis,
) -> Redeemed | NotRedeemed:
    """Redeem a voucher once for each wallet, and no more often than was meant: both in the one write that counts it."""
    used = db.execute(_USE, code_hash, now, code_hash, wallet)
    row = db.fetch_one("SELECT * FROM vouchers WHERE code_hash = ?", code_hash)
    if row is None or not used:
        return NotRedeemed(_why_not(db, row, wallet, now))
    if row["amount"]:
        wallets.open_wallet(db, wallet, row["currency"], now)
        there = wallets.find(db, wallet)
        if there is None or there.currency != row["currency"]:
            db.execute("UPDATE vouchers SET uses_left = uses_left + 1 WHERE code_hash = ?", code_hash)
            return NotRedeemed("other_currency")
    db.execute(
        "INSERT INTO voucher_uses (code_hash, wallet, used_at) VALUES (?, ?, ?)", code_hash, wallet, now
    )
    voucher_id, seq = code_hash[:ID_DIGITS], None
    if row["amount"]:
        movement = gift(
            "voucher", wallet, row["amount"], row["currency"], note=voucher_id, principal=principal
        )
        seq = books.post(db, movement, now)
    audit_trail.record(
        db,
        at=now,
        event="voucher.redeemed",
        actor=wallet,
        reason=f"{voucher_id}, by {wallet}",
    )
    return Redeemed(amount=row["amount"], currency=row["currency"], plan=row["plan"], seq=seq)


_SELECT: Final = (
    "SELECT vouchers.*, (SELECT count(*) FROM voucher_uses WHERE voucher_uses.code_hash = vouchers.code_hash) AS used"
    " FROM vouchers"
)
_USE: Final = (
    "UPDATE vouchers SET uses_left = uses_left - 1 WHERE code_hash = ? AND uses_left > 0 AND expires_at > ?"
    " AND revoked_at IS NULL AND NOT EXISTS (SELECT 1 FROM voucher_uses WHERE code_hash = ? AND wallet = ?)"
)


def _why_not(
    db: StoreDb, row: Row | None, wallet: str, now: Millis
) -> Literal["unknown", "revoked", "expired", "used_up", "used_before"]:
    if row is None:
        return "unknown"
    sql = "SELECT used_at FROM voucher_uses WHERE code_hash = ? AND wallet = ?"
    if db.fetch_one(sql, row["code_hash"], wallet) is not None:
        return "used_before"
    if row["revoked_at"] is not None:
        return "revoked"
    return "expired" if now >= row["expires_at"] else "used_up"
