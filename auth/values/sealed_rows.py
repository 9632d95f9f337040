"""Rows that let somebody in, or say what they may: each carries a MAC under the key file, which is checked wherever the row counts.

A row that is put in or altered by somebody without the key file lets nobody in, for they cannot make its MAC. A row that is over (a key
that was revoked, a code that was used) counts no more whatever it says, so it is not looked at, and whoever ends it wipes its MAC: to come
back to life it would need one. Not here: where the MAC is made (`Db.seal`), who is told (`Db.altered`), and the rows that are counted
or timed only (attempts, meters, audit).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from auth.values.database import Db, Row

_ENCODER: Final = msgspec.json.Encoder()
_PLAIN: Final = (str, int, type(None))
# The MAC of a row that is over.
WIPED: Final = "seal = ''"


def _always(row: Row) -> bool:
    del row
    return True


class SealedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose rows are sealed: besides these columns it has `seal`."""

    name: str
    columns: tuple[str, ...]  # what is sealed
    # What `checked` reads an altered row as, so that it lets nobody in.
    barred: Mapping[str, object] = MappingProxyType({})
    counts: Callable[[Row], bool] = _always  # False: it is over, and opens nothing
    named_by: int = 1  # so many of its columns, the first ones, name a row

    @property
    def keys(self) -> tuple[str, ...]:
        return self.columns[: self.named_by]

    @property
    def where(self) -> str:
        return " AND ".join(f"{name} = ?" for name in self.keys)

    def of(self, alias: str, prefix: str) -> str:
        """Return the columns as a SELECT that joins the table names them: each as prefix and name."""
        return ", ".join(f"{alias}.{column} AS {prefix}{column}" for column in (*self.columns, "seal"))


USERS: Final = SealedTable(
    name="users",
    columns=(
        "id", "name", "role", "state", "passphrase_hash", "scope", "tools", "created_at", "expires_at",
    ),
    barred=MappingProxyType(
        {"role": "user", "state": "altered", "passphrase_hash": None, "scope": "", "tools": ""}
    ),
)  # fmt: skip
API_KEYS: Final = SealedTable(
    name="api_keys",
    columns=("id", "name", "user_id", "key_hash", "server", "scope", "tools", "created_at", "expires_at"),
    barred=MappingProxyType({"revoked_at": 0, "scope": "", "tools": ""}),
    counts=lambda row: row["revoked_at"] is None,
)
SESSIONS: Final = SealedTable(
    name="browser_sessions",
    columns=("id_hash", "user_id", "created_at", "auth_time", "expires_at"),
)
LINKS: Final = SealedTable(
    name="one_time_links",
    columns=("token_hash", "kind", "user_id", "created_at", "expires_at"),
    counts=lambda row: row["used_at"] is None,
)
PASSKEYS: Final = SealedTable(
    name="passkeys",
    columns=("credential_id", "user_id", "rp_id", "public_key"),
)
CLIENTS: Final = SealedTable(
    name="clients",
    columns=(
        "id", "kind", "name", "secret_hash", "auth_method", "grant_types", "redirect_uris", "scope", "state", "jwks",
        "jwks_uri", "server", "introspects", "registration_hash",
    ),
    barred=MappingProxyType({"state": "altered"}),
)  # fmt: skip
# Where its refresh chain stands is not sealed: it moves with every refresh, and no token fits another place than its own.
GRANTS: Final = SealedTable(
    name="grants",
    columns=(
        "id", "principal_kind", "subject", "client_id", "server", "origin", "scope", "how", "approved_by", "epoch", "jkt",
        "created_at", "expires_at",
    ),
    barred=MappingProxyType({"revoked_at": 0}),
    counts=lambda row: row["revoked_at"] is None,
)  # fmt: skip
CODES: Final = SealedTable(
    name="authorization_codes",
    columns=(
        "id", "code_hash", "client_id", "subject", "server", "origin", "redirect_uri", "challenge", "dpop_jkt", "scope",
        "auth_time", "expires_at",
    ),
    counts=lambda row: row["state"] != "used",
)  # fmt: skip
DEVICE_CODES: Final = SealedTable(
    name="device_codes",
    columns=(
        "id", "device_code_hash", "user_code_mac", "client_id", "client_name", "hostname", "server", "origin", "scope",
        "subject", "granted_scope", "decided_by", "decided_at", "expires_at",
    ),
    counts=lambda row: row["state"] not in ("used", "denied"),
)  # fmt: skip
CONSENTS: Final = SealedTable(
    name="consents",
    columns=(
        "user_id",
        "client_id",
        "redirect_host",
        "server",
        "scope",
        "client_hash",
        "created_at",
        "expires_at",
    ),
    named_by=4,
)
# Also of one that signs no more: what it has signed is still checked with it.
SIGNING_KEYS: Final = SealedTable(
    name="signing_keys", columns=("kid", "algorithm", "public_jwk", "created_at", "signs_from")
)
TABLES: Final = (
    USERS, API_KEYS, SESSIONS, LINKS, PASSKEYS, CLIENTS, GRANTS, CODES, DEVICE_CODES, CONSENTS, SIGNING_KEYS,
)  # fmt: skip


