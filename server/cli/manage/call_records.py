"""The rows of `ostiary calls` and `ostiary usage`, from the running server, or its database where none is running; and their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from server.cli import local, spans, terminal
from server.cli.manage.row_pages import RowPages

if TYPE_CHECKING:
    from server.store.jobs import StoreDb

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def of_which(command: Decorated) -> Decorated:
    """Add options that say which calls are meant."""
    for option in (
        click.option("--tool", metavar="NAME", help="of this tool"),
        click.option("--server", metavar="NAME", help="at this server"),
        click.option("--person", metavar="WHO", help="of this person, key or program"),
        spans.of_when,
    ):
        command = option(command)
    return command


def pages(wanted: Mapping[str, Any]) -> RowPages:
    return RowPages("calls", wanted, ask=ask)


def ask(name: str, arguments: Mapping[str, Any]) -> Any:
    """Return what the server answers, or what its database says where none runs."""
    try:
        return local.ask(name, arguments)
    except local.NoServer as error:
        return _read(name, arguments, error)


def _read(name: str, arguments: Mapping[str, Any], not_running: terminal.CliError) -> Any:
    """Read what a command answers from the database, which nobody holds."""
    from server.admin import call_record_commands
    from server.admin.control import CommandRefused
    from server.store.data_directory import DataDirectory
    from server.store.jobs import StoreError
    from server.store.sqlite_connect import connect_reader
    from server.store.transactions import JOB_SECONDS, PendingJob, Transactions

    if local.settings().config.store:  # what is in a file there is from before
        raise terminal.CliError(
            "the server is not running, and nobody else reads its PostgreSQL database",
            hint="start it first: ostiary serve",
        ) from not_running
    database = DataDirectory(local.directory()).database
    if not database.exists():
        raise not_running
    look: Callable[[StoreDb], Any] = partial(
        call_record_commands.page if name == "calls" else call_record_commands.usage, arguments=arguments
    )
    try:
        with closing(connect_reader(database)) as connection:
            if not any(connection.execute("PRAGMA table_info(calls)")):
                raise terminal.CliError(
                    f"{database} is of an older version", hint="start the server once: ostiary serve"
                )
            work = PendingJob(look)
            Transactions(connection, job_seconds=JOB_SECONDS).run_read(work)
            return work.result()
    except CommandRefused as refused:
        raise terminal.CliError(str(refused)) from refused
    except StoreError as error:
        raise terminal.CliError(str(error), hint=error.hint) from error


def who(row: Mapping[str, Any]) -> str:
    """Name whoever called as the owner knows them."""
    if row["person"]:
        return str(row["person"])
    if row["kind"] == "":
        return "(others)"
    return str(row["program"] or row["subject"])
