"""A whole run of scripts/test: it runs every test file, tells of each end, and lets a test race once."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "scripts" / "test.d"
FAILS = "def test_it(): assert 0\n"
ONCE = """
import pathlib
def test_it():
    before = pathlib.Path(__file__).with_suffix(".ran")
    assert before.exists() or before.touch()
"""


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.syspath_prepend(str(PROGRAMS))
    names = ("entries", "schedule", "raced", "whole")
    found = {name: importlib.import_module(name) for name in names}
    yield found
    for name in names:
        del sys.modules[name]


def test_each_test_file_is_in_one_group_and_a_second_for_its_tests_apart(programs: dict[str, Any]) -> None:
    entries = programs["entries"]
    groups = entries.tests(entries.read_costs())
    kinds: dict[str, list[str]] = {}
    for group in groups:
        kind = group.name.partition("-")[0]
        kind = kind if kind in ("browser", "postgres") else "all"
        kinds.setdefault(kind, []).extend(part for part in group.command if part.endswith(".py"))
    for files in kinds.values():
        assert len(files) == len(set(files))
    there = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if "node_modules" not in path.parts
    }
    assert there - set(kinds["all"]) == {entries.CHECKED}
    for kind in ("browser", "postgres"):
        assert set(kinds[kind]) < there
    for name in entries.ON_POSTGRES:
        assert (ROOT / name).exists()


def test_nothing_begins_before_what_it_finds_on_a_new_machine(programs: dict[str, Any]) -> None:
    entries = programs["entries"]
    groups = entries.tests(entries.read_costs())
    assert all("system" in group.needs for group in groups), "a database is one of its packages"
    steps = {each.name: each for each in entries.commands()}
    for group in groups:
        if {"tests/e2e/test_wheel.py", "tests/e2e/test_executable.py"} & set(group.command):
            assert {"build", "wheel"} <= group.needs, group.name
        foreign = any(part.startswith("tests/e2e/") for part in group.command)
        foreign |= {"tests/agents/python/shim/test_shim_in_process.py"} <= set(group.command)
        assert (set(entries.PEERS) <= group.needs) == foreign, group.name
    assert all(need in steps for each in (*groups, *steps.values()) for need in each.needs)
    assert "build" in steps["wheel"].needs, "it empties the folder into which a wheel is put"


def test_each_test_file_inside_the_process_is_in_one_share_of_the_quick_run(programs: dict[str, Any]) -> None:
    entries = programs["entries"]
    shares = entries.short_tests(entries.read_costs(), 2)
    files = [part for share in shares for part in share.command if part.endswith(".py")]
    assert len(shares) == 2
    assert len(files) == len(set(files))
    assert set(files) == {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if not {"node_modules", "e2e"} & set(path.parts)
    }


def test_what_is_on_record_as_long_is_left_out_of_a_short_run(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text("def test_short(): pass\n" + FAILS.replace("it", "long"), "utf-8")
    record = tmp_path / "costs.json"
    record.write_text('{"test_two.py": [2.0, 2.0, 0.0, ["test_long"]]}', "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p tests.cost_plugin\n", "utf-8")
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--costs-on-record", str(record))
    short, whole = (
        subprocess.run((*command, *more), cwd=tmp_path, capture_output=True, text=True, check=False)
        for more in (("--short",), ())
    )
    assert (short.returncode, whole.returncode) == (0, 1), short.stdout + whole.stdout
    assert "1 deselected" in short.stdout


def entry(programs: dict[str, Any], name: str, program: str, *needs: str, **fields: Any) -> Any:
    command = (sys.executable, "-c", program)
    return programs["entries"].Entry(name, command, frozenset(needs), **fields)


def test_a_step_begins_when_what_it_needs_has_ended_well_or_not(
    programs: dict[str, Any], tmp_path: Path
) -> None:
    made = tmp_path / "made"
    entries = [
        entry(programs, "second", f"assert open({str(made)!r}).read() == 'made'", "first", seconds=100),
        entry(programs, "first", f"open({str(made)!r}, 'w').write('made'); raise SystemExit(3)"),
    ]
    ended: list[Any] = []
    programs["schedule"].Schedule(entries, tmp_path, {}, 2).run(ended.append)
    assert [(each.entry.name, each.status) for each in ended] == [("first", 3), ("second", 0)]


def test_no_more_run_at_once_than_the_cores_have_work_for_but_each_runs(
    programs: dict[str, Any], tmp_path: Path
) -> None:
    """Each looks whether another is there."""
    alone = "import os, sys; os.mkdir(sys.argv[1]); os.rmdir(sys.argv[1])"
    entries = [
        programs["entries"].Entry(
            str(number), (sys.executable, "-c", alone, str(tmp_path / "here")), load=9.0
        )
        for number in range(4)
    ]
    ended: list[Any] = []
    programs["schedule"].Schedule(entries, tmp_path, {}, 2).run(ended.append)
    assert [each.status for each in ended] == [0] * 4


@pytest.mark.parametrize(("tries", "status"), [(2, 0), (1, -signal.SIGKILL)])
def test_a_step_that_hangs_is_ended_and_begun_anew_where_it_may_be(
    programs: dict[str, Any], tmp_path: Path, tries: int, status: int
) -> None:
    hung = tmp_path / "hung"
    program = f"import os, signal; os.path.exists({str(hung)!r}) or (os.mkdir({str(hung)!r}), signal.pause())"
    entries = [
        entry(programs, "download", program, most=9.0, tries=tries),
        entry(programs, "next", "", "download"),
    ]
    ended: list[Any] = []
    schedule = programs["schedule"].Schedule(entries, tmp_path, {}, 2, now=lambda: 10.0 * hung.exists())
    schedule.run(ended.append)
    assert [(each.entry.name, each.status) for each in ended] == [("download", status), ("next", 0)]
    assert ("took more than 9 s" in ended[0].said.read_text("utf-8")) == (tries == 1)


@pytest.mark.parametrize(
    ("text", "on_record", "status"), [(FAILS, False, 1), (ONCE, False, 0), (ONCE, True, 1)]
)
def test_a_test_that_passes_alone_may_fail_once(
    programs: dict[str, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    on_record: bool,
    status: int,
) -> None:
    entries, raced, whole = (programs[name] for name in ("entries", "raced", "whole"))
    file = tmp_path / "test_racing.py"
    file.write_text(text, "utf-8")
    rows = tmp_path / "raced.txt"
    rows.write_text("# rows\n", "utf-8")
    monkeypatch.setattr(raced, "LIST", rows)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -p tests.postgres_plugin -p tests.cost_plugin\n", "utf-8"
    )
    for module in (entries, whole):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(programs["schedule"], "ROOT", tmp_path)
    monkeypatch.setattr(whole, "PYTHON", sys.executable)
    monkeypatch.setattr(whole, "commands", list[Any])
    group = entries.Entry("inside-1", (sys.executable, "-m", "pytest", file.name), store="sqlite")
    monkeypatch.setattr(whole, "tests", lambda costs: [group])
    monkeypatch.setattr(whole, "read_costs", dict[str, Any])
    test = f"{file.name}::test_it"
    if on_record:
        raced.record(raced.Raced("sqlite", test))
    folder = tmp_path / "folder"
    folder.mkdir()
    assert whole.Whole(folder).run(record=False) == status
    assert (raced.Raced("sqlite", test) in raced.on_record()) == (text == ONCE)
    assert list(json.loads((folder / "inside-1.costs").read_text("utf-8"))) == [file.name]


def test_whoever_commits_a_row_of_raced_tests_writes_its_cause(programs: dict[str, Any]) -> None:
    raced = programs["raced"]
    rows = [line for line in raced.LIST.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    assert len(raced.on_record()) == len(rows)
    assert not [row for row in rows if row.endswith(raced.UNKNOWN)]
    assert not [each for each in raced.on_record() if not (ROOT / each.test.partition("::")[0]).exists()]
