"""Sweeping clients whose id is the address of a document: anybody can make such rows, so only so many are kept.

The longest unseen go first. A client stays while a login refers to it, one that is under way, or what a person said yes to. So
does one that was disabled: were it forgotten, it could come back enabled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from server.store.jobs import StoreDb

KEPT: Final = 1_000
# As many as are deleted in one write.
PIECE: Final = 100

_REFERRING: Final = ("grants", "device_codes", "authorization_codes", "pushed_requests", "consents")
_FREE: Final = " AND ".join(
    f"NOT EXISTS (SELECT 1 FROM {table} WHERE {table}.client_id = {{id}})" for table in _REFERRING
)


def find(db: StoreDb, *, kept: int = KEPT) -> list[str]:
    """Ids of documents beyond the newest `kept` that no login needs, and of clients whose document is gone already."""
    edge = db.fetch_one(
        "SELECT fetched_at FROM client_documents ORDER BY fetched_at DESC, url LIMIT 1 OFFSET ?", kept
    )
    beyond = [] if edge is None else _beyond(db, edge["fetched_at"])
    left = db.fetch_all(
        "SELECT id FROM clients WHERE kind = 'document' AND state = 'enabled'"
        " AND NOT EXISTS (SELECT 1 FROM client_documents WHERE client_documents.url = clients.id)"
        f" AND {_FREE.format(id='clients.id')} LIMIT ?",
        PIECE,
    )
    return (beyond + [row["id"] for row in left])[:PIECE]


def _beyond(db: StoreDb, edge: int) -> list[str]:
    rows = db.fetch_all(
        "SELECT url FROM client_documents WHERE fetched_at <= ?"
        f" AND {_FREE.format(id='client_documents.url')} ORDER BY fetched_at, url LIMIT ?",
        edge,
        PIECE,
    )
    return [row["url"] for row in rows]


def delete(db: StoreDb, *, ids: Sequence[str], before: int) -> int:
    """How many of them are gone. One that was asked for again since `before`, or logged in, stays."""
    gone = 0
    for client_id in ids:
        document = db.execute(
            f"DELETE FROM client_documents WHERE url = ? AND fetched_at <= ? AND {_FREE.format(id='url')}",
            client_id,
            before,
        )
        client = db.execute(
            "DELETE FROM clients WHERE id = ? AND kind = 'document' AND state = 'enabled'"
            " AND NOT EXISTS (SELECT 1 FROM client_documents WHERE client_documents.url = clients.id)"
            f" AND {_FREE.format(id='clients.id')}",
            client_id,
        )
        gone += bool(document or client)
    return gone
