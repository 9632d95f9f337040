"""Where the server's rows are: in a file of the data directory, or in a PostgreSQL database that the settings lead to."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from shlex import quote

from server.endpoint.opening import now_millis
from server.settings.resolve import Resolved
from server.settings.secret import SecretUnreadable, read_secret
from server.settings.shapes import Config
from server.store import meta, moved
from server.store.backup import RestoreRefused, fingerprint_of
from server.store.ballast import Ballast
from server.store.home import DataDirectory
from server.store.jobs import CannotOpen, Store
from server.store.sqlite import open_store
from server.store.threads import StoreLimits, ThreadedStore


def open_place(
    resolved: Resolved, home: DataDirectory, ballast: Ballast
) -> AbstractAsyncContextManager[ThreadedStore]:
    """Raises `CannotOpen`."""
    config = resolved.config
    if not config.store:
        return open_store(home.database, clock=now_millis, backups=home.backups, ballast=ballast)
    from server.store.postgres import open_postgres_store
    from server.store.postgres_address import parameters_of

    try:
        address = read_secret(config.store)
    except SecretUnreadable as error:
        raise CannotOpen(f"the address of the database: {error}") from None
    parameters = parameters_of(address.reveal(), ca_file=config.store_ca)
    limits = StoreLimits(readers=config.store_readers)
    return open_postgres_store(parameters, clock=now_millis, limits=limits)


async def may_serve(config: Config, home: DataDirectory, store: Store) -> None:
    """Whether these are the rows that count. Raises `CannotOpen`."""
    await store.write(moved.begin_serving)
    if not config.store or not home.database.exists():
        return
    if await store.read(lambda db: meta.get(db, meta.KEY_FINGERPRINT)) is not None:
        return
    try:
        fingerprint_of(home.database)
    except RestoreRefused:
        return
    raise StoreBegun(
        f"the database is empty, and what this server has kept until now is in {home.database}",
        hint=f"take it along: ostiary store copy --from data-dir --to {quote(config.store)};"
        " or move the file away, to begin with nothing",
    )


class StoreBegun(CannotOpen):
    """Nobody means to log everybody out by changing a line."""

    lasting = True
