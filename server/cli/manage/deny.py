"""The command `ostiary deny CODE`: turn a waiting login away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from server.cli import local, terminal


def _show(denied: Mapping[str, Any]) -> None:
    terminal.out(f"denied: {terminal.clean(denied['client_name'] or denied['registered_name'])}")


@click.command(help="Deny the login that shows CODE. Also takes back an approval that was not used yet.")
@click.argument("code")
@local.shows(_show)
def command(code: str) -> Any:
    return local.ask("deny", {"id": local.ask("find", {"code": code})["id"]})
