"""Where the server's rows are: in a file of the data directory, or in a PostgreSQL database that the settings lead to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
import trio

from server.calls.servers.server_opening import now_millis
from server.settings.resolved_settings import Resolved
from server.settings.secret_reference import SecretUnreadable, read_secret
from server.settings.setting_shapes import Config
from server.store import meta_rows, move_marks
from server.store.backup import RestoreRefused, fingerprint_of
from server.store.data_directory import DataDirectory
from server.store.jobs import CannotOpen, Store, StoreError
from server.store.reserve_file import ReserveFile
from server.store.sqlite import open_store
from server.store.threaded_store import StoreLimits, ThreadedStore


def open_place(
    resolved: Resolved, home: DataDirectory, ballast: ReserveFile
) -> AbstractAsyncContextManager[ThreadedStore]:
    """Raises `CannotOpen`."""
    config = resolved.config
    if not config.store:
        _refuse_to_forget(home)
        return open_store(home.database, clock=now_millis, backups=home.backups, ballast=ballast)
    from server.cluster.postgres.postgres import open_postgres_store

    parameters = way_to_database(config)
    limits = StoreLimits(readers=config.store_readers)
    return open_postgres_store(parameters, clock=now_millis, limits=limits)


def way_to_database(config: Config) -> Mapping[str, str]:
    """What libpq is told. Raises `CannotOpen`, which shows nothing of the address."""
    from server.cluster.postgres.postgres_address import parameters_of

    try:
        address = read_secret(config.store)
    except SecretUnreadable as error:
        raise CannotOpen(f"the address of the database: {error}") from None
    return parameters_of(address.reveal(), ca_file=config.store_ca)


async def database_told(config: Config) -> Mapping[str, Any]:
    """What it is like, for whoever is at the machine: `seen`, or why it cannot be looked at."""
    from server.cluster.postgres.postgres_look import look

    try:
        parameters = way_to_database(config)
        found = await trio.to_thread.run_sync(look, parameters, abandon_on_cancel=True)
    except StoreError as refused:
        return {"problem": str(refused), "hint": refused.hint}
    return {"seen": msgspec.to_builtins(found)}


async def may_serve(config: Config, home: DataDirectory, store: Store) -> None:
    """Whether these are the rows that count. Raises `CannotOpen`."""
    await store.write(move_marks.begin_serving)
    if not config.store:
        return
    if (
        home.database.exists()
        and await store.read(lambda db: meta_rows.get(db, meta_rows.KEY_FINGERPRINT)) is None
    ):
        refuse_to_begin_anew(config, home.database)
    with suppress(OSError):  # it only helps who forgets to say so
        home.elsewhere.write_text(f"{config.store}\n", "utf-8")


def _refuse_to_forget(home: DataDirectory) -> None:
    """Where there is no file, and a database had the rows until now. Raises `StoreBegun`."""
    if home.database.exists():
        return
    try:
        reference = home.elsewhere.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return
    raise StoreBegun(
        "what this server has kept until now is in PostgreSQL, and no `store` says so",
        hint=f"ostiary serve --store {quote(reference)}, or with store = {json.dumps(reference)} in the settings; to have it in a file"
        f" again: ostiary store copy --from {quote(reference)} --to data-dir; to begin with nothing, remove {home.elsewhere}",
    )


def refuse_to_begin_anew(config: Config, file: Path) -> None:
    """Where the database is empty. Raises `StoreBegun` if there are rows in the file of the data directory."""
    try:
        fingerprint_of(file)
    except RestoreRefused:
        return
    raise StoreBegun(
        f"the database is empty, and what this server has kept until now is in {file}",
        hint=f"take it along: ostiary store copy --from data-dir --to {quote(config.store)};"
        " or move the file away, to begin with nothing",
    )


class StoreBegun(CannotOpen):
    """Nobody means to log everybody out by changing a line."""

    lasting = True
