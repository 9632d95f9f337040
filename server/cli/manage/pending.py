"""The command `ostiary pending`: the device logins that wait for a decision. Codes are not shown: the server does not know them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from server.cli import local, terminal

HEADINGS: Final = ("program", "computer, as claimed", "from", "server", "asked at", "ends in")


def _show(waiting: Sequence[Mapping[str, Any]]) -> None:
    terminal.show_table(HEADINGS, map(_cells, waiting))
    terminal.say_hint("ostiary approve CODE, with the code that the requester sees")


def _cells(request: Mapping[str, Any]) -> tuple[str, ...]:
    # To the second: of several by the same program, the one that was just begun is looked for.
    asked_at = time.strftime("%H:%M:%S", time.localtime(request["created_at"] / 1000))
    return (
        terminal.clean(request["client_name"] or request["registered_name"]),
        terminal.clean(request["hostname"] or "-"),
        request["ip"],
        request["server"] or "-",
        f"{asked_at}, {local.ago(request['created_at'])}",
        local.left(request["expires_at"]),
    )


@click.command(help="List the logins that wait for approval. The code is on the requester's screen only.")
@local.shows(_show, nothing="no login is waiting")
def command() -> Any:
    return local.ask("pending")
