"""Answers that were fully given: noted with the next write that comes by, or after a second.

Until it is noted, a repeat of the call is given the same answer. So it is noted before the next claim looks, in its transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from server.payments.seller import charge_rows
from server.store.jobs import StoreDb


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    charge_id: str
    keyed: bool
    keeps_ms: int
    interrupted: bool = False  # that it was, is what its caller was told


def apply_marks(db: StoreDb, marks: Sequence[Mark], *, now: int) -> None:
    """Charges that are not kept for a repeat are over with it: what they were is in the books."""
    for mark in marks:
        if mark.interrupted:
            charge_rows.resume(db, mark.charge_id)
        elif mark.keyed:
            db.execute(
                "UPDATE charges SET answered_at = ? WHERE id = ? AND state = 'done'", now, mark.charge_id
            )
        elif mark.keeps_ms:
            db.execute(
                "UPDATE charges SET answered_at = ?, expires_at = ? WHERE id = ? AND state = 'done' AND answered_at IS NULL",
                now,
                now + mark.keeps_ms,
                mark.charge_id,
            )
        else:
            db.execute("DELETE FROM charges WHERE id = ? AND state = 'done'", mark.charge_id)
