from __future__ import annotations
from server.till.plans import Cover
def spend(db, offer, *, wallet, grant_id, amount, now) -> Cover:
    return Cover()
