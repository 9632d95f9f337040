"""The interface through which identity asks the server about money, and the values of the answers.

Pages and terminals show a person's balance and caps, and let the person change their own. Identity does not interpret amounts: the
server hands over finished texts. If nothing costs anything, there is no cashier.
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
    """A refusal that rolls back the job in which it is raised. The message is for the person who asked."""


class MoneyLine(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, trial or allowance of free calls that pays for calls."""

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
    """The money of one person: balance, cover, caps and latest movements."""

    balance: str
    held: str  # of it, for calls under way; "": nothing
    covers: tuple[MoneyLine, ...]
    caps: tuple[MoneyCap, ...]
    shifts: tuple[MoneyShift, ...]


class MoneyEarned(msgspec.Struct, frozen=True, kw_only=True):
    """The earnings of one tool."""

    name: str
    today: str
    month: str
    ever: str


class MoneyTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The income of a server from selling calls, shown to its owner."""

    today: str
    month: str
    tools: tuple[MoneyEarned, ...]
    more: int  # tools that are not among them
    trouble: str  # payments of which it is not known what became; "": none


class Cashier(Protocol):
    """The server's side of money. A person and a login are given by their ids; each method with a `db` runs as a store job."""

    def look(self, db: Db, person: str, logins: Sequence[str], now: Millis) -> MoneyHeld: ...

    def redeem(self, db: Db, person: str, typed: str, *, seed: bytes, now: Millis) -> str:
        """Redeem a voucher, and return its worth. `seed` is from the system's random generator. Raise `CashierRefusal`."""
        ...

    def cap(
        self, db: Db, person: str, login: str, typed: str, period: CapPeriod, *, by: str, now: Millis
    ) -> None:
        """Cap the spending of one login, or of all logins of a person together. Raise `CashierRefusal`.

        The caller has checked whose login it is.
        """
        ...

    def uncap(self, db: Db, person: str, login: str, period: CapPeriod, *, by: str, now: Millis) -> bool:
        """Remove a cap, and return whether there was one."""
        ...

    def asks(self, db: Db, person: str, server: str, scope: str, now: Millis) -> str:
        """Return one sentence on what a program may spend once it is approved; "" if it could not spend anything."""
        ...

    async def taken(self, now: Millis) -> MoneyTaken: ...
