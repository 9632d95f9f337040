"""The movements of money as a chain (`chains.py`). None is ever swept: it begins with the first. Their meaning is in `server/payments/seller/ledger.py`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from server.store import meta_rows
from server.store.chains import ChainedTable, RowChain
from server.store.jobs import Cause

KEY_PURPOSE: Final = "ledger-chain"
# What the audit trail says when somebody had a hand in the ledger.
ALTERED: Final = "ledger.altered"

MOVEMENTS: Final = ChainedTable(
    name="movements",
    called="ledger",
    record=meta_rows.LEDGER_CHAIN,
    acknowledged=meta_rows.LEDGER_ACKNOWLEDGED,
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
