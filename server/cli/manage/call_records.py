"""Where `ostiary calls` and `ostiary usage` have their rows from: the running server, or its database where none is running. And the
options that they share."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from server.cli import local, terminal

if TYPE_CHECKING:
    from server.store.jobs import StoreDb

PAGE: Final = 1_000
# What a spreadsheet would take for a formula.
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def of_which(command: Decorated) -> Decorated:
    """Options that say which calls are meant."""
    for option in (
        click.option("--tool", metavar="NAME", help="of this tool"),
        click.option("--server", metavar="NAME", help="at this server"),
        click.option("--person", metavar="WHO", help="of this person, key or program"),
        click.option("--until", metavar="WHEN", help="before then"),
        click.option("--since", metavar="WHEN", help="from then on: 2h, 7d, 2026-03-01 or 2026-03-01T12:00"),
    ):
        command = option(command)
    return command


class CallRecords:
    """The calls that are wanted."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._wanted = wanted

    def newest(self, limit: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for rows in self._pages(oldest_first=False, at=None, at_most=min(limit, PAGE)):
            found += rows
            if len(found) >= limit:
                break
        return found[:limit]

    def after(self, seq: int) -> Iterator[dict[str, Any]]:
        for rows in self._pages(oldest_first=True, at=seq, at_most=PAGE):
            yield from rows

    def end(self) -> int:
        """The number of the newest row of all; 0 if there is none."""
        rows = self._ask("calls", {"oldest_first": False, "at_most": 1})["rows"]
        return rows[0]["seq"] if rows else 0

    def usage(self, by: str) -> list[dict[str, Any]]:
        return self._ask("usage", {**self._wanted, "by": by})["rows"]

    def _pages(self, *, oldest_first: bool, at: int | None, at_most: int) -> Iterator[list[dict[str, Any]]]:
        while True:
            arguments = {**self._wanted, "oldest_first": oldest_first, "at": at, "at_most": at_most}
            page = self._ask("calls", arguments)
            yield page["rows"]
            at = page["go_on"]
            if at is None:
                return

    def _ask(self, name: str, arguments: Mapping[str, Any]) -> Any:
        from server.admin.control import NotRunning

        try:
            return local.ask(name, arguments)
        except terminal.CliError as error:
            if not isinstance(error.__cause__, NotRunning):
                raise
            return self._read(name, arguments, error)

    def _read(self, name: str, arguments: Mapping[str, Any], not_running: terminal.CliError) -> Any:
        """From the database, which nobody holds."""
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
    """Whoever called, as the owner knows them."""
    if row["person"]:
        return str(row["person"])
    if row["kind"] == "":
        return "(others)"
    return str(row["program"] or row["subject"])


def write_csv(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """No cell of it is a formula to a spreadsheet: what callers and agents say must not compute anything there."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in names])


def _cell(value: object) -> object:
    if value is None:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
