"""`ostiary restore FILE`: put a back-up in the database's place. The server must be stopped; the old database stays beside it."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from shlex import quote

import click

from server.cli import database_tools, local, terminal


@click.command(
    help="Put the back-up FILE in place of the database of a stopped server. The old one is kept beside it."
)
@click.argument("file")
@click.option("--dry-run", is_flag=True, help="only say whether it could be restored, and what would happen")
@click.option("--copied", is_flag=True, help="FILE was copied by hand while the server was stopped")
@local.which_server
@terminal.json_option
def command(file: str, dry_run: bool, copied: bool, as_json: bool) -> None:
    from auth.audit import audit_trail
    from server.calls.servers.server_opening import subkeys
    from server.store import ledger_chain
    from server.store.backup import fingerprint_of, restore
    from server.store.data_directory import DataDirectory, open_home
    from server.store.jobs import StoreError
    from server.store.migrate import packaged_migrations

    loaded = local.settings()
    local.in_a_file(
        loaded.config,
        partial(database_tools.put_back, file=file),
        before="all of it as it was, with the server stopped:",
        then="what was ended since is alive again then: `ostiary keys rotate --now --revoke-logins` after the start; docs/scale.md",
    )
    place = local.directory()
    try:
        # A trial changes nothing, so it needs nobody to stop.
        with nullcontext(DataDirectory(place)) if dry_run else open_home(place) as home:
            key = database_tools.key_of(loaded.config, home, fingerprint_of(Path(file)))
            done = restore(
                Path(file),
                home.database,
                known_schema=packaged_migrations()[-1].version,
                key_fingerprint=key.fingerprint,
                audit_key=subkeys(key)(audit_trail.KEY_PURPOSE),
                ledger_key=subkeys(key)(ledger_chain.KEY_PURPOSE),
                by=f"local:{os.getuid()}",
                refresh_epoch=f"epo_{secrets.token_hex(10)}",
                now=time.time_ns() // 1_000_000,
                copied=copied,
                trial=dry_run,
            )
    except StoreError as error:
        raise terminal.CliError(str(error), hint=error.hint) from error
    aside, kept = done.aside, done.kept_out
    if as_json:
        terminal.out_json(
            {
                "restored": None if dry_run else file,
                "schema": done.schema,
                "key": key.id,
                "aside": str(aside) if aside else None,
                "api_keys_revoked": kept.api_keys,
                "users_kept_out": kept.users,
                "clients_kept_out": kept.clients,
                "compared": kept.compared,
            }
        )
        return
    if dry_run:
        terminal.out(f"can be restored: {file} (schema {done.schema}, key {key.id}); nothing was changed")
        terminal.say("if it is restored:")
    else:
        terminal.out(f"restored: {file}")
    if aside:
        terminal.say(f"the database that was there is now {aside}")
    terminal.say("everybody logs in again: logins begin anew after a restore")
    if kept.api_keys:
        terminal.say(
            f"API keys of the back-up are revoked ({kept.api_keys}): make new ones with `ostiary api-keys create`"
        )
    for name in kept.users:
        terminal.say(
            f"{terminal.clean(name)} was shut out or removed since and stays out: `ostiary users show {quote(name)}`"
        )
    for client_id in kept.clients:
        terminal.say(
            f"the program {terminal.clean(client_id)} was disabled or removed since and stays disabled"
        )
    if not kept.compared:
        terminal.say(
            "who was disabled or removed since the back-up may come in again: look through `ostiary users list`"
            " and `ostiary clients list`"
        )
    terminal.say("passphrases, passkeys, ceilings and clients' secrets are again those of the back-up")
    terminal.say(
        "so are the books: what was booked since is not in them, though it may have moved on a chain"
    )
