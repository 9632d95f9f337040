"""The command `ostiary sessions`: what is logged in, who let it in, from where, and when it was last used. Ending it is `ostiary revoke`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from auth.people.browser_names import browser_name
from server.cli import local, terminal

HOW: Final[Mapping[str, str]] = {
    "device": "by code",
    "code": "by browser",
    "client_credentials": "by itself",
    "assertion": "by provider",
    "payment": "by paying",
}


def _show_login(login: Mapping[str, Any]) -> None:
    """Show one in three lines: too much for a table of 80 columns."""
    program = terminal.clean(login["client_name"] or login["registered_name"])
    whose = terminal.clean(login["user"] or "a machine")
    standing = "" if login["standing"] == "unverified" else f" ({login['standing']})"
    paused = (
        f"  {terminal.paint('paused: ' + login['paused'], 'yellow', sys.stdout)}" if login["paused"] else ""
    )
    terminal.out(f"{_bold(login['id'])}  {whose}: {program}{standing}{paused}")
    last = login["last_ip"]
    places = [
        HOW.get(str(login["how"]), str(login["how"])),
        *([f"on {terminal.clean(login['hostname'])}, as it says"] if login["hostname"] else []),
        *([f"at {terminal.clean(login['redirect_host'])}"] if login["redirect_host"] else []),
        f"from {login['ip']}" + (f", last {last}" if last and last != login["ip"] else ""),
    ]
    terminal.out(f"    {', '.join(places)}")
    ends = min(login["expires_at"], login["idle_until"])
    unused = " if it is not used" if login["idle_until"] < login["expires_at"] else ""
    used = f"{_used(login)}, ends in {local.left(ends)}{unused}"
    terminal.out(f"    {login['scope']}; {used}")


def _last_at(one: Mapping[str, Any]) -> int:
    """Return when a login called last, or else was given tokens last; of a browser when it saw a page."""
    return one.get("called_at") or one["last_used_at"]


def _used(login: Mapping[str, Any]) -> str:
    """Say when a login was used, by its last call: a program refreshes its login also when nobody uses it."""
    if "called_at" not in login:  # a server of another version
        return f"used {local.ago(login['last_used_at'])}"
    return "no call yet" if login["called_at"] is None else f"last call {local.lately(login['called_at'])}"


def _show_browser(browser: Mapping[str, Any]) -> None:
    terminal.out(f"{_bold(browser['id'])}  {terminal.clean(browser['user'])}, from {browser['ip']}")
    name = (
        browser_name(browser["user_agent"]) if browser["user_agent"] else "a browser that does not say which"
    )
    terminal.out(
        f"    {terminal.clean(name)}; used {local.lately(browser['last_used_at'])}, ends in {local.left(browser['expires_at'])} if it is not used"
    )


def _bold(text: str) -> str:
    return terminal.paint(text, "bold", sys.stdout)


def _show(found: Sequence[Mapping[str, Any]], *, browsers: bool) -> None:
    if not found:
        terminal.say("no browser is signed in" if browsers else "nobody is logged in")
    for one in found:
        _show_browser(one) if browsers else _show_login(one)


@click.command(help="List what is logged in; with --browsers, which browsers are signed in to the pages.")
@click.option("--user", metavar="NAME", help="only what this person let in")
@click.option("--client", metavar="ID", help="only logins of this program")
@click.option("--browsers", is_flag=True, help="browsers instead of programs")
@local.which_server
@terminal.json_option
def command(user: str | None, client: str | None, browsers: bool, as_json: bool) -> None:
    if browsers and client:
        raise terminal.Misuse("a browser is signed in by itself, not by a program", hint="leave --client out")
    found: list[dict[str, Any]] = local.ask(
        "browsers" if browsers else "sessions", {"user": user, "client": client}
    )
    found.sort(key=lambda one: (-_last_at(one), one["id"]))
    terminal.out_json(found) if as_json else _show(found, browsers=browsers)
