"""The command `ostiary usage`: what calls come to, by day, tool, person …, with bars. Every call is counted in it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from server.cli import local, spans, terminal
from server.cli.manage import call_records, row_pages
from server.cli.manage.call_records import of_which, who
from server.cli.manage.calls import took

BY: Final = ("day", "hour", "tool", "person", "server", "outcome")
# Without --since: as many days as single calls are kept for, unless told otherwise; of hours two days.
DAYS: Final = 30
HOURS: Final = 48
FIELDS: Final = ("count", "failed", "ms", "p50", "p95")
BAR: Final = 24  # columns
LEAST_BAR: Final = 6


@click.command("usage")
@of_which
@click.option(
    "--by",
    metavar="WHAT",
    type=click.Choice(BY),
    default="day",
    show_default=True,
    help=f"sum up by {terminal.either(BY)}",
)
@row_pages.csv_option
@local.which_server
@terminal.json_option
def command(by: str, as_csv: bool, as_json: bool, **wanted: Any) -> None:
    """Show how often tools were called, how many calls failed, and how long they took (half of them; 95 of 100).

    The last 30 days are shown, or by the hour the last two; 400 days are kept. Days and hours are UTC.
    """
    if as_csv and as_json:
        raise terminal.Misuse("--csv does not go with --json", hint="use one of them")
    usual = HOURS * spans.UNITS["h"] if by == "hour" else DAYS * spans.DAY
    if wanted["since"] is None:
        wanted["since"] = max(0, spans.now() - usual)
    rows = call_records.ask("usage", {**wanted, "by": by})["rows"]
    told = [_told(row) for row in rows]
    if as_csv:
        row_pages.write_csv([*_names(by), *FIELDS], told, sys.stdout)
    elif as_json:
        terminal.out_json(told)
    elif not rows:
        terminal.say("nothing was called then")
    else:
        for line in table(by, rows, terminal.width(sys.stdout, otherwise=100)):
            terminal.out(line)


def table(by: str, rows: Sequence[Mapping[str, Any]], room: int) -> list[str]:
    """Draw a line for each; the name is cut where there is no room for it, and the bar is left out where there is none for that."""
    headings = (by, "calls", "failed", "half took", "95 % took")
    cells = [
        (
            terminal.clean(_name(by, row)),
            f"{row['count']:,}",
            f"{row['failed']:,}" if row["failed"] else "-",
            took(row["p50"]),
            took(row["p95"]),
        )
        for row in rows
    ]
    widths = [max(terminal.cells(each[place]) for each in (headings, *cells)) for place in range(5)]
    others = sum(widths[1:]) + 4 * 2
    bar = min(BAR, room - others - widths[0] - 2)
    if bar < LEAST_BAR:
        bar = 0
        widths[0] = max(min(widths[0], room - others), 8)
    most = max(row["count"] for row in rows)
    lines = [terminal.paint(_line(headings, widths), "dim", sys.stdout)]
    for each, row in zip(cells, rows, strict=True):
        line = _line(each, widths, red=bool(row["failed"]))
        lines.append(f"{line}  {drawn(row['count'] / most, bar)}".rstrip() if bar else line)
    return lines


def drawn(share: float, room: int) -> str:
    """Draw a bar of a share of `room` columns; what is more than nothing is seen."""
    if not terminal.can_draw(sys.stdout):
        return "#" * max(round(share * room), 1)
    eighths = max(round(share * room * 8), 1)
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]


def _line(cells: Sequence[str], widths: Sequence[int], *, red: bool = False) -> str:
    name = terminal.cut(cells[0], widths[0])
    name += " " * (widths[0] - terminal.cells(name))
    numbers = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    if red:
        numbers[1] = terminal.paint(numbers[1], "red", sys.stdout)
    return "  ".join([name, *numbers])


def _names(by: str) -> tuple[str, ...]:
    if by in ("day", "hour"):
        return ("at", "time")
    return {"tool": ("server", "tool"), "person": ("kind", "subject", "person", "program")}.get(by, (by,))


def _name(by: str, row: Mapping[str, Any]) -> str:
    match by:
        case "day":
            return datetime.fromtimestamp(row["at"] / 1000, UTC).strftime("%Y-%m-%d")
        case "hour":
            return datetime.fromtimestamp(row["at"] / 1000, UTC).strftime("%Y-%m-%d %H:00")
        case "tool":
            return f"{row['server']}/{row['tool']}"
        case "person":
            return who(row)
        case _:
            return str(row[by])


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    if "at" not in row:
        return dict(row)
    return {"at": row["at"], "time": spans.iso(row["at"], "auto"), **row}
