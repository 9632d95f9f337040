"""`ostiary revoke LOGIN`: end a login. Its tokens are refused from the next request on."""

from __future__ import annotations

import click

from server.cli import local, terminal


@click.command(help="End a login, by its id from `ostiary sessions`. It takes effect at once.")
@click.argument("login")
@local.which_server
@terminal.json_option
def command(login: str, data_dir: str | None, config: str | None, as_json: bool) -> None:
    answer = local.ask("revoke", {"id": login}, data_dir=data_dir, config=config)
    if as_json:
        terminal.out_json(answer)
    else:
        terminal.out(f"revoked: {answer['id']}")
