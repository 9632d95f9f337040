"""What identity asks of the part of the server that keeps money, and in which words it is answered.

Pages and terminals show what somebody has, and let them change what is theirs to change; what money is, is not known here. Texts are
made where amounts are understood. Where nothing costs anything there is no cashier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from auth.values.database import Db
from auth.values.identity_model import Millis

CapPeriod: TypeAlias = Literal["day", "month", "ever"]


# Of a cap: each login by itself, or each tool, as the settings say.
ANY_LOGIN: Final = "*"
ANY_TOOL: Final = "*/*"


class CashierRefusal(Exception):
    """Raised in a job, which is undone with it. The text is for whoever asked."""


class MoneyLine(msgspec.Struct, frozen=True, kw_only=True):
    """What covers calls: a plan, free calls, a trial."""

    name: str
    words: str


class MoneyCap(msgspec.Struct, frozen=True, kw_only=True):
    login: str  # "": all of somebody's together; or `ANY_LOGIN`, `ANY_TOOL`
    period: CapPeriod
    words: str  # `$5.00 a day`
    spent: str
    own: bool  # they set it themselves, and may take it away


class MoneyShift(msgspec.Struct, frozen=True, kw_only=True):
    at: Millis
    words: str
    amount: str  # with its sign
    came_in: bool


class MoneyHeld(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has."""

    balance: str
    held: str  # of it, for calls under way; "": nothing
    covers: tuple[MoneyLine, ...]
    caps: tuple[MoneyCap, ...]
    shifts: tuple[MoneyShift, ...]


class MoneyEarned(msgspec.Struct, frozen=True, kw_only=True):
    """Of one tool."""

    name: str
    today: str
    month: str
    ever: str


class MoneyTaken(msgspec.Struct, frozen=True, kw_only=True):
    """What came in by selling, for whoever owns the server."""

    today: str
    month: str
    tools: tuple[MoneyEarned, ...]
    more: int  # tools that are not among them
    trouble: str  # payments of which it is not known what became; "": none


class Cashier(Protocol):
    """Jobs, but for the last two. A person is named by their id, a login by its own."""

    def look(self, db: Db, person: str, logins: Sequence[str], now: Millis) -> MoneyHeld: ...

    def redeem(self, db: Db, person: str, typed: str, *, seed: bytes, now: Millis) -> str:
        """A voucher; what it was worth. `seed` is from the system's generator. Raises `CashierRefusal`."""
        ...

    def cap(
        self, db: Db, person: str, login: str, typed: str, period: CapPeriod, *, by: str, now: Millis
    ) -> None:
        """What a login may spend, or all of somebody's together. Whose login it is has been looked at. Raises `CashierRefusal`."""
        ...

    def uncap(self, db: Db, person: str, login: str, period: CapPeriod, *, by: str, now: Millis) -> bool:
        """False: there was none."""
        ...

    def asks(self, db: Db, person: str, server: str, scope: str, now: Millis) -> str:
        """What a program that is let in may spend, in one sentence; "" where it could spend nothing."""
        ...

    async def taken(self, now: Millis) -> MoneyTaken: ...
