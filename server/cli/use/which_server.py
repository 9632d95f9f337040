"""The server that a command means: the address or name that begins its words, else the login that is there.

A word that could be either, like `files.read`, is the tool where an argument follows it, and else the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from shlex import quote
from typing import Final
from urllib.parse import urlsplit

from server.cli import terminal
from server.cli.use import target
from server.client.address import Address
from server.client.token_file import StoredLogin

NONE_YET: Final = "no server is named, and you are logged in to none"

# Where a word can be nothing but an address: a scheme, a port alone, a host with a port, this machine.
_ADDRESS: Final = re.compile(
    r"[a-z][a-z0-9+.-]*://|:?\d+$|[^/=\s]+:\d+(/|$)|localhost(/|$)|\[", re.IGNORECASE
)
_HOST: Final = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+(/|$)", re.IGNORECASE)
# An argument of a tool: key=value, JSON, a file, stdin.
_ARGUMENT: Final = re.compile(r"[^\s=]+=|[{@]|-$")


def split(words: Sequence[str], *, least: int) -> tuple[str, tuple[str, ...]]:
    """Return what was typed for the server, nothing where that was left out, and what is left: at least so many words, where there are any."""
    if not words:
        return "", ()
    first, rest = words[0], tuple(words[1:])
    if len(rest) < least and _ADDRESS.match(first):
        raise terminal.Misuse(f"which tool of {first}?", hint=f"ostiary tools {quote(first)}")
    named = len(rest) >= least and _is_address(first, rest, least)
    return (first, rest) if named else ("", tuple(words))


def _is_address(word: str, rest: tuple[str, ...], least: int) -> bool:
    if _ADDRESS.match(word) or target.places().get(word) is not None:
        return True
    if least and _ARGUMENT.match(rest[0]):
        return False
    logins = target.token_file().all()
    if any(urlsplit(login.url).hostname == word.partition("/")[0].lower() for login in logins):
        return True
    # Without a login there is nothing else that it could stand for.
    return not logins or _HOST.match(word) is not None


def of(typed: str, *, tcp: bool = False) -> Address:
    """Return the address of what was typed; of the only login, or the last that was made, where nothing was. `tcp`: it may be lines on a port."""
    if typed:
        return target.logged_in_address(typed, tcp=tcp)
    return target.told(Address(url=usual().url, completed=True))


def to_log_in_to(typed: str | None) -> Address:
    """Return the address of what was typed; where nothing was, of the server that runs on this machine, whose first one is meant if it has
    several, and else of the login that there is, once more."""
    if typed is not None:
        return target.address_of(typed)
    here = _running_here()
    if here is None and not target.token_file().all():
        raise terminal.Misuse(
            "no server is named, and none runs here", hint="ostiary login URL, or first `ostiary serve`"
        )
    return target.told(Address(url=here or usual().url, completed=True))


def _running_here() -> str | None:
    from server.cli import local

    try:
        found = local.ask("status")
        return f"{found['origin']}{next(iter(found['paths'].values()))}"
    except local.ServerNotAnswered:  # there is one: another would be logged in to in its place
        raise
    except terminal.CliError:  # whatever is wrong there, it has nothing to log in to
        return None


def usual() -> StoredLogin:
    file = target.token_file()
    logins = file.all()
    if not logins:
        raise terminal.Misuse(
            NONE_YET, hint="ostiary login URL, or name the server: http://localhost:8420/mcp"
        )
    latest = file.latest()
    if len(logins) == 1:
        return logins[0]
    for login in logins:
        if login.url == latest:
            return login
    raise terminal.Misuse(
        f"you are logged in to {len(logins)} servers, so say which is meant", hint="ostiary whoami lists them"
    )


def of_server_at(url: str) -> str | None:
    """Return what a command at this machine needs to mean the server that is reached at `url`: nothing, or its data directory; None where that
    cannot be found out. A server is asked only where there are several."""
    from server.admin import control
    from server.cli import local
    from server.lib.oauth_client.addresses import same_place

    try:
        usual = local.directory(local.settings_of(None, None))
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
