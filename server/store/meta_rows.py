"""The `meta` table: single values about the whole database, set once or rarely. Jobs."""

from __future__ import annotations

from typing import Final

from server.store.jobs import StoreDb

# Carried by every refresh chain; a restored database starts a new one, so that chains of a lost future are recognised.
REFRESH_EPOCH: Final = "refresh_epoch"

# Which key file belongs to this database (`keyfile.py`).
KEY_FINGERPRINT: Final = "key_fingerprint"

# The highest `changes.seq` that was swept away: a process that has not read beyond it must drop all it caches.
CHANGES_DROPPED: Final = "changes_dropped"

# How long the server has run with a clock that is doubted (`clock_doubt.py`).
CLOCK_TRIAL: Final = "clock_trial"

# Where the chain of audit rows begins and ends, sealed (`chains.py`).
AUDIT_CHAIN: Final = "audit_chain"

# The same of the movements of money (`ledger_chain.py`).
LEDGER_CHAIN: Final = "ledger_chain"

# What somebody has acknowledged of their breaks, sealed as well (`acknowledged_breaks.py`).
AUDIT_ACKNOWLEDGED: Final = "audit_acknowledged"
LEDGER_ACKNOWLEDGED: Final = "ledger_acknowledged"
# That the rows that give rights are sealed (`sealed_rows.py`).
SEALS: Final = "seals"


def get(db: StoreDb, key: str) -> str | None:
    row = db.fetch_one("SELECT value FROM meta WHERE key = ?", key)
    return None if row is None else row["value"]


def put(db: StoreDb, key: str, value: str) -> None:
    sql = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    db.execute(sql, key, value)
