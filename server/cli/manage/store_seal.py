"""`ostiary store seal`: what a database says of rights, looked at by somebody at the machine with the key, and sealed."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from server.cli import database_tools, local, terminal

if TYPE_CHECKING:
    from auth.values.database import Row
    from server.cluster.moving.copy_ends import CopyEnd
    from server.store.jobs import StoreDb
    from server.store.sealed_rows import SealPiece, SealPlace

T = TypeVar("T")
# Rows of these are named, each with what it gives; of others how many there are.
NAMED: Final = {
    "users": ("name", "role", "state", "scope"),
    "api_keys": ("name", "user_id", "scope"),
    "clients": ("id", "name", "kind", "scope"),
}
SHOWN: Final = 200


class UnsealedRows(NamedTuple):
    counts: Counter[str]  # of which table
    named: list[Mapping[str, Any]]  # those that have a name
    digest: str  # of all of them, with all that they say


@click.command("seal")
@click.option(
    "--yes",
    "digest",
    metavar="DIGEST",
    help="seal what was shown with this digest; without it nothing is changed",
)
@local.which_server
@terminal.json_option
def command(digest: str | None, as_json: bool) -> None:
    """Show the accounts, keys, programs and logins of a stopped server that are not sealed under its key, and a digest of them; with --yes
    and that digest, seal them as they are, if they are still what was shown.

    Needed once after an update from a version that sealed nothing, with every node stopped. Afterwards only for what `ostiary verify` names,
    if it is right all the same: whatever is sealed here lets somebody in.
    """
    from auth.audit import audit_trail
    from server.calls.servers.server_opening import subkeys
    from server.cluster.moving.opened_stores import DATA_DIR, StorePlace, open_source
    from server.settings.resolved_settings import data_directory
    from server.store import meta_rows
    from server.store.data_directory import open_home
    from server.store.jobs import StoreError
    from server.store.migrate import packaged_migrations

    settings = local.settings().config
    place = data_directory(settings)
    if not place.exists():
        raise terminal.CliError(f"there is no data directory {place}", hint="--data-dir says which is meant")
    now = time.time_ns() // 1_000_000
    where = database_tools.place(settings.store, settings) if settings.store else StorePlace(called=DATA_DIR)
    try:
        with (
            open_home(place) as home,
            closing(open_source(home, where, packaged_migrations(), now)) as store,
        ):
            fingerprint = store.reading(partial(meta_rows.get, key=meta_rows.KEY_FINGERPRINT))
            if fingerprint is None:
                raise terminal.CliError(f"no server has run on {store.called} yet: there is nothing to seal")
            key = database_tools.key_of(settings, home, fingerprint)
            store.transactions.chain_audit(subkeys(key)(audit_trail.KEY_PURPOSE), ())
            if digest is None:
                rows = store.reading(_look)
            else:
                rows = _written(store, partial(_seal, digest=digest, now=now), now)
    except StoreError as error:
        raise terminal.CliError(str(error), hint=error.hint) from error
    if as_json:
        sealed = digest is not None
        terminal.out_json(
            {"sealed": sealed, "digest": rows.digest, "tables": dict(rows.counts), "rows": rows.named}
        )
        return
    _tell(rows, is_done=digest is not None)


def _look(db: StoreDb) -> UnsealedRows:
    from server.store import sealed_rows

    return _gone_through(db, sealed_rows.piece)


def _seal(db: StoreDb, *, digest: str, now: int) -> UnsealedRows:
    """Seal all of them in one transaction, of which nothing counts if they are not those that were shown."""
    from auth.audit import audit_trail
    from server.store import sealed_rows

    rows = _gone_through(db, sealed_rows.seal_piece)
    if rows.digest != digest:
        raise terminal.CliError(
            "nothing was sealed: what is not sealed in the database is not what was shown with that digest",
            hint="look at it again: ostiary store seal",
        )
    sealed_rows.begin(db)
    by, reason = f"local:{os.getuid()}", f"{rows.counts.total()} rows as they were"
    audit_trail.record(db, at=now, event="store.sealed", actor=by, reason=reason)
    return rows


def _gone_through(db: StoreDb, step: Callable[[StoreDb, SealPlace], SealPiece]) -> UnsealedRows:
    from server.store.sealed_rows import SealPlace, UnsealedSum

    counts, named, total = Counter[str](), list[Mapping[str, Any]](), UnsealedSum()
    at: SealPlace | None = SealPlace()
    while at is not None:
        piece = step(db, at)
        if piece.unsealed:
            table = piece.table.name
            counts[table] += len(piece.unsealed)
            named += [_named(table, row) for row in piece.unsealed if table in NAMED]
            total.add(piece)
        at = piece.next
    return UnsealedRows(counts, named, total.digest(db))


def _named(table: str, row: Row) -> Mapping[str, Any]:
    return {"table": table, **{name: row[name] for name in NAMED[table]}}


def _written(store: CopyEnd, job: Callable[[StoreDb], T], now: int) -> T:
    from server.store.transactions import PendingJob

    work = PendingJob(job)
    store.transactions.run_batch([work], at=now)
    return work.result()


def _tell(rows: UnsealedRows, *, is_done: bool) -> None:
    for row in rows.named[:SHOWN]:
        table, *said = (terminal.clean(str(value)) for value in row.values())
        terminal.say(f"{table}: {', '.join(said)}")
    if len(rows.named) > SHOWN:
        terminal.say(f"and {len(rows.named) - SHOWN} more; --json shows all of them")
    summary = ", ".join(f"{count} of {table}" for table, count in rows.counts.items()) or "no row"
    if is_done:
        terminal.out(f"sealed: {summary}")
        return
    terminal.out(f"not sealed: {summary}")
    if rows.counts:
        terminal.say("nothing was changed; whatever is sealed lets somebody in")
    terminal.say_hint(f"if all of that is right: ostiary store seal --yes {quote(rows.digest)}")
