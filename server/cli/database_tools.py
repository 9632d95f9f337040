"""Tools of commands about a database: its address and key, and the programs of PostgreSQL that copy one and put a copy back, told where,
and never the password."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING, Final

from server.cli import terminal

if TYPE_CHECKING:
    from server.cluster.moving.opened_stores import StorePlace
    from server.settings.setting_shapes import Config
    from server.store.data_directory import DataDirectory
    from server.store.keyfile import MasterKey

# Asked for by the program itself, or kept in ~/.pgpass.
_SECRETS: Final = frozenset({"password", "sslpassword", "passfile"})
_SCHEMA: Final = re.compile(r"-c\s*search_path=(\w+)")
KEPT_APART: Final = "it asks for the password, unless ~/.pgpass has it"


def key_of(config: Config, home: DataDirectory, fingerprint: str | None) -> MasterKey:
    """Read the key of a database, which remembers its fingerprint. Raise `KeyRefused`."""
    import secrets

    from server.store.keyfile import open_key

    return open_key(
        config.key_file or home.key_file,
        known_fingerprint=fingerprint,
        random_bytes=secrets.token_bytes,
        environment=os.environ,
    )


def place(where: str, config: Config) -> StorePlace:
    """Return the database at `where` (env:NAME or file:/path). Raises `CliError`, which shows nothing of its address."""
    if not where.startswith(("env:", "file:")):
        raise terminal.Misuse(
            "where a database is, is written as env:NAME or file:/path, never as its address",
            hint="there is a password in an address: keep it in a file that nobody else reads",
        )
    from server.cluster.moving.opened_stores import StorePlace
    from server.cluster.postgres.postgres_address import parameters_of
    from server.settings.secret_reference import SecretUnreadable, read_secret
    from server.store.jobs import CannotOpen

    try:
        return StorePlace(
            called=where, parameters=parameters_of(read_secret(where).reveal(), ca_file=config.store_ca)
        )
    except SecretUnreadable as error:
        raise terminal.CliError(f"the address of the database: {error}") from None
    except CannotOpen as error:
        raise terminal.CliError(f"{where}: {error}", hint=error.hint) from None


def dump(parameters: Mapping[str, str], file: str) -> str:
    """Copy it, also while the database is served: a dump is what was there at one moment."""
    return _command("pg_dump --format=custom", parameters, f"--file={quote(file)}")


def put_back(parameters: Mapping[str, str], file: str) -> str:
    """Put all of it in place of what is there, or nothing."""
    return _command(
        "pg_restore --clean --if-exists --single-transaction --exit-on-error", parameters, quote(file)
    )


def _command(program: str, parameters: Mapping[str, str], rest: str) -> str:
    from psycopg.conninfo import make_conninfo

    shown = {name: value for name, value in parameters.items() if name not in _SECRETS | {"options"}}
    schema = _SCHEMA.search(parameters.get("options", ""))
    only = f" --schema={quote(schema[1])}" if schema else ""
    return f"{program} --no-owner --no-privileges{only} --dbname={quote(make_conninfo('', **shown))} {rest}"
