"""Where the address of a database is kept: what else people write there, and what they mean.

An address has a password in it, and settings are copied around. So nothing is repeated but what has the shape of a path, or the name of a
variable that there is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

_EXAMPLE: Final = '"file:ostiary-database", with postgresql://USER:PASSWORD@HOST/DATABASE in that file'
_POSTGRES: Final = frozenset({"postgres", "postgresql", "pg", "pgsql", "psql", "psycopg"})
_FILE: Final = frozenset({"sqlite", "sqlite3", "data-dir", "local", "none", "default"})
_OTHERS: Final[Mapping[str, str]] = {
    "mysql": "MySQL", "mariadb": "MariaDB", "mongodb": "MongoDB", "redis": "Redis", "mssql": "SQL Server", "oracle": "Oracle",
}  # fmt: skip
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH: Final = re.compile(r"(?:~?/|\.{1,2}/)[^@:?=\s]+")


class StoreFault(msgspec.Struct, frozen=True):
    what: str
    instead: str = ""


def store_fault(written: str, environment: Mapping[str, str]) -> StoreFault | None:
    """None: it is a reference, or nothing is written. Whether it leads anywhere is looked at elsewhere."""
    if not written:
        return None
    source, colon, name = written.partition(":")
    if source in ("env", "file") and colon:
        return _of_reference(source, name)
    word = re.split(r"[:+]", written.lower(), maxsplit=1)[0]
    if word in _OTHERS:
        return StoreFault(f"is for {_OTHERS[word]}: rows are in a file, or in PostgreSQL", _EXAMPLE)
    if word in _FILE and "@" not in written:
        return StoreFault(
            "is for a PostgreSQL database; without it rows are in a file of data_dir: leave it out"
        )
    if "://" in written or written.startswith("jdbc:") or re.search(r"\b(?:host|dbname|password)=", written):
        return _in_clear()
    if word in _POSTGRES:
        return StoreFault("says which kind of database it is, and not where its address is kept", _EXAMPLE)
    if _PATH.fullmatch(written) or _is_file(written):
        return StoreFault("is a path, and lacks the word that says so", f'"file:{written}"')
    if _VARIABLE.fullmatch(written) and written in environment:
        return StoreFault("is a variable's name, and lacks the word that says so", f'"env:{written}"')
    return StoreFault("does not say where the address of a database is kept", f'{_EXAMPLE}; or "env:NAME"')


def _is_file(written: str) -> bool:
    try:
        return Path(written).is_file()
    except (OSError, ValueError):  # too long for a name, or nothing that could be one
        return False


def _of_reference(source: str, name: str) -> StoreFault | None:
    if "://" in name and "@" in name:
        return _in_clear()
    if not name:
        what = "names no environment variable" if source == "env" else "names no file"
        return StoreFault(what, '"env:NAME"' if source == "env" else _EXAMPLE)
    return None


def _in_clear() -> StoreFault:
    return StoreFault(
        "is an address in clear, with its password: settings are copied around",
        '"file:ostiary-database", and the address into that file',
    )