def insert(db: Db, table: SealedTable, row: Mapping[str, object], *, conflict: str = "") -> int:
    """Add a row with its seal, and return how many were added. `row` names all columns that are sealed. `conflict`: what is said after it."""
    names, marks = ", ".join(row), ", ".join("?" * (len(row) + 1))
    sql = f"INSERT INTO {table.name} ({names}, seal) VALUES ({marks}){conflict}"
    return db.execute(sql, *row.values(), _seal(db, table, row))


def update(
    db: Db,
    table: SealedTable,
    key: str,
    values: Mapping[str, object],
    *,
    when: Mapping[str, object] = MappingProxyType({}),
    row: Row | None = None,
) -> bool:
    """Change a row, and seal it as it is then. False: there is none, it is not `when` (these values), or not as it was sealed: nothing of
    it is sealed anew then. `row`: it was read already."""
    row = row or db.fetch_one(f"SELECT * FROM {table.name} WHERE {table.where}", key)
    if row is None or any(row[name] != value for name, value in when.items()) or not fits(db, table, row):
        return False
    settings = ", ".join(f"{name} = ?" for name in values)
    sql = f"UPDATE {table.name} SET {settings}, seal = ? WHERE {table.where} AND seal = ?"
    return db.execute(sql, *values.values(), _seal(db, table, {**row, **values}), key, row["seal"]) == 1


def checked(db: Db, table: SealedTable, row: Row, prefix: str = "") -> Row:
    """Return the row as it may be believed: one that counts and is not as it was sealed is read as barred. `prefix`: of its columns in a
    row that was joined of several (`SealedTable.of`)."""
    nothing_joined = prefix and row[prefix + table.columns[0]] is None
    if nothing_joined or fits(db, table, row, prefix):
        return row
    return {**row, **{prefix + name: value for name, value in table.barred.items()}}


def fits(db: Db, table: SealedTable, row: Row, prefix: str = "") -> bool:
    """Return whether a row matches its seal or does not count; otherwise report it as altered."""
    if not prefix and not table.counts(row):
        return True
    values = [row[prefix + name] for name in table.columns]
    seal = row[prefix + "seal"]
    # Another kind of value than was ever written there could read like one that was.
    plain = isinstance(seal, str) and all([isinstance(value, _PLAIN) for value in values])  # noqa: C419  no frame for each
    if plain and hmac.compare_digest(_mac(db, table, values).encode(), seal.encode()):
        return True
    db.altered(table.name, " ".join(str(row[prefix + name]) for name in table.keys))
    return False


def reseal(db: Db, table: SealedTable, row: Row) -> None:
    """Seal what the row says now, whoever wrote it. At the machine, after somebody has looked."""
    sql = f"UPDATE {table.name} SET seal = ? WHERE {table.where}"
    db.execute(sql, _seal(db, table, row), *(row[name] for name in table.keys))


def said(table: SealedTable, row: Mapping[str, object]) -> bytes:
    """Return what a row says that is sealed, whatever kinds of values somebody has put there."""
    return _ENCODER.encode((table.name, [row[name] for name in table.columns]))


def _mac(db: Db, table: SealedTable, values: list[Any]) -> str:
    return db.seal(_ENCODER.encode((table.name, values)))


def _seal(db: Db, table: SealedTable, row: Mapping[str, Any]) -> str:
    """Return what the row is to be sealed with."""
    values = [row[name] for name in table.columns]
    if not all(isinstance(value, _PLAIN) for value in values):
        raise TypeError(f"a row of {table.name} is of texts and whole numbers")
    return _mac(db, table, values)
