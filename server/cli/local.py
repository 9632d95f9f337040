"""Parts of the commands for the machine: which server is meant, and how to put a question to it over the admin socket."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

import click

from server.cli import terminal
from server.cli.hints import GIVEN, meant_here
from server.lib.counted import counted

if TYPE_CHECKING:
    from server.admin.control import CommandRefused
    from server.settings.setting_shapes import Config
    from server.settings.settings_reader import LoadedSettings

Lacking: TypeAlias = Callable[[str], Exception]  # what to raise for a field that an answer does not have
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def which_server(command: Decorated) -> Decorated:
    """Add options that name the server: its data directory, or the configuration that names it. The command itself is given
    neither: `ask`, and suggestions meanwhile, look them up."""
    for name, metavar, text in (
        ("--config", "FILE", "the configuration of the server that is meant"),
        ("--data-dir", "DIR", "the data directory of the server that is meant"),
    ):
        command = click.option(name, metavar=metavar, help=text, callback=remembered, expose_value=False)(
            command
        )
    return command


def shows(
    show: Callable[[Any], object], *, nothing: str = "", hint: str = ""
) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Have a command about the server of this machine show what it returns, as `terminal.shows`."""
    answering = terminal.shows(show, nothing=nothing, hint=hint)
    return lambda command: which_server(answering(command))


def says(done: str, field: str = "name", then: str = "") -> Callable[[Mapping[str, Any]], None]:
    """Show an answer as what was done, to what its `field` names, and what that means."""

    def show(answer: Mapping[str, Any]) -> None:
        terminal.out(f"{done}: {terminal.clean(answer[field])}")
        if then:
            terminal.say(terminal.as_started(then))

    return show


def add_act(
    group: click.Group,
    name: str,
    text: str,
    *,
    act: str,
    done: str,
    argument: str = "name",
    metavar: str | None = None,
    then: str = "",
) -> None:
    """Add a command that has the server do one thing to what is named, at once; its answer says the `argument` again."""

    @shows(says(done, argument, then))
    def command(named: str) -> Any:
        return ask(act, {argument: named})

    named = click.argument("named", metavar=metavar or argument.upper())
    group.command(name, help=text)(named(command))


