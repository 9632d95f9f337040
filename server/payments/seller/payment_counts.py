"""What the till counts for whoever watches: payments by what became of them, calls by how they were paid, trouble with facilitators.

Of this process, since its start. What is owed and earned is in the books; these are for graphs and alarms.
"""

from __future__ import annotations

from typing import Final

from server.payments.seller.revenue import Unsettled

OUTCOMES: Final = ("settled", "refused", "unknown")
WAYS: Final = ("balance", "payment", "trial", "quota", "pass")


class TillCounts:
    __slots__ = ("charges", "facilitator_trouble", "payments", "waiting")

    def __init__(self) -> None:
        # A name that was never counted is there as well, or an alarm on it would have nothing to look at.
        self.payments: dict[str, float] = dict.fromkeys(OUTCOMES, 0)
        self.charges: dict[str, float] = dict.fromkeys(WAYS, 0)
        self.facilitator_trouble = 0
        self.waiting = Unsettled(count=0, unknown=0, oldest_at=None)  # as last counted

    def payment(self, outcome: str) -> None:
        """Of one payment `unknown` comes once for each look that found nothing out."""
        self.payments[outcome] = self.payments.get(outcome, 0) + 1

    def charge(self, way: str) -> None:
        self.charges[way] = self.charges.get(way, 0) + 1

    def trouble(self) -> None:
        self.facilitator_trouble += 1
