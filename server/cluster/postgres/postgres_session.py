"""What a connection to PostgreSQL is set to before anything is done with it, and which databases are not good for it. Nothing of it fails in silence."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import psycopg

from server.cluster.postgres.postgres_wire import Timeline
from server.store.jobs import CannotOpen

# RETURNING, ON CONFLICT and identity columns are older; `client_connection_check_interval` is not.
MINIMUM_SERVER: Final = 140_000

NOT_DURABLE: Final = "the database server runs with fsync = off: what was answered is lost, or damaged, with its next power cut"

# The server's end would hold locks of a client that is gone. Not every system and every kind of connection has these.
_WELCOME: Final[Mapping[str, str]] = MappingProxyType(
    {
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": "20000",
        "client_connection_check_interval": "5000",
    }
)
# What was acknowledged must survive a power cut of the database server; stricter settings are left as they are.
_DURABLE: Final = (
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit')"
    " WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)"
)
_WHERE: Final = "pg_backend_pid() AS pid, current_schema()::text AS place, current_setting('fsync') AS fsync"


# The number is in the first letters of the name of what is being written.
_TIMELINE: Final = b"""
SELECT system_identifier AS system, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint AS number
  FROM pg_control_system()
"""


# There is no such function, nobody may ask, or not here.
_NOT_TOLD: Final = frozenset({"42883", "42501", "0A000", "55000"})


def timeline_of(connection: psycopg.Connection[Any]) -> Timeline | None:
    """None where it is not told, as by some who run databases for others."""
    try:
        row = connection.execute(_TIMELINE, binary=True).fetchone()
    except psycopg.errors.DatabaseError as refused:
        if refused.sqlstate in _NOT_TOLD:
            return None
        raise
    return None if row is None else Timeline(*row)


def set_up(connection: psycopg.Connection[Any], settings: Mapping[str, str]) -> bool:
    """Whether what is committed is on the disk then. Raises `CannotOpen`; psycopg's error for a setting that is not taken."""
    if connection.info.server_version < MINIMUM_SERVER:
        raise CannotOpen(
            f"the database server is too old (version {connection.info.server_version // 10_000})",
            hint=f"use PostgreSQL {MINIMUM_SERVER // 10_000} or newer",
        )
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise CannotOpen(
            "the database is not in UTF-8",
            hint="make another one: CREATE DATABASE … OWNER … ENCODING 'UTF8' TEMPLATE template0",
        )
    row = connection.execute(
        f"SELECT {_WHERE}, {_DURABLE}, {_asked(settings)}".encode(), binary=True
    ).fetchone()
    assert row is not None
    pid, place, fsync, *_ = row
    if pid != connection.pgconn.backend_pid:
        raise CannotOpen(
            "something between here and the database shares its connections out among clients",
            hint="name the database server itself, not a pooler: a connection must stay the same one",
        )
    if place is None:
        raise CannotOpen(
            "the database has no schema of the name that the address gives, or does not let this user into it",
            hint="make it: CREATE SCHEMA NAME AUTHORIZATION USER",
        )
    try:
        connection.execute(f"SELECT {_asked(_WELCOME)}".encode(), binary=True)
    except psycopg.errors.DatabaseError as refused:
        if refused.sqlstate is None:  # there is nobody any more
            raise
        for name, value in _WELCOME.items():
            _set_if_taken(connection, name, value)
    return fsync == "on"


def _set_if_taken(connection: psycopg.Connection[Any], name: str, value: str) -> None:
    try:
        connection.execute(f"SELECT {_asked({name: value})}".encode(), binary=True)
    except psycopg.errors.DatabaseError as refused:
        if refused.sqlstate is None:
            raise


def _asked(settings: Mapping[str, str]) -> str:
    return ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
