"""The command `ostiary audit`: who was let in, by whom, and who was not. A table of the newest rows, or all of them as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click

from auth.audit.audit_actors import shown_actor
from server.cli import local, spans, terminal
from server.cli.manage import row_pages

HEADINGS: Final = ("when", "what", "outcome", "who", "program", "from", "why")


@click.command("audit")
@spans.of_when
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="NAME",
    help="such as device.approved, or device for all of its kind",
)
@click.option("--actor", metavar="WHO", help="such as user:ID, client:ID, local:UID, anonymous")
@click.option("--outcome", type=click.Choice(["ok", "refused"]), help="only these")
@click.option("--client", "client_id", metavar="ID", help="of this program")
@click.option("--login", "grant_id", metavar="ID", help="of this login or key")
@row_pages.limit_option("at most so many rows")
@row_pages.follow_option
@click.option(
    "--export",
    "target",
    metavar="FILE",
    help="every row, oldest first, as JSON lines to a new file, or - for stdout",
)
@local.which_server
@terminal.json_option
def command(limit: int, follow: bool, target: str | None, as_json: bool, **wanted: Any) -> None:
    """Show the audit trail, newest first: what was decided, for whom, from where, and why.

    Rows stay for 400 days. `ostiary verify` checks that they are as they were written.
    """
    if target is not None and follow:
        raise terminal.Misuse(
            "--export ends with the last row, --follow does not end", hint="use one of them"
        )
    trail = row_pages.RowPages("audit", wanted)
    if target is not None:
        row_pages.export(
            target, lambda out: row_pages.write_json(map(told, trail.oldest_first()), out), "row"
        )
        return
    trail.show(
        limit,
        _show,
        told,
        line=(lambda row: "  ".join(_cells(row)).rstrip()) if follow else None,
        as_json=as_json,
        nothing="no row is like that",
    )


def _show(rows: Sequence[Mapping[str, Any]]) -> None:
    for line in table([_cells(row) for row in rows], terminal.width(sys.stdout)):
        terminal.out(line)


def table(rows: Sequence[tuple[str, ...]], room: int) -> list[str]:
    """Draw one line a row where all of it fits; otherwise what was decided, and below it who, from where, and why."""
    whole = terminal.table(HEADINGS, rows, as_wide_as_it_is=True)
    if max(map(terminal.cells, whole)) <= room:
        return whole
    heads = terminal.columns([row[:3] for row in rows])
    lines: list[str] = []
    for head, (who, program, address, why) in zip(heads, (row[3:] for row in rows), strict=True):
        told = [
            who,
            *(each for each in (program, f"from {address}" if address != "-" else "-") if each != "-"),
        ]
        lines.append(head)
        lines.append(terminal.cut(f"    {', '.join(told)}{'' if why == '-' else f': {why}'}", room))
    return lines


def told(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whole, with its time for people in both clocks."""
    return {
        "seq": row["seq"],
        "at": row["at"],
        "time": spans.iso(row["at"]),
        "local": datetime.fromtimestamp(row["at"] / 1000).astimezone().isoformat(timespec="milliseconds"),
        **{name: value for name, value in row.items() if name not in ("seq", "at")},
    }


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    named, by = row.get("program", ""), row["actor"]
    who = shown_actor(by, person=row.get("person", ""), program=named)
    program = (named or row["client_id"]) if by != f"client:{row['client_id']}" else None
    texts = (row["event"], row["outcome"], who, program, row["ip"], row.get("why") or row["reason"])
    return (
        spans.told_shortly(row["at"]),
        *(terminal.clean(str(text or "-")) for text in texts),
    )