def remembered(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Keep what an option of the server that is meant says, for what is asked and suggested meanwhile."""
    if value is not None:
        context.meta.setdefault(GIVEN, {})[parameter.opts[0]] = value
    return value


def settings_of(data_dir: str | None, config: str | None) -> LoadedSettings:
    """Read the settings of the server that these name. Raises `CliError`."""
    from server.settings.settings_reader import ConfigInvalid, find_file, load

    try:
        return load(find_file(config, os.environ), os.environ, {"data_dir": data_dir})
    except ConfigInvalid as invalid:
        raise invalid_settings(invalid) from invalid


def settings() -> LoadedSettings:
    """Read the settings of the server that the options of this command mean. Raises `CliError`."""
    given = meant_here()
    return settings_of(given.get("--data-dir"), given.get("--config"))


def directory(meant: LoadedSettings | None = None) -> Path:
    from server.settings.resolved_settings import data_directory

    return data_directory((meant or settings()).config)


def in_a_file(config: Config, instead: Callable[[Mapping[str, str]], str], *, before: str, then: str) -> None:
    """Raise `CliError` where the database is none of a file's, with the command that does it there."""
    if config.store:
        from server.cli import database_tools

        terminal.say(before)
        terminal.say(f"  {instead(database_tools.place(config.store, config).parameters or {})}")
        terminal.say(database_tools.KEPT_APART)
        raise terminal.CliError(
            "this server keeps its rows in a PostgreSQL database, which has ways of its own for that",
            hint=then,
        )


def ask(name: str, arguments: Mapping[str, Any] | None = None, *, data_dir: str | None = None) -> Any:
    """Put one command to the server that is meant, or the one that runs on `data_dir`. Raises `CliError` with the server's own words, and
    later where the answer lacks a field that is looked up."""
    from server.admin import control

    try:
        answer = control.ask(
            directory(None if data_dir is None else settings_of(data_dir, None)), name, arguments
        )
    except control.NotRunning as refused:
        raise NoServer(str(refused), hint=refused.hint) from refused
    except control.CommandNotAnswered as refused:
        raise ServerNotAnswered(str(refused), hint=refused.hint or None) from refused
    except control.CommandRefused as refused:
        raise _spoken(refused) from refused
    return _told(
        answer.result, lambda field: _spoken(control.differ(answer.version, f"its answer lacks {field!r}"))
    )


def pieces(name: str, expect: int | None = None) -> Iterator[Any]:
    """Have the server check something long, and yield each piece of its answer."""
    at: Any = None
    while True:
        piece = ask(name, {"at": at, "expect": expect})
        yield piece
        at = piece["at"]
        if at is None or piece.get("done"):
            return


class NoServer(terminal.CliError):
    """No server runs on the data directory that is meant."""


class ServerNotAnswered(terminal.CliError):
    """A server runs there, and did not answer in time."""


class AdminReply(dict[str, Any]):
    """The answer of a server. A field that is not in it is no fault of this program: the server is of another version."""

    def __init__(self, fields: Mapping[str, Any], lacking: Lacking) -> None:
        super().__init__(fields)
        self._lacking = lacking

    def __missing__(self, field: str) -> Any:
        raise self._lacking(field)


def _told(value: object, lacking: Lacking) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return AdminReply({name: _told(each, lacking) for name, each in fields.items()}, lacking)
    if isinstance(value, list):
        return [_told(each, lacking) for each in cast("list[object]", value)]
    return value


def _spoken(refused: CommandRefused) -> terminal.CliError:
    return terminal.CliError(str(refused), hint=refused.hint or None)


def invalid_settings(invalid: Any) -> terminal.CliError:
    """Say every problem on a line of its own; return the error that says how many there are."""
    for problem in invalid.problems:
        terminal.say(f"  {terminal.clean(problem.found)}")
    # What this machine lacks may come by itself: a supervisor may try again.
    passing = type(invalid).__name__ == "NotHere"
    return terminal.CliError(
        str(invalid), exit_code=terminal.EXIT_FAILED if passing else terminal.EXIT_MISUSED
    )


def ago(millis: int) -> str:
    return f"{terminal.duration(time.time() - millis / 1000)} ago"


def lately(millis: int, every: Literal["minute", "hour"] = "minute", *, now: float | None = None) -> str:
    """Return when something was last used that is noted once in so long at most: not to the second, for it may have been used since."""
    seconds = 60 if every == "minute" else 3600
    passed = (time.time() if now is None else now) - millis / 1000
    if passed >= 2 * seconds:
        return f"{terminal.duration(passed)} ago"
    return f"in the last {every}" if passed < seconds else f"in the last 2 {every}s"


def left(millis: int) -> str:
    """Say how long it is until then, to the nearest minute where there are several: what was given 90 days a moment ago has 90, not 89."""
    seconds = millis / 1000 - time.time()
    return terminal.duration(seconds if seconds < 120 else round(seconds / 60) * 60)


def describe_request(request: Mapping[str, Any], *, scope: str | None = None) -> list[tuple[str, str]]:
    """Describe what an approver must see before saying yes. Everything marked as claimed was said by the requester alone."""
    named, days = (scope or request["scope"]).split(), -(-request["lasts_ms"] // 86_400_000)
    verified = "proved with its secret" if request["verified"] else "unverified: anybody can say so"
    shown = [
        ("client", f"{request['registered_name']} ({request['client_id']}), {verified}"),
        ("calls itself", request["client_name"] or "nothing"),
        ("computer, as claimed", request["hostname"] or "not said"),
        ("from address", request["ip"]),
        ("program, as claimed", request["user_agent"] or "not said"),
        ("wants", scope or request["scope"]),
        *(("that is", words) for name, words in request["scope_words"].items() if name in named),
        *([("money", request["money"])] if request.get("money") else []),
        ("would stay in", f"up to {counted(days, 'day')}, as {request['account']}"),
        ("of server", f"{request['server']}, reached as {request['origin']}"),
        ("asked", f"{ago(request['created_at'])}, runs out in {left(request['expires_at'])}"),
    ]
    return [(name, terminal.clean(str(value))) for name, value in shown]
