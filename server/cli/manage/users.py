"""`ostiary users`: who may come in, what they may have at most, and shutting them out. Each takes effect at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from server.cli import local, spans, terminal
from server.cli.manage import people

LOCKED: Final = (
    "all its logins and keys are revoked; `ostiary users unlock` shows the link that opens it again"
)
# What can be undone is not asked about. verb: (help, what is said when it is done)
SWITCHES: Final[Mapping[str, tuple[str, str]]] = {
    "disable": (
        "Make everything of a person pause, until they are enabled.",
        "nothing of theirs works until `ostiary users enable`",
    ),
    "enable": ("Let a disabled person in again.", "logins that were not revoked work again"),
}


@click.group(help="List people, and change what they may.")
def command() -> None: ...


@command.command("list", help="List everybody who may come in, and who is invited.")
@local.which_server
@terminal.json_option
def list_users(as_json: bool) -> None:
    found = local.ask("users")
    found = local.in_order(found, lambda user: (user["role"] != "owner", user["name"]))
    if as_json:
        terminal.out_json(found)
        return
    rows = [
        (
            terminal.clean(user["name"]),
            user["role"],
            people.state_of(user),
            str(user["logins"]),
            local.ago(user["last_seen_at"]) if user["last_seen_at"] else "never",
            _ends(user),
        )
        for user in found
    ]
    for line in terminal.table(("name", "role", "state", "logins", "last seen", "ends in"), rows):
        terminal.out(line)
    if any(user["state"] == "unclaimed" for user in found):
        terminal.say_hint("ostiary claim shows the link that makes somebody its owner")
    elif len(found) == 1:
        terminal.say_hint("ostiary invite NAME")


@command.command("show", help="Show one person, and what they may have.")
@click.argument("name")
@local.which_server
@terminal.json_option
def show(name: str, as_json: bool) -> None:
    (user,) = local.ask("users", {"name": name})
    if as_json:
        terminal.out_json(user)
        return
    _facts(user)


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
@local.which_server
@terminal.json_option
def change(name: str, scope: str | None, tools: str | None, expires: int | str | None, as_json: bool) -> None:
    if scope is tools is expires is None:
        raise terminal.Misuse("nothing to change was named", hint="--scope, --tools or --expires")
    arguments = {
        "name": name,
        "scope": scope,
        "tools": "" if tools == "all" else tools,
        "never": expires == spans.NEVER,
        "account_ms": None if expires == spans.NEVER else expires,
    }
    answer = local.ask("users.set", arguments)
    if as_json:
        terminal.out_json(answer)
        return
    (user,) = local.ask("users", {"name": answer["name"]})
    _facts(user)


@command.command("reset", help="Show a one-time link with which a person chooses a new passphrase.")
@click.argument("name")
@local.which_server
@terminal.json_option
def reset(name: str, as_json: bool) -> None:
    people.may_show(as_json)
    _show_reset(name, as_json)


@command.command("unlock", help="Open a locked account again, and show the link that leads into it.")
@click.argument("name")
@local.which_server
@terminal.json_option
def unlock(name: str, as_json: bool) -> None:
    people.may_show(as_json)
    local.ask("users.unlock", {"name": name})
    _show_reset(name, as_json)


@command.command(
    "lock",
    help="Shut an account that is in wrong hands: logins, keys and browsers end, passphrase and passkeys are forgotten.",
)
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="do not ask back")
@local.which_server
@terminal.json_option
def lock(name: str, yes: bool, as_json: bool) -> int | None:
    (user,) = local.ask("users", {"name": name})
    question = f"lock {_with_logins(user)} and every key, and forget how they sign in"
    if user["state"] in ("enabled", "disabled") and not _agreed(user, question, yes=yes):
        terminal.say("nothing was locked")
        return terminal.EXIT_FAILED
    answer = local.ask("users.lock", {"name": name})
    _say_done(answer, "locked", LOCKED, as_json)
    return None


@command.command("remove", help="Remove a person. Everything they let in ends, and their name becomes free.")
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="do not ask back")
@local.which_server
@terminal.json_option
def remove(name: str, yes: bool, as_json: bool) -> int | None:
    (user,) = local.ask("users", {"name": name})
    if not _agreed(user, f"remove {_with_logins(user)}", yes=yes):
        terminal.say("nothing was removed")
        return terminal.EXIT_FAILED
    answer = local.ask("users.remove", {"name": name})
    _say_done(answer, "removed", "", as_json)
    return None


def _with_logins(user: Mapping[str, Any]) -> str:
    return f"{terminal.clean(user['name'])}, with {user['logins']} login{'' if user['logins'] == 1 else 's'}"


def _agreed(user: Mapping[str, Any], question: str, *, yes: bool) -> bool:
    """Nobody is asked about what the server refuses, and says why: the only owner stays."""
    return user["only_owner"] or terminal.agreed(question, yes=yes)


def _switch(verb: str, text: str, afterwards: str) -> Callable[..., None]:
    @command.command(verb, help=text)
    @click.argument("name")
    @local.which_server
    @terminal.json_option
    def switch(name: str, as_json: bool) -> None:
        answer = local.ask(f"users.{verb}", {"name": name})
        _say_done(answer, f"{verb.removesuffix('e')}ed", afterwards, as_json)

    return switch


for _verb, (_text, _afterwards) in SWITCHES.items():
    _switch(_verb, _text, _afterwards)


def _say_done(answer: Mapping[str, Any], participle: str, afterwards: str, as_json: bool) -> None:
    if as_json:
        terminal.out_json(answer)
        return
    terminal.out(f"{participle}: {terminal.clean(answer['name'])}")
    if afterwards:
        terminal.say(terminal.as_started(afterwards))


def _show_reset(name: str, as_json: bool) -> None:
    answer = local.ask("users.reset", {"name": name})
    if as_json:
        terminal.out_json(answer)
        return
    what = "a new passphrase" if answer["link"] == "reset" else "the first passphrase"
    people.show_link(answer, f"{what} for {terminal.clean(answer['name'])}")


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
        ("last seen", local.ago(user["last_seen_at"]) if user["last_seen_at"] else "never"),
        ("since", local.ago(user["created_at"])),
        *([("link works for", local.left(invited))] if invited else []),
        ("id", user["id"]),
    ]
    terminal.facts([(name, terminal.clean(value)) for name, value in pairs])


def _ends(user: Mapping[str, Any], *, dash: str = "-") -> str:
    if user["expires_at"] is None:
        return dash
    return f"over, {local.ago(user['expires_at'])}" if user["over"] else local.left(user["expires_at"])
