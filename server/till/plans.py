from __future__ import annotations
from typing import Any, Mapping
import msgspec
class Spent(msgspec.Struct, frozen=True, array_like=True):
    subject: str
    period: str
    amount: int
class Cover(msgspec.Struct, frozen=True):
    reason: str = ""
    due: int = 0
    how: str = "balance"
    spent: tuple[Spent, ...] = ()
    facts: Mapping[str, Any] = {}
def cover(db, offer, wallet, now) -> Cover:
    return Cover(due=offer.amount)
def uncover(db, spent) -> None:
    pass
