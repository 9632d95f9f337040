"""What a back-up must not bring back to life: keys that may have been revoked since, and people and programs kept out since.

A copy knows nothing of what was decided after it was made. Keys and agreements it held are therefore over, whatever became of
them; signing and refresh keys too, for one may have been dropped because somebody stole it, and no token outlives a restore. Who was disabled,
locked or removed since is read from the database that is replaced, where it can still be read. Synchronous, beside backup.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from auth.values import sealed_rows
from server.store import meta_rows
from server.store.job_connection import Facade
from server.store.jobs import StoreError
from server.store.row_seals import Seal
from server.store.sqlite_connect import APPLICATION_ID, connect_reader

SHOWN: Final = 20  # names in an audit row

# From the least to the most: what somebody may at most, of the two that were written down.
_USERS: Final = ("unclaimed", "invited", "enabled", "disabled", "locked")
_CLIENTS: Final = ("enabled", "disabled")


class RestoreExclusions(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to the copy."""

    api_keys: int = 0  # revoked
    users: tuple[str, ...] = ()  # names of those who stay out
    clients: tuple[str, ...] = ()  # ids
    compared: bool = False  # False: the replaced database could not be asked

    def __str__(self) -> str:
        """For the audit trail."""
        told = [f"{self.api_keys} API keys revoked"] if self.api_keys else []
        for what, names in (("users", self.users), ("clients", self.clients)):
            if names:
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                told.append(f"{what} kept out: {' '.join(names[:SHOWN])}{more}")
        return "; ".join(told)


class EntryRights(msgspec.Struct, frozen=True, kw_only=True):
    """Who may come in, by id, as one database has it."""

    users: Mapping[str, str]
    clients: Mapping[str, str]


def standing_in(database: Path, fingerprint: str) -> EntryRights | None:
    """None: there is no database of this key file there that can be read."""
    if not database.is_file():
        return None
    try:
        with closing(connect_reader(database)) as connection:
            if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                return None
            sql = "SELECT value FROM meta WHERE key = ?"
            if connection.execute(sql, (meta_rows.KEY_FINGERPRINT,)).fetchone() != (fingerprint,):
                return None
            return EntryRights(
                users=dict(connection.execute("SELECT id, state FROM users")),
                clients=dict(connection.execute("SELECT id, state FROM clients")),
            )
    except (sqlite3.Error, StoreError):
        return None


def keep_out(
    connection: sqlite3.Connection, now_standing: EntryRights | None, *, seal: Seal, now: int
) -> RestoreExclusions:
    """Change the copy, which `connection` may write; the caller commits."""
    is_sealed = any(row[1] == "seal" for row in connection.execute("PRAGMA table_info(users)"))
    # A copy of an older schema is sealed when somebody has looked at it.
    seals = Facade(connection, at=now, writable=True, seal=seal) if is_sealed else None
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    revoked = 0
    if "api_keys" in tables:  # the copy may be of an older schema
        wiped = f", {sealed_rows.WIPED}" if seals is not None else ""
        sql = f"UPDATE api_keys SET revoked_at = ?{wiped} WHERE revoked_at IS NULL"
        revoked = connection.execute(sql, (now,)).rowcount
    # The next start makes new ones. Those of the copy are destroyed rather than deleted: receipts are checked with what is left of signing
    # keys, and no version of refresh keys is to name two.
    connection.execute(
        "UPDATE signing_keys SET sealed_private = '', retires_at = ? WHERE sealed_private <> ''", (now,)
    )
    if "refresh_keys" in tables:
        connection.execute(
            "UPDATE refresh_keys SET sealed_secret = '', accepted_until = ?"
            " WHERE accepted_until IS NULL OR sealed_secret <> ''",
            (now,),
        )
    # Logins at upstreams that may have been ended since, and definitions that may have been forgotten.
    for table in ("upstream_tokens", "upstream_trips", "upstream_pins"):
        if table in tables:
            connection.execute(f"DELETE FROM {table}")
    if "upstream_pins" in tables:
        # Each was met with all that it has (pin_rows.py): nothing of it is believed for being first.
        connection.execute(
            "INSERT INTO upstream_pins (server, agent, kind, name, digest, definition, accepted_at, accepted_by)"
            " SELECT server, agent, 'kinds', '2', '', '', ?, 'settings' FROM upstreams",
            (now,),
        )
    if now_standing is None:
        return RestoreExclusions(api_keys=revoked)
    return RestoreExclusions(
        api_keys=revoked,
        users=_users(connection, seals, now_standing.users, forgets_passkeys="passkeys" in tables),
        clients=_clients(connection, seals, now_standing.clients),
        compared=True,
    )


def _users(
    connection: sqlite3.Connection, seals: Facade | None, states: Mapping[str, str], *, forgets_passkeys: bool
) -> tuple[str, ...]:
    found: list[str] = []
    for user_id, name, state in connection.execute(
        "SELECT id, name, state FROM users ORDER BY name"
    ).fetchall():
        after = _stricter(_USERS, state, states.get(user_id, "disabled"))
        if after is None:
            continue
        forgotten = {"passphrase_hash": None} if after == "locked" else {}
        _put(connection, seals, sealed_rows.USERS, user_id, {"state": after, **forgotten})
        if after == "locked" and forgets_passkeys:
            connection.execute("DELETE FROM passkeys WHERE user_id = ?", (user_id,))
        found.append(name)
    return tuple(found)


def _clients(
    connection: sqlite3.Connection, seals: Facade | None, states: Mapping[str, str]
) -> tuple[str, ...]:
    found: list[str] = []
    for client_id, kind, state in connection.execute(
        "SELECT id, kind, state FROM clients ORDER BY id"
    ).fetchall():
        # Those that came by themselves are swept by themselves: that says nothing against them.
        gone = "disabled" if kind == "registered" else state
        after = _stricter(_CLIENTS, state, states.get(client_id, gone))
        if after is not None:
            _put(connection, seals, sealed_rows.CLIENTS, client_id, {"state": after})
            found.append(client_id)
    return tuple(found)


def _put(
    connection: sqlite3.Connection,
    seals: Facade | None,
    table: sealed_rows.SealedTable,
    key: str,
    values: Mapping[str, str | None],
) -> None:
    """What is not as it was sealed stays so, and lets nobody in."""
    if seals is not None and sealed_rows.update(seals, table, key, values):
        return
    settings = ", ".join(f"{name} = ?" for name in values)
    connection.execute(f"UPDATE {table.name} SET {settings} WHERE {table.where}", (*values.values(), key))


def _stricter(order: tuple[str, ...], was: str, became: str) -> str | None:
    """What became of it since, if that keeps it out and the copy does not."""
    out = order.index("disabled")
    if became not in order or order.index(became) < out:
        return None
    return became if was not in order or order.index(was) < order.index(became) else None
