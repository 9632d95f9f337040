"""The file of what was signed: how much of it on which day, and what of it has no answer yet. Changed under a lock.

A signed payment counts as spent, whether it was taken or not: whoever has the signature can cash it. A payment without an answer is kept
whole, so that asking again shows the same one, which a chain carries out once, and never another. Until it has ended it is a cheque, and
the file is nobody else's to read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from server.lib.money.amounts import Micros, shown
from server.lib.private_file import IN_CONFIGURATION, MAX_FILE, PrivateFile
from server.payments.buyer.spending_policy import CannotPay, Changing
from server.payments.x402.payment_identifier import with_identifier

FORMAT: Final = 1
DAYS_KEPT: Final = 35
# Calls without an answer, of the last days. More have something wrong with them all.
MAX_UNANSWERED: Final = 500
# A server that keeps answers for those who lost them keeps them for days at most.
ASKED_AGAIN_SECONDS: Final = 7 * 24 * 3600
_DAY: Final = 24 * 3600


class SignedPayment(msgspec.Struct, frozen=True, kw_only=True):
    identifier: str
    purpose: str  # a hash of what is bought
    words: str
    payer: str
    amount: Micros
    signed_at: int  # seconds since 1970
    valid_before: int
    payment: dict[str, Any]
    # What else the same call must be made with again, chosen when it was made first.
    note: str = ""
    # When it was shown last, the server answered that it does not take it, and not that it tried to settle it.
    refused: bool = False
    # How often the call was interrupted, and let go by its server untaken: the next one like it is a new call, with a key of its own.
    interrupted: int = 0

    @property
    def key(self) -> str:
        """The name by which a server knows the call again."""
        return f"{self.identifier}-{self.interrupted}" if self.interrupted else self.identifier

    @property
    def sent(self) -> dict[str, Any]:
        """The payment with the key of its call, where the server takes one in it. The signature stays, so it moves money once."""
        extensions: Any = self.payment.get("extensions")
        if not self.interrupted or not isinstance(extensions, dict):
            return self.payment
        return {
            **self.payment,
            "extensions": with_identifier(cast("dict[str, Any]", extensions), self.key),
        }

    def __repr__(self) -> str:  # a cheque
        return f"<SignedPayment {self.identifier}>"


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    # By payer in small letters, then by day: what was signed.
    spent: dict[str, dict[str, Micros]] = {}
    unanswered: tuple[SignedPayment, ...] = ()

    def find(self, purpose: str) -> SignedPayment | None:
        return next((each for each in self.unanswered if each.purpose == purpose), None)


class SpendingFile:
    """The file in a directory. Raises `CannotPay` where it may not be used as it is. Blocks: call it in a thread."""

    def __init__(self, directory: Path, *, elsewhere: str = IN_CONFIGURATION) -> None:
        self._file = PrivateFile(
            directory, "spending.json", kept="payments", refused=CannotPay, elsewhere=elsewhere
        )
        self.path = self._file.path

    def unanswered(self) -> tuple[SignedPayment, ...]:
        return self._read().unanswered

    def spent(self, payer: str, now: int) -> Micros:
        """Return what was spent on the day of `now`."""
        return self._read().spent.get(payer.lower(), {}).get(_day(now), 0)

    def find(self, purpose: str) -> SignedPayment | None:
        return self._read().find(purpose)

    def add(self, signed: SignedPayment, per_day: Micros, now: int, change: Changing) -> SignedPayment:
        """Count a payment, and keep it until it is answered; durable when it returns. If somebody else has signed for the same purpose
        meanwhile, that is given back, and `signed` is for nobody. Raises `CannotPay` where the day's limit is reached."""
        found: list[SignedPayment] = []

        def count(kept: _Kept) -> _Kept:
            same = kept.find(signed.purpose)
            if same is not None:
                found.append(same)
                return kept
            payer, day = signed.payer.lower(), _day(now)
            days = kept.spent.get(payer, {})
            spent = days.get(day, 0)
            check_day(signed.amount, spent, per_day, change)
            total = spent + signed.amount
            left = tuple(each for each in kept.unanswered if each.valid_before + ASKED_AGAIN_SECONDS > now)
            if len(left) >= MAX_UNANSWERED:
                raise CannotPay(f"{MAX_UNANSWERED} payments have no answer, and no more are signed")
            oldest = _day(now - DAYS_KEPT * _DAY)
            recent = {each: sum_ for each, sum_ in days.items() if each >= oldest}
            return _Kept(
                version=FORMAT,
                spent={**kept.spent, payer: {**recent, day: total}},
                unanswered=(*left, signed),
            )

        self._change(count)
        return found[0] if found else signed

    def refuse(self, signed: SignedPayment, *, interrupted: bool = False) -> None:
        """Note that the server does not take it; `interrupted`: nor will it for the call that it was shown for, which is over."""
        self._mark(signed, refused=True, interrupted=signed.interrupted + interrupted)

    def show_again(self, signed: SignedPayment) -> None:
        """Note that it is about to be taken, for all that anybody knows."""
        self._mark(signed, refused=False)

    def _mark(self, signed: SignedPayment, **changes: Any) -> None:
        """Mark a payment, unless it was shown for a newer call meanwhile: what became of that is another matter."""
        named = (signed.identifier, signed.interrupted)

        def mark(each: SignedPayment) -> SignedPayment:
            same = (each.identifier, each.interrupted) == named
            return replace(each, **changes) if same else each

        self._change(lambda kept: replace(kept, unanswered=tuple(map(mark, kept.unanswered))))

    def close(self, identifier: str) -> None:
        """Forget a payment that has its answer. Its amount stays counted."""

        def drop(kept: _Kept) -> _Kept:
            left = tuple(each for each in kept.unanswered if each.identifier != identifier)
            return replace(kept, unanswered=left)

        self._change(drop)

    def _change(self, change: Callable[[_Kept], _Kept]) -> None:
        self._file.make_directory()
        with self._file.lock().held():
            before = self._read()
            after = change(before)
            if after != before:
                encoded = msgspec.json.encode(after)
                if len(encoded) > MAX_FILE:
                    raise CannotPay(f"{self.path} is full of payments without an answer")
                self._file.replace(encoded)

    def _read(self) -> _Kept:
        data = self._file.load()
        if data is None:
            return _Kept(version=FORMAT)
        try:
            if len(data) > MAX_FILE:
                raise msgspec.ValidationError
            kept = msgspec.json.decode(data, type=_Kept)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise CannotPay(
                f"{self.path} is damaged, so nobody knows what was spent",
                hint="mend it; without it, what was spent today counts as nothing",
            ) from None
        if kept.version > FORMAT:
            raise CannotPay(f"{self.path} was written by a newer ostiary", hint="use that one")
        return kept


def check_day(amount: Micros, spent: Micros, per_day: Micros, change: Changing) -> None:
    """Check a day's limit. Raises `CannotPay` where it is reached."""
    if spent + amount <= per_day:
        return
    raised = change("per-day", shown(spent + amount))
    raise CannotPay(
        f"this costs {shown(amount)}, and of the {shown(per_day)} a day that may be spent {shown(spent)} are",
        # What is more than a whole day's does not become possible by waiting.
        hint=raised if amount > per_day else f"wait until tomorrow (UTC), or {raised}",
    )


def _day(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
