"""Commands that are suggested, as they have to be typed to mean the same server as the command that suggests them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from shlex import quote
from typing import Final
from urllib.parse import urlsplit

import click

# In a context's `meta`: which server the running command was told to mean.
GIVEN: Final = "server.cli.hints.given"

_SUGGESTED: Final = re.compile(r"(?<![\w./-])ostiary ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")


def meant_here() -> Mapping[str, str]:
    """By the options of the command that runs; empty where it was told nothing."""
    context = click.get_current_context(silent=True)
    return {} if context is None else context.meta.get(GIVEN, {})


def for_the_same(text: str, given: Mapping[str, str]) -> str:
    """`text` with the options that say which server is meant, in each command there that takes them."""
    return _SUGGESTED.sub(lambda found: _told(found, given), text) if given else text


def _told(found: re.Match[str], given: Mapping[str, str]) -> str:
    from server.cli import COMMANDS, load

    first, second = found.groups()
    if first not in COMMANDS:
        return found[0]
    command, end = load(first), found.end(1)
    if isinstance(command, click.Group):
        child = command.commands.get(second or "")
        if child is None:
            return found[0]
        command, end = child, found.end(2)
    taken = {option for parameter in command.params for option in parameter.opts}
    rest = found.string[end:].partition("`")[0].split(" ")
    options = [
        f" {option} {quote(value)}"
        for option, value in given.items()
        if option in taken and option not in rest  # it may say so itself
    ]
    at = end - found.start()
    return f"{found[0][:at]}{''.join(options)}{found[0][at:]}"


def of_server_at(url: str) -> str | None:
    """What a command at this machine needs to mean the server that is reached at `url`: nothing, or its data directory; None where that
    cannot be found out. A server is asked only where there are several."""
    from server.admin import control
    from server.cli import local, terminal
    from server.client.address import same_place

    try:
        usual = local.directory()
    except terminal.CliError:
        return None
    here, runs = control.servers_here(), control.runs_on(usual)
    if runs and len(here) <= 1:
        return ""
    for address in here:
        try:
            status = control.ask_at(address, "status").result
            origin, data_dir = str(status["origin"]), str(status["data_dir"])
        except (control.CommandRefused, KeyError, TypeError):
            continue
        if same_place(origin, _origin(url)):
            usual_one = os.path.realpath(data_dir) == os.path.realpath(usual)
            return "" if usual_one else f" --data-dir {quote(data_dir)}"
    return "" if runs and not here else None


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
