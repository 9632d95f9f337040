"""`ostiary calls` and `ostiary usage`, at a machine whose server is not running: from its database."""

from __future__ import annotations

import csv
import json
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from shell import Terminal

from auth.values.identity_model import ANONYMOUS, Principal, PrincipalKind
from server.cli.manage import calls, usage
from server.cli.manage.calls import took
from server.store.call_records import call_rows
from server.store.call_records.call_book import CallBook
from server.store.call_records.call_record import CallRecord
from server.store.inline_store import open_inline_store

NOON = 1_799_971_200_000 // 86_400_000 * 86_400_000 + 43_200_000
ADA = Principal(kind=PrincipalKind.USER, subject="u1", client_id="c1", person="Ada", program="Editor")


def call(at: int, tool: str, outcome: str, who: Principal = ADA, reason: str = "") -> CallRecord:
    return CallRecord(at, "main", tool, outcome, reason, 0.0123, who, "r", "2026-07-28", False, None, 9, 9)


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A data directory with three calls in it."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    book = CallBook()
    book.waiting += [
        call(NOON, "echo", "ok"),
        call(NOON + 1_000, "search", "timeout", reason="=1+1 did not answer in time"),
        call(NOON + 86_400_000, "echo", "ok", ANONYMOUS),
    ]
    book.count(10)
    batch = book.take()
    assert batch is not None
    async with open_inline_store(folder / "ostiary.db", clock=lambda: NOON, backups=folder) as store:
        await store.write(partial(call_rows.write, batch=batch, most_rows=1_000))
    return folder


async def test_calls_are_listed_newest_first_with_who_and_why(shell: Terminal, data: Path) -> None:
    done = await shell.run("calls", "--data-dir", str(data))
    assert (done.code, done.stderr) == (0, "")
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == ["when", "tool", "outcome", "took", "who", "program", "why"]
    assert [row.split()[3:5] for row in rows] == [["echo", "ok"], ["search", "timeout"], ["echo", "ok"]] or [
        row.split()[4:6] for row in rows
    ] == [["echo", "ok"], ["search", "timeout"], ["echo", "ok"]]  # with the year, unless it is this one
    assert rows[1].endswith("12 ms  Ada        Editor   =1+1 did not answer in time")
    assert "anonymous" in rows[0]


async def test_what_is_listed_can_be_narrowed(shell: Terminal, data: Path) -> None:
    async def found(*options: str) -> list[str]:
        done = await shell.run("calls", "--data-dir", str(data), "--json", *options)
        return [f"{row['tool']} {row['outcome']} {row['person']}" for row in json.loads(done.stdout)]

    assert await found("--failed") == ["search timeout Ada"]
    assert await found("--person", "Ada", "--tool", "echo") == ["echo ok Ada"]
    assert await found("--limit", "1") == ["echo ok "]
    assert await found("--until", "2000-01-01") == []
    assert await found("--server", "other") == []
    done = await shell.run("calls", "--data-dir", str(data), "--person", "Eve")
    assert (done.code, done.stdout, done.stderr) == (0, "", "no call is like that\n")


async def test_a_spreadsheet_computes_nothing_that_an_agent_said(shell: Terminal, data: Path) -> None:
    done = await shell.run("calls", "--data-dir", str(data), "--csv", "--failed")
    (row,) = csv.DictReader(StringIO(done.stdout))
    assert row["reason"] == "'=1+1 did not answer in time"
    assert row["client_id"] == "c1"
    assert (await shell.run("calls", "--csv", "--json")).code == 2


async def test_usage_is_summed_up_by_day_tool_and_person_with_bars(shell: Terminal, data: Path) -> None:
    since = ("--since", "2020-01-01", "--data-dir", str(data))
    done = await shell.run("usage", *since)
    heading, first, second = done.stdout.splitlines()
    assert heading.split() == ["day", "calls", "failed", "half", "took", "95", "%", "took"]
    assert first.split()[1:3] == ["2", "1"]
    assert first.endswith(" " + "█" * usage.BAR)
    assert second.endswith(" " + "█" * (usage.BAR // 2))
    by_person = json.loads((await shell.run("usage", *since, "--by", "person", "--json")).stdout)
    assert [(row["person"], row["subject"], row["count"]) for row in by_person] == [
        ("Ada", "", 2),
        ("", "anonymous", 1),
    ]
    table = (await shell.run("usage", *since, "--by", "tool", "--csv")).stdout
    assert [row["tool"] for row in csv.DictReader(StringIO(table))] == ["echo", "search"]
    assert (await shell.run("usage", "--data-dir", str(data), "--until", "2000-01-01")).stderr == (
        "nothing was called then\n"
    )


def test_where_a_line_has_no_room_for_all_of_it_whoever_called_and_why_it_failed_stand_below() -> None:
    row = {
        "at": NOON, "server": "main", "tool": "x" * 90, "outcome": "error", "ms": 3.0, "kind": "user", "subject": "u",
        "person": "Ada", "program": "Editor", "reason": "no such city " * 20, "passed_over": 0,
    }  # fmt: skip
    head, by, why = calls.table([row], 80, several=False)
    assert max(map(len, (head, by, why))) <= 80
    assert "  error  3.0 ms  xxxx" in head
    assert by == "    Ada, by way of Editor"
    assert why.startswith("    no such city no such city")
    assert why.endswith("…")


def test_a_long_name_is_cut_rather_than_a_number_and_the_bar_goes_first() -> None:
    row = {"server": "main", "tool": "x" * 90, "count": 12_345, "failed": 7, "p50": 3.0, "p95": 61_000.0}
    (heading, line) = usage.table("tool", [row], 80)
    assert len(line) <= 80
    assert line.split()[1:] == ["12,345", "7", "3.0", "ms", "61.0", "s"]
    assert "…" in line
    short = usage.table("tool", [{**row, "tool": "x"}], 80)[1]
    assert short.endswith("█")
    assert len(short) <= 80
    assert heading.startswith("tool ")


@pytest.mark.parametrize(
    ("ms", "words"),
    [(0.04, "0.0 ms"), (9.96, "10.0 ms"), (12.3, "12 ms"), (3_400, "3.4 s"), (300_000, "5 minutes")],
)
def test_times_are_short(ms: float, words: str) -> None:
    assert took(ms) == words


async def test_where_the_rows_are_in_postgresql_an_older_file_is_not_taken_for_them(
    shell: Terminal, data: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "ostiary.toml"
    settings.write_text(f'store = "file:address"\ndata_dir = "{data}"\n', "utf-8")
    for command in ("calls", "usage"):
        done = await shell.run(command, "--config", str(settings))
        assert (done.code, done.stdout) == (1, "")
        assert "PostgreSQL" in done.stderr
        assert "ostiary serve" in done.stderr


async def test_without_a_server_and_without_a_database_it_says_so(shell: Terminal, tmp_path: Path) -> None:
    done = await shell.run("calls", "--data-dir", str(tmp_path / "none"))
    assert done.code == 1
    assert "no server is running" in done.stderr
