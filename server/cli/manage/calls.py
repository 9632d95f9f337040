"""`ostiary calls`: who called what, how long it took and what came of it. A table of the newest, or all that come."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from server.cli import local, terminal
from server.cli.manage.audit import moment
from server.cli.manage.call_records import CallRecords, of_which, who, write_csv

FOLLOW_SECONDS: Final = 1.0
HEADINGS: Final = ("when", "tool", "outcome", "took", "who", "program", "why")
FIELDS: Final = (
    "seq", "at", "time", "server", "tool", "outcome", "reason", "ms", "kind", "subject", "person", "client_id",
    "program", "grant_id", "call_id", "revision", "is_task", "price", "asked", "answered", "passed_over",
)  # fmt: skip


@click.command("calls")
@of_which
@click.option("--failed", is_flag=True, help="only those that failed")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="at most so many rows",
)
@click.option("--follow", "-f", is_flag=True, help="go on with what comes, until Ctrl-C")
@click.option("--csv", "as_csv", is_flag=True, help="print the rows as CSV")
@local.which_server
@terminal.json_option
def command(
    since: str | None,
    until: str | None,
    person: str | None,
    server: str | None,
    tool: str | None,
    failed: bool,
    limit: int,
    follow: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Show the calls of tools, newest first: when, by whom, how long they took, and why they failed.

    Neither arguments nor answers are kept. Rows stay for call_days. Beyond 500 calls a second some have no row of their own;
    `ostiary usage` counts them all.
    """
    if as_csv and (as_json or follow):
        raise terminal.Misuse("--csv goes with neither --json nor --follow", hint="use one of them")
    wanted: dict[str, Any] = {
        "since": None if since is None else moment(since),
        "until": None if until is None else moment(until),
        "person": person,
        "server": server,
        "tool": tool,
        "failed": failed,
    }
    records = CallRecords(wanted)
    newest = records.newest(limit)
    if follow:
        _follow(records, newest, as_json=as_json)
    elif as_csv:
        write_csv(FIELDS, [told(row) for row in newest])
    elif as_json:
        terminal.out_json([told(row) for row in newest])
    elif not newest:
        terminal.say("no call is like that")
    else:
        several = len({row["server"] for row in newest}) > 1
        for line in table(newest, terminal.width(sys.stdout), several=several):
            terminal.out(line)
        if passed := sum(row["passed_over"] for row in newest):
            terminal.say(f"{passed} more were too many at once to have rows of their own")
            terminal.say_hint("ostiary usage counts every call")


def _follow(records: CallRecords, newest: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = list(reversed(newest))
    seq = max((row["seq"] for row in rows), default=0)
    # Rows that are not wanted are passed by as well, or each look would begin with them again.
    seq = max(seq, 0 if rows else records.end())
    while True:
        for row in rows:
            if as_json:
                terminal.out(json.dumps(told(row)))
            else:
                terminal.out("  ".join(_painted(row, _cells(row, several=True))).rstrip())
            seq = max(seq, row["seq"])
        sys.stdout.flush()
        time.sleep(FOLLOW_SECONDS)
        rows = list(records.after(seq))


def table(rows: Sequence[Mapping[str, Any]], room: int, *, several: bool) -> list[str]:
    """One line a row where all of it fits; otherwise what was called, and below it by whom and why it failed."""
    cells = [_cells(row, several=several) for row in rows]
    styled = [_painted(row, each) for row, each in zip(rows, cells, strict=True)]
    whole = terminal.table(HEADINGS, styled, as_wide_as_it_is=True)
    if max(map(terminal.cells, whole)) <= room:
        return whole
    # What is longest comes last, where it can be cut.
    heads = terminal.columns([(when, outcome, took, tool) for when, tool, outcome, took, *_ in styled])
    lines: list[str] = []
    for head, (by, program, why) in zip(heads, (each[4:] for each in cells), strict=True):
        whose = ", by way of ".join(each for each in (by, program) if each != "-")
        told_of = [whose] if why == "-" else [whose, why]
        lines.append(terminal.cut(head, room))
        lines += [terminal.cut(f"    {each}", room) for each in told_of]
    return lines


def told(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whole, with its time for people."""
    time_of = datetime.fromtimestamp(row["at"] / 1000, UTC).isoformat(timespec="milliseconds")
    return {**{name: row.get(name) for name in FIELDS}, "time": time_of, "is_task": bool(row["is_task"])}


def _painted(row: Mapping[str, Any], cells: tuple[str, ...]) -> tuple[str, ...]:
    from server.store.call_records.call_record import FAILURES

    style = "red" if row["outcome"] in FAILURES else "green" if row["outcome"] == "ok" else "yellow"
    return (*cells[:2], terminal.paint(cells[2], style, sys.stdout), *cells[3:])


def _cells(row: Mapping[str, Any], *, several: bool) -> tuple[str, ...]:
    when = datetime.fromtimestamp(row["at"] / 1000).astimezone()
    this_year = when.year == time.localtime().tm_year
    by = who(row)
    program = row["program"] if row["program"] != by else ""
    texts = (
        f"{row['server']}/{row['tool']}" if several else row["tool"],
        row["outcome"],
        took(row["ms"]),
        by,
        program,
        row["reason"],
    )
    return (
        when.strftime("%d %b %H:%M:%S" if this_year else "%d %b %Y %H:%M:%S"),
        *(terminal.clean(str(text or "-")) for text in texts),
    )


def took(ms: float) -> str:
    """`0.4 ms`, `12 ms`, `3.4 s`, `5 minutes`."""
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1_000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 120_000 else terminal.duration(ms / 1000)
