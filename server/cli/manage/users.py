"""The commands `ostiary users`: who may come in, what they may have at most, and shutting them out. Each takes effect at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from server.cli import local, spans, terminal
from server.cli.manage import people
from server.lib.counted import counted

HEADINGS: Final = ("name", "role", "state", "logins", "last seen", "ends in")
LOCKED: Final = (
    "all its logins and keys are revoked; `ostiary users unlock` shows the link that opens it again"
)


@click.group(help="List people, and change what they may.")
def command() -> None: ...


def _show_all(found: Sequence[Mapping[str, Any]]) -> None:
    terminal.show_table(HEADINGS, map(_cells, found))
    if any(user["state"] == "unclaimed" for user in found):
        terminal.say_hint("ostiary claim shows the link that makes somebody its owner")
    elif len(found) == 1:
        terminal.say_hint("ostiary invite NAME")


def _cells(user: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        terminal.clean(user["name"]),
        user["role"],
        people.state_of(user),
        str(user["logins"]),
        _last_seen(user),
        _ends(user),
    )


@command.command("list", help="List everybody who may come in, and who is invited.")
@local.shows(_show_all)
def list_users() -> Any:
    return sorted(local.ask("users"), key=lambda user: (user["role"] != "owner", user["name"]))


def _facts(user: Mapping[str, Any]) -> None:
    invited = user["link_expires_at"] if user["state"] == "invited" else None
    pairs = [
        ("name", user["name"]),
        ("role", user["role"]),
        ("state", people.state_of(user)),
        ("may grant", "everything" if user["scope"] == "*" else user["scope"]),
        ("tools", people.tools_of(user)),
        ("account ends", _ends(user, dash="never")),
        ("logins", str(user["logins"])),
        ("last seen", _last_seen(user)),
        ("since", local.ago(user["created_at"])),
        *([("link works for", local.left(invited))] if invited else []),
        ("id", user["id"]),
    ]
    terminal.facts([(name, terminal.clean(value)) for name, value in pairs])


def _last_seen(user: Mapping[str, Any]) -> str:
    return local.ago(user["last_seen_at"]) if user["last_seen_at"] else "never"


def _ends(user: Mapping[str, Any], *, dash: str = "-") -> str:
    if user["expires_at"] is None:
        return dash
    return f"over, {local.ago(user['expires_at'])}" if user["over"] else local.left(user["expires_at"])


def _person(name: str) -> Mapping[str, Any]:
    (user,) = local.ask("users", {"name": name})
    return user


@command.command("show", help="Show one person, and what they may have.")
@click.argument("name")
@local.shows(_facts)
def show(name: str) -> Any:
    return _person(name)


@command.command("set", help="Change what a person may have at most, or when their account ends.")
@click.argument("name")
@click.option("--scope", metavar="SCOPES", help="the most that they may grant; * is everything")
@click.option("--tools", metavar="SPEC", help="the tools that they may use at most; all is every one")
@click.option(
    "--expires",
    metavar="TIME",
    type=spans.TimeSpan(days=spans.ACCOUNT_DAYS),
    help="when the account ends: after 30d or 12h, on 2027-01-31, or never",
)
@local.shows(lambda answer: _facts(_person(answer["name"])))
def change(name: str, scope: str | None, tools: str | None, expires: int | str | None) -> Any:
    if scope is tools is expires is None:
        raise terminal.Misuse("nothing to change was named", hint="--scope, --tools or --expires")
    tools = "" if tools == "all" else tools
    wanted = {"name": name, "scope": scope, "tools": tools, **spans.until(expires, "account_ms")}
    return local.ask("users.set", wanted)


def _show_link(answer: Mapping[str, Any]) -> None:
    what = "a new passphrase" if answer["link"] == "reset" else "the first passphrase"
    people.show_link(answer, f"{what} for {terminal.clean(answer['name'])}")


def _reset(name: str, *, before: str | None, as_json: bool) -> None:
    people.may_show(as_json)
    if before is not None:
        local.ask(before, {"name": name})
    answer = local.ask("users.reset", {"name": name})
    terminal.out_json(answer) if as_json else _show_link(answer)


@command.command("reset", help="Show a one-time link with which a person chooses a new passphrase.")
@click.argument("name")
@local.which_server
@terminal.json_option
def reset(name: str, as_json: bool) -> None:
    _reset(name, before=None, as_json=as_json)


@command.command("unlock", help="Open a locked account again, and show the link that leads into it.")
@click.argument("name")
@local.which_server
@terminal.json_option
def unlock(name: str, as_json: bool) -> None:
    _reset(name, before="users.unlock", as_json=as_json)


def _agree_or_end(user: Mapping[str, Any], question: str, *, yes: bool, otherwise: str) -> None:
    """Ask, but not about what the server refuses, and says why: the only owner stays."""
    yes = yes or user["only_owner"]
    named = f"{terminal.clean(user['name'])}, with {counted(user['logins'], 'login')}"
    terminal.agree_or_end(question.format(named), yes=yes, otherwise=otherwise)


@command.command(
    "lock",
    help="Shut an account that is in wrong hands: logins, keys and browsers end, passphrase and passkeys are forgotten.",
)
@click.argument("name")
@terminal.yes_option
@local.shows(local.says("locked", then=LOCKED))
def lock(name: str, yes: bool) -> Any:
    user = _person(name)
    yes = yes or user["state"] not in ("enabled", "disabled")
    question = "lock {} and every key, and forget how they sign in"
    _agree_or_end(user, question, yes=yes, otherwise="nothing was locked")
    return local.ask("users.lock", {"name": name})


@command.command("remove", help="Remove a person. Everything they let in ends, and their name becomes free.")
@click.argument("name")
@terminal.yes_option
@local.shows(local.says("removed"))
def remove(name: str, yes: bool) -> Any:
    _agree_or_end(_person(name), "remove {}", yes=yes, otherwise="nothing was removed")
    return local.ask("users.remove", {"name": name})


# What can be undone is not asked about.
local.add_act(
    command,
    "disable",
    "Make everything of a person pause, until they are enabled.",
    act="users.disable",
    done="disabled",
    then="nothing of theirs works until `ostiary users enable`",
)
local.add_act(
    command,
    "enable",
    "Let a disabled person in again.",
    act="users.enable",
    done="enabled",
    then="logins that were not revoked work again",
)
