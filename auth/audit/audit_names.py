"""The names by which people know what a row of the audit trail is about: who did it, and which program or key it concerns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from auth.values.database import AuditEntry, Db, Row

USER = "user:"
CLIENT = "client:"
_DEVICE = "device."
_USER_ID = re.compile(r"usr_[a-z0-9]{1,40}")
_TWICE = re.compile(r"^(\S+) \1\b")  # an id that has become the name beside it
# A token that the settings name: with its server, and then its name.
IN_SETTINGS = "token:"


class AuditNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names in one row. Empty: nothing is known, or there is no such thing any more."""

    person: str = ""  # who did it, if that was a person
    program: str = ""  # with the machine it said it is on, or a key by its name
    why: str = ""  # the reason, with the names of people in place of their ids


def names_of(db: Db, entries: Sequence[AuditEntry]) -> list[AuditNames]:
    """Look the names up, as a job that reads, in the order of the entries."""
    book = _Names(db)
    return [book.names(each) for each in entries]


def named(db: Db, who: str) -> str:
    """Name whom `user:…`, `client:…` and `api_key:…` mean; empty where there is none."""
    kind, _, key = who.partition(":")
    if kind == "api_key" and key.startswith(IN_SETTINGS):
        return key.removeprefix(IN_SETTINGS).partition(":")[2]
    table = {"user": "users", "client": "clients", "api_key": "api_keys"}.get(kind)
    row = None if table is None else db.fetch_one(f"SELECT name FROM {table} WHERE id = ?", key)
    return "" if row is None else row["name"]


def entry_of(row: Mapping[str, Any]) -> AuditEntry:
    return AuditEntry(*(row[name] for name in AuditEntry._fields))


class _Names:
    """The names that were looked up, each once."""

    def __init__(self, db: Db) -> None:
        self._db = db
        self._known: dict[tuple[str, str], str] = {}

    def names(self, entry: AuditEntry) -> AuditNames:
        why = _USER_ID.sub(lambda found: self.person(USER + found[0]) or found[0], entry.reason)
        return AuditNames(
            person=self.person(entry.actor), program=self.program(entry), why=_TWICE.sub(r"\1", why)
        )

    def person(self, actor: str) -> str:
        if not actor.startswith(USER):
            return ""
        return self._look("SELECT name FROM users WHERE id = ?", actor.removeprefix(USER))

    def program(self, entry: AuditEntry) -> str:
        request = entry.reason.partition(" ")[0] if entry.event.startswith(_DEVICE) else ""
        for sql, key in (
            ("SELECT client_name AS name, hostname FROM device_codes WHERE id = ?", request),
            ("SELECT client_name AS name, hostname FROM grants WHERE id = ?", entry.grant_id),
            ("SELECT name FROM api_keys WHERE id = ?", entry.grant_id),
            ("SELECT name FROM clients WHERE id = ?", entry.client_id),
        ):
            if key and (name := self._look(sql, key)):
                return name
        return ""

    def _look(self, sql: str, key: str) -> str:
        known = self._known.get((sql, key))
        if known is None:
            row = self._db.fetch_one(sql, key)
            known = self._known[sql, key] = "" if row is None else _said(row)
        return known


def _said(row: Row) -> str:
    host = row["hostname"] if "hostname" in row else ""  # noqa: SIM401
    return f"{row['name']} on {host}" if row["name"] and host else row["name"]
