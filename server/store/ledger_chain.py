"""The movements of money as a chain (`chains.py`). None is ever swept: it begins with the first. What they mean is `server/till/ledger.py`'s."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from server.store import meta
from server.store.chains import ChainedTable, RowChain
from server.store.jobs import Cause, StoreDb

KEY_PURPOSE: Final = "ledger-chain"
# What the audit trail says when the ledger was begun, and when somebody had a hand in it.
BEGUN: Final = "ledger.begun"
ALTERED: Final = "ledger.altered"

MOVEMENTS: Final = ChainedTable(
    name="movements",
    called="ledger",
    record=meta.LEDGER_CHAIN,
    columns=(
        "at", "kind", "source", "target", "amount", "currency", "principal", "client_id", "grant_id", "server", "tool",
        "call_id", "charge_id", "payment_id", "price", "refers", "note",
    ),
    numbers=frozenset({"at", "amount", "refers"}),
    optional=frozenset({
        "client_id", "grant_id", "server", "tool", "call_id", "charge_id", "payment_id", "price", "refers",
    }),
)  # fmt: skip

# As the unique indexes have it.
ONCE: Final[Mapping[Cause | None, str]] = MappingProxyType({
    None: "",
    "charge_id": " ON CONFLICT (charge_id, kind) WHERE charge_id IS NOT NULL AND refers IS NULL DO NOTHING",
    "payment_id": " ON CONFLICT (payment_id, kind) WHERE payment_id IS NOT NULL AND refers IS NULL DO NOTHING",
})  # fmt: skip


class LedgerChain(RowChain):
    __slots__ = ()

    table = MOVEMENTS

    def was_begun(self, db: StoreDb) -> bool:
        """The table is younger than many a database: so the trail says when it was begun."""
        return super().was_begun(db) or any(
            db.fetch_one(sql, *values) is not None
            for sql, values in (
                ("SELECT id FROM wallets LIMIT 1", ()),
                ("SELECT id FROM accounts LIMIT 1", ()),
                ("SELECT seq FROM audit WHERE event = ? LIMIT 1", (BEGUN,)),
            )
        )
