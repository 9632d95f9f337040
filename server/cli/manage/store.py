"""`ostiary store copy`: all rows into another database, and back. `ostiary store seal` is store_seal.py's."""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING

import click

from server.cli import database_tools, local, terminal
from server.cli.manage import store_seal

if TYPE_CHECKING:
    from server.cluster.moving.opened_stores import StorePlace
    from server.cluster.moving.row_copy import CopyStep
    from server.settings.setting_shapes import Config
    from server.store.jobs import StoreDb


@click.group(help="Move everything that is stored from one database to another; seal what it says of rights.")
def command() -> None: ...


command.add_command(store_seal.command)


@command.command("copy")
@click.option(
    "--to",
    "target",
    metavar="WHERE",
    required=True,
    help="a PostgreSQL database: env:NAME or file:/path, where its address is kept; or data-dir, the file of the data directory",
)
@click.option(
    "--from", "source", metavar="WHERE", help="where the rows are, written likewise (what the settings say)"
)
@local.which_server
@terminal.json_option
def copy(target: str, source: str | None, as_json: bool) -> None:
    """Copy all that a stopped server keeps into another database, empty until now. Every row is read back and compared; the audit trail and
    the ledger are walked in both. The store that was copied is closed then: a server is to run on the other one.

    Cut off at any moment, the same command goes on where it was.
    """
    from auth.audit import audit_trail
    from server.calls.servers.server_opening import subkeys
    from server.cluster.moving.copy_plan import tables
    from server.cluster.moving.opened_stores import DATA_DIR, opened
    from server.cluster.moving.row_copy import CopyKeys, StoreCopy
    from server.run.served_certificate import back_into_files
    from server.settings.resolved_settings import data_directory
    from server.store import ledger_chain
    from server.store.data_directory import open_home
    from server.store.jobs import StoreError
    from server.store.migrate import packaged_migrations

    loaded = local.settings()
    settings = loaded.config
    coming, going = _place(source or settings.store or DATA_DIR, settings), _place(target, settings)
    place = data_directory(settings)
    if not place.exists():
        raise terminal.CliError(f"there is no data directory {place}", hint="--data-dir says which is meant")
    migrations, now = packaged_migrations(), time.time_ns() // 1_000_000
    shown = CopyProgress()
    try:
        with open_home(place) as home, opened(home, coming, going, migrations=migrations, now=now) as ends:
            if ends.aside is not None:
                terminal.say(f"the file that was moved away before is now {ends.aside}")
            key = database_tools.key_of(settings, home, ends.fingerprint)
            done = StoreCopy(
                ends.source,
                ends.target,
                tables=tables(migrations),
                schema=len(migrations),
                keys=CopyKeys(
                    fingerprint=key.fingerprint,
                    trail=subkeys(key)(audit_trail.KEY_PURPOSE),
                    ledger=subkeys(key)(ledger_chain.KEY_PURPOSE),
                ),
                copy_id=f"cpy_{secrets.token_hex(10)}",
                by=f"local:{os.getuid()}",
                now=now,
                told=shown.tell,
                last=_nothing
                if going.parameters is not None
                else back_into_files(subkeys(key), place, authority=loaded.acme.directory, told=terminal.say),
            ).run()
    except StoreError as error:
        raise terminal.CliError(str(error), hint=error.hint) from error
    finally:
        shown.end()
    chains, rows = done.chains, sum(done.rows.values())
    if as_json:
        terminal.out_json(
            {
                "from": ends.source.called,
                "to": ends.target.called,
                "rows": rows,
                "tables": dict(done.rows),
                "trail": {"rows": chains.rows, "sound": chains.broken is None},
                "ledger": {
                    "movements": chains.movements,
                    "balances": chains.balances,
                    "sound": chains.ledger_broken is None and not chains.findings,
                },
            }
        )
        return
    terminal.out(
        f"copied: {rows} rows of {sum(map(bool, done.rows.values()))} tables, each read back and compared;"
        f" of the trail {chains.rows} rows are sound, of the ledger {chains.movements} movements and {chains.balances} balances"
    )
    if not chains.is_sound:
        terminal.say("what was out of order in the trail or the ledger is so in the copy: ostiary verify")
    terminal.say(f"{ends.source.called} is closed: nothing is served from it any more")
    terminal.say_hint(
        "take the line `store` out of the settings, and start the server"
        if going.parameters is None
        else f'put store = "{going.called}" into the settings, and start the server'
    )


def _nothing(db: StoreDb) -> None:
    """Leave `acme/` to the first server that is started there, which takes it along."""


def _place(where: str, settings: Config) -> StorePlace:
    from server.cluster.moving.opened_stores import DATA_DIR, StorePlace

    return StorePlace(called=DATA_DIR) if where == DATA_DIR else database_tools.place(where, settings)


class CopyProgress:
    """A line that is drawn over on a terminal; a line for each part of the work elsewhere."""

    WORDS = {  # noqa: RUF012  a table
        "again": "a server has run since that copy was begun: it begins again",
        "copying": "copying",
        "comparing": "reading it back",
        "walking": "walking the trail and the ledger",
    }

    def __init__(self) -> None:
        self._line = terminal.StatusLine()
        self._doing = ""

    def tell(self, step: CopyStep) -> None:
        words = self.WORDS.get(step.doing)
        if words is None:
            return
        if step.doing == "again" or (step.doing != self._doing and not self._line.live):
            terminal.say(words)
        self._doing = step.doing
        if step.of:
            words = f"{words}: {step.done * 100 // step.of} %, {step.done} of {step.of} rows ({step.table})"
        elif step.done:
            words = f"{words}: {step.done} rows"
        self._line.show(words)

    def end(self) -> None:
        self._line.clear()
