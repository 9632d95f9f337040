"""Rows of a running server that are asked for in pages: the newest, all, or those that come; and how they are written into files."""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NoReturn, TextIO

import click

from server.cli import local, terminal
from server.lib.counted import counted
from server.lib.own_files import make_file

PAGE: Final = 1_000
FOLLOW_SECONDS: Final = 1.0
# What a spreadsheet would take for a formula.
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")

Row = Mapping[str, Any]

follow_option: Final = click.option(
    "--follow", "-f", is_flag=True, help="go on with what comes, until Ctrl-C"
)
csv_option: Final = click.option("--csv", "as_csv", is_flag=True, help="print the rows as CSV")


def limit_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--limit", metavar="N", type=click.IntRange(1, 100_000), default=50, show_default=True, help=text
    )


class RowPages:
    """The rows that are wanted of those that a command answers; each has a number, `seq`."""

    def __init__(self, command: str, wanted: Row, *, ask: Callable[[str, Row], Any] | None = None) -> None:
        self._command, self._wanted, self._ask = command, wanted, ask or local.ask

    def newest(self, limit: int) -> list[Row]:
        return list(islice(self._rows(at_most=min(limit, PAGE)), limit))

    def oldest_first(self, after: int | None = None) -> Iterator[Row]:
        return self._rows(oldest_first=True, at=after)

    def show(
        self,
        limit: int,
        table: Callable[[Sequence[Row]], None],
        told: Callable[[Row], Row],
        *,
        line: Callable[[Row], str] | None = None,
        as_json: bool,
        nothing: str,
    ) -> None:
        """Show the newest in a table, or as JSON as they are `told`; with `line`, each by itself, and then each that comes."""
        if line is not None:
            self._follow(limit, lambda row: terminal.out(json.dumps(told(row)) if as_json else line(row)))
        rows = self.newest(limit)
        if as_json:
            terminal.out_json([told(row) for row in rows])
        elif rows:
            table(rows)
        else:
            terminal.say(nothing)

    def _follow(self, limit: int, show: Callable[[Row], None]) -> NoReturn:
        rows = self.newest(limit)[::-1]
        # Rows that are not wanted are passed by as well, or each look would begin with them again.
        seq = rows[-1]["seq"] if rows else self._end()
        while True:
            for row in rows:
                show(row)
                seq = max(seq, row["seq"])
            sys.stdout.flush()
            time.sleep(FOLLOW_SECONDS)
            rows = list(self.oldest_first(seq))

    def _end(self) -> int:
        """Return the number of the newest row of all; 0 if there is none."""
        rows = self._ask(self._command, {"oldest_first": False, "at_most": 1})["rows"]
        return rows[0]["seq"] if rows else 0

    def _rows(
        self, *, oldest_first: bool = False, at: int | None = None, at_most: int = PAGE
    ) -> Iterator[Row]:
        while True:
            arguments = {**self._wanted, "oldest_first": oldest_first, "at": at, "at_most": at_most}
            page = self._ask(self._command, arguments)
            yield from page["rows"]
            at = page["go_on"]
            if at is None:
                return


def write_json(rows: Iterable[Row], out: TextIO) -> int:
    """Write a line for each row, and return how many there were."""
    count = 0
    for row in rows:
        out.write(json.dumps(row, ensure_ascii=True) + "\n")
        count += 1
    return count


def write_csv(names: Sequence[str], rows: Iterable[Row], out: TextIO) -> int:
    """Write a table in which no cell is a formula to a spreadsheet: what callers and agents say must not compute anything there."""
    writer, count = csv.writer(out, lineterminator="\n"), 0
    writer.writerow(names)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in names])
        count += 1
    return count


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def export(target: str, write: Callable[[TextIO], int], noun: str) -> None:
    """Write into a new file, and say how many `noun`s it has; or to stdout, for `-`."""
    if target == "-":
        write(sys.stdout)
        return
    try:
        descriptor = make_file(target)
    except FileExistsError as error:
        raise terminal.CliError(f"{target} exists already", hint="name a new file") from error
    except OSError as error:
        raise terminal.CliError(f"cannot write {target}: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as out:
        count = write(out)
    terminal.say(f"{counted(count, noun)} written to {target}")
