"""The commands `ostiary keys`: the keys that access and refresh tokens are proven with. They change by themselves; this is for looking,
and for emergencies.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from server.cli import local, spans, terminal

DROPPING: Final = (
    "this drops every signing key but a new one, at once",
    "  every access token that was signed until now is refused",
    "  servers elsewhere that keep the old keys may accept old tokens for 5 minutes",
)
GOING_ON: Final = (
    "  logins go on: most programs get new access tokens by themselves (refresh)",
    "  some ask their person to log in again instead: Gemini CLI, FastMCP and the Python SDK do",
    "  whoever took the refresh keys as well goes on, too: --revoke-logins drops those",
)
REVOKING: Final = (
    "  every refresh key is dropped as well, and every login ended: everybody signs in again",
    "  API keys and browsers that are signed in stay: ostiary api-keys, ostiary sessions --browsers",
)


# Of what keys are called by, at a narrow terminal.
SHORTEST_ID: Final = 12
HEADINGS = ("key", "for", "state", "since", "kept until")


@click.group(help="List and change the keys that tokens are made with.")
def command() -> None: ...


def _show(found: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            each["kid"],
            f"{each['use']} tokens",
            each["state"],
            "never" if each["since"] is None else spans.told_shortly(each["since"], "%H:%M"),
            "-" if each["until"] is None else spans.told_shortly(each["until"], "%H:%M"),
        )
        for each in found
    ]
    wide = max(map(terminal.cells, terminal.table(HEADINGS, rows, as_wide_as_it_is=True))) - terminal.width(
        sys.stdout
    )
    if wide > 0:  # the id alone can be told by its beginning
        longest = max(terminal.cells(row[0]) for row in rows)
        room = max(longest - wide, SHORTEST_ID)
        rows = [(terminal.cut(row[0], room), *row[1:]) for row in rows]
    for line in terminal.table(HEADINGS, rows, as_wide_as_it_is=True):
        terminal.out(line)


@command.command("list", help="List the keys of access and refresh tokens, newest first.")
@local.shows(_show)
def list_keys() -> Any:
    return local.ask("keys")


def _show_next(answer: Mapping[str, Any]) -> None:
    verb = "published" if answer["made"] else "published already"
    terminal.out(f"{verb}: {answer['kid']}")
    terminal.say(
        f"it signs from {spans.told_shortly(answer['signs_from'], '%H:%M')}, in {local.left(answer['signs_from'])}; until then the old one does"
    )
    if answer["made"]:
        terminal.say(
            f"refresh tokens are written with {answer['refresh_key']} from now on; older ones stay good"
        )


def _show_changed(answer: Mapping[str, Any]) -> None:
    if "signs_from" in answer:
        _show_next(answer)
        return
    terminal.out(f"signs now: {answer['kid']}")
    terminal.out(f"refreshes: {answer['refresh_key']}")
    for kid in answer["dropped"]:
        terminal.out(f"dropped:   {kid}")
    if "logins_ended" in answer:
        terminal.out(f"ended:     {answer['logins_ended']} logins")
    else:
        terminal.say_hint(
            "whoever took the refresh keys as well goes on; to end that: ostiary keys rotate --now --revoke-logins"
        )


@command.command("rotate")
@click.option(
    "--now",
    "at_once",
    is_flag=True,
    help="a key may have been stolen: drop all signing keys but a new one at once",
)
@click.option(
    "--revoke-logins", is_flag=True, help="with --now: drop the refresh keys and end every login, too"
)
@terminal.yes_option
@local.shows(_show_changed)
def rotate(at_once: bool, revoke_logins: bool, yes: bool) -> Any:
    """Publish the next signing key, ahead of its time. That key signs after a day, when everybody knows it. With it comes a new
    refresh key, which writes at once; tokens of the one before are exchanged as they are used. Nobody notices.

    With --now a new key signs at once, and all others are dropped with the access tokens they signed. Logins go on, and most
    programs refresh; some ask their person to log in again, for they take a token that is refused early for a login that is over. With
    --revoke-logins the refresh keys are dropped as well, and every login ends at the same stroke: no token of before is good
    for anything, nor is a code that was approved and not yet fetched. Everybody signs in again.
    """
    if revoke_logins and not at_once:
        raise terminal.Misuse("--revoke-logins goes with --now", hint="ostiary revoke ends single logins")
    if not at_once:
        return local.ask("keys.rotate")
    for line in (*DROPPING, *(REVOKING if revoke_logins else GOING_ON)):
        terminal.say(line)
    terminal.agree_or_end("do it", yes=yes, otherwise="nothing was changed")
    return local.ask("keys.replace_all" if revoke_logins else "keys.replace")
