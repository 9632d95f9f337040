"""The command `ostiary calls`: who called what, how long it took and what came of it. A table of the newest, or all that come."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from server.cli import local, spans, terminal
from server.cli.manage import call_records, row_pages
from server.cli.manage.call_records import of_which, who

HEADINGS: Final = ("when", "tool", "outcome", "took", "who", "program", "why")
FIELDS: Final = (
    "seq", "at", "time", "server", "tool", "outcome", "reason", "ms", "kind", "subject", "person", "client_id",
    "program", "grant_id", "call_id", "revision", "is_task", "price", "asked", "answered", "passed_over",
)  # fmt: skip


@click.command("calls")
@of_which
@click.option("--failed", is_flag=True, help="only those that failed")
@row_pages.limit_option("at most so many rows")
@row_pages.follow_option
@row_pages.csv_option
@local.which_server
@terminal.json_option
def command(limit: int, follow: bool, as_csv: bool, as_json: bool, **wanted: Any) -> None:
    """Show the calls of tools, newest first: when, by whom, how long they took, and why they failed.

    Neither arguments nor answers are kept. Rows stay for call_days. Beyond 500 calls a second some have no row of their own;
    `ostiary usage` counts them all.
    """
    if as_csv and (as_json or follow):
        raise terminal.Misuse("--csv goes with neither --json nor --follow", hint="use one of them")
    records = call_records.pages(wanted)
    if as_csv:
        row_pages.write_csv(FIELDS, map(told, records.newest(limit)), sys.stdout)
        return
    records.show(
        limit,
        _show,
        told,
        line=_line if follow else None,
        as_json=as_json,
        nothing="no call is like that",
    )


def _show(newest: Sequence[Mapping[str, Any]]) -> None:
    several = len({row["server"] for row in newest}) > 1
    for line in table(newest, terminal.width(sys.stdout), several=several):
        terminal.out(line)
    if passed := sum(row["passed_over"] for row in newest):
        terminal.say(f"{passed} more were too many at once to have rows of their own")
        terminal.say_hint("ostiary usage counts every call")


def _line(row: Mapping[str, Any]) -> str:
    return "  ".join(_painted(row, _cells(row, several=True))).rstrip()


def table(rows: Sequence[Mapping[str, Any]], room: int, *, several: bool) -> list[str]:
    """Draw one line a row where all of it fits; otherwise what was called, and below it by whom and why it failed."""
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
    """Return a row whole, with its time for people."""
    named = {name: row.get(name) for name in FIELDS}
    return {**named, "time": spans.iso(row["at"]), "is_task": bool(row["is_task"])}


def _painted(row: Mapping[str, Any], cells: tuple[str, ...]) -> tuple[str, ...]:
    from server.store.call_records.call_record import FAILURES

    style = "red" if row["outcome"] in FAILURES else "green" if row["outcome"] == "ok" else "yellow"
    return (*cells[:2], terminal.paint(cells[2], style, sys.stdout), *cells[3:])


def _cells(row: Mapping[str, Any], *, several: bool) -> tuple[str, ...]:
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
        spans.told_shortly(row["at"]),
        *(terminal.clean(str(text or "-")) for text in texts),
    )


def took(ms: float) -> str:
    """Write `0.4 ms`, `12 ms`, `3.4 s`, `5 minutes`."""
    if ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1_000:
        return f"{ms:.0f} ms"
    return f"{ms / 1000:.1f} s" if ms < 120_000 else terminal.duration(ms / 1000)
