"""`ostiary audit`: who was let in, by whom, and who was not. A table of the newest rows, or all of them as JSON lines."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import click

from auth.audit.audit_actors import shown_actor
from server.cli import local, spans, terminal
from server.lib.own_files import make_file

PAGE: Final = 1_000
FOLLOW_SECONDS: Final = 1.0
HEADINGS: Final = ("when", "what", "outcome", "who", "program", "from", "why")


@click.command("audit")
@click.option("--since", metavar="WHEN", help="from then on: 2h, 7d, 2026-03-01 or 2026-03-01T12:00")
@click.option("--until", metavar="WHEN", help="before then")
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
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=50,
    show_default=True,
    help="at most so many rows",
)
@click.option("--follow", "-f", is_flag=True, help="go on with what comes, until Ctrl-C")
@click.option(
    "--export", metavar="FILE", help="every row, oldest first, as JSON lines to a new file, or - for stdout"
)
@local.which_server
@terminal.json_option
def command(
    since: str | None,
    until: str | None,
    events: tuple[str, ...],
    actor: str | None,
    outcome: str | None,
    client_id: str | None,
    grant_id: str | None,
    limit: int,
    follow: bool,
    export: str | None,
    as_json: bool,
) -> None:
    """Show the audit trail, newest first: what was decided, for whom, from where, and why.

    Rows stay for 400 days. `ostiary verify` checks that they are as they were written.
    """
    if export is not None and follow:
        raise terminal.Misuse(
            "--export ends with the last row, --follow does not end", hint="use one of them"
        )
    wanted: dict[str, Any] = {
        "since": None if since is None else moment(since),
        "until": None if until is None else moment(until),
        "events": list(events),
        "actor": actor,
        "outcome": outcome,
        "client_id": client_id,
        "grant_id": grant_id,
    }
    trail = Trail(wanted)
    if export is not None:
        _export(trail, export)
        return
    newest = trail.newest(limit)
    if follow:
        _follow(trail, newest, as_json=as_json)
    elif as_json:
        terminal.out_json([told(row) for row in newest])
    elif not newest:
        terminal.say("no row is like that")
    else:
        for line in table([_cells(row) for row in newest], terminal.width(sys.stdout)):
            terminal.out(line)


class Trail:
    """The rows that are wanted, asked for in pages."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._wanted = wanted

    def newest(self, limit: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for page in self._pages(oldest_first=False, at=None, at_most=min(limit, PAGE)):
            found += page
            if len(found) >= limit:
                break
        return found[:limit]

    def oldest(self) -> Iterator[dict[str, Any]]:
        for page in self._pages(oldest_first=True, at=None, at_most=PAGE):
            yield from page

    def after(self, seq: int) -> Iterator[dict[str, Any]]:
        for page in self._pages(oldest_first=True, at=seq, at_most=PAGE):
            yield from page

    def end(self) -> int:
        """The number of the newest row of all; 0 if there is none."""
        page = local.ask("audit", {"oldest_first": False, "at_most": 1})
        return page["rows"][0]["seq"] if page["rows"] else 0

    def _pages(self, *, oldest_first: bool, at: int | None, at_most: int) -> Iterator[list[dict[str, Any]]]:
        while True:
            arguments = {**self._wanted, "oldest_first": oldest_first, "at": at, "at_most": at_most}
            page = local.ask("audit", arguments)
            yield page["rows"]
            at = page["go_on"]
            if at is None:
                return


def _export(trail: Trail, target: str) -> None:
    if target == "-":
        _write(trail, sys.stdout)
        return
    try:
        descriptor = make_file(target)
    except FileExistsError as error:
        raise terminal.CliError(f"{target} exists already", hint="name a new file") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        count = _write(trail, out)
    terminal.say(f"{count} row{'' if count == 1 else 's'} written to {target}")


def _write(trail: Trail, out: TextIO) -> int:
    count = 0
    for row in trail.oldest():
        out.write(json.dumps(told(row), ensure_ascii=True) + "\n")
        count += 1
    return count


def _follow(trail: Trail, newest: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = list(reversed(newest))
    seq = max((row["seq"] for row in rows), default=0)
    # Rows that are not wanted are passed by as well, or each look would begin with them again.
    seq = max(seq, 0 if rows else trail.end())
    while True:
        for row in rows:
            if as_json:
                terminal.out(json.dumps(told(row)))
            else:
                terminal.out("  ".join(_cells(row)).rstrip())
            seq = max(seq, row["seq"])
        sys.stdout.flush()
        time.sleep(FOLLOW_SECONDS)
        rows = list(trail.after(seq))


def table(rows: Sequence[tuple[str, ...]], room: int) -> list[str]:
    """One line a row where all of it fits; otherwise what was decided, and below it who, from where, and why."""
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
    """A row whole, with its time for people in both clocks."""
    at = row["at"] / 1000
    return {
        "seq": row["seq"],
        "at": row["at"],
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        "local": datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds"),
        **{name: value for name, value in row.items() if name not in ("seq", "at")},
    }


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    when = datetime.fromtimestamp(row["at"] / 1000).astimezone()
    this_year = when.year == time.localtime().tm_year
    named, by = row.get("program", ""), row["actor"]
    who = shown_actor(by, person=row.get("person", ""), program=named)
    program = (named or row["client_id"]) if by != f"client:{row['client_id']}" else None
    texts = (row["event"], row["outcome"], who, program, row["ip"], row.get("why") or row["reason"])
    return (
        when.strftime("%d %b %H:%M:%S" if this_year else "%d %b %Y %H:%M:%S"),
        *(terminal.clean(str(text or "-")) for text in texts),
    )


def moment(text: str) -> int:
    """Milliseconds since 1970 of `2h` (ago), or of a date or time in this terminal's clock."""
    ago, at = spans.length(text), spans.date(text)
    if ago is not None:
        return max(0, spans.now() - ago)
    if at is None:
        raise terminal.Misuse(f"{text!r} is no time", hint="2h, 7d, 2026-03-01 or 2026-03-01T12:00")
    return at
