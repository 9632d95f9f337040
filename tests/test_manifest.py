"""The behaviour manifest against the tests, both ways: every cell of every requirement has a test, and every marker names a
cell that is claimed. Tests are read, not run.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.requirements import NOT_OURS, REQUIREMENTS, SECTIONS, Cell, claimed

TESTS = Path(__file__).parent
PLACES = ("2024-11-05 ", "2025-03-26 ", "2025-06-18 ", "2025-11-25 ", "2026-07-28 ", "ext-tasks", "ours", "RFC 9728", "basic/", "server/")  # fmt: skip


class Mark(NamedTuple):
    test: str  # file::name
    requirement: str
    era: str | None
    transport: str | None
    every_cell: bool  # the test takes `cell`, and so runs in each
    pure: bool  # the test speaks to no server: what it proves holds wherever it is used


def marks(source: str, file: str) -> Iterator[Mark]:
    """Those of one file. A marker that is not written out is a mistake, and raises `ValueError`."""
    speaks = "tests.pair" in source or "tests.interaction" in source
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            if (
                not isinstance(decorator, ast.Call)
                or ast.unparse(decorator.func) != "pytest.mark.requirement"
            ):
                continue
            given = {each.arg: ast.literal_eval(each.value) for each in decorator.keywords}
            if len(decorator.args) != 1 or not given.keys() <= {"era", "transport"}:
                raise ValueError(f"{file}::{node.name}: {ast.unparse(decorator)}")
            yield Mark(
                f"{file}::{node.name}",
                ast.literal_eval(decorator.args[0]),
                given.get("era"),
                given.get("transport"),
                any(argument.arg == "cell" for argument in node.args.args),
                not speaks or isinstance(node, ast.FunctionDef),
            )


@pytest.fixture(scope="module")
def found() -> list[Mark]:
    files = ((path, path.read_text("utf-8")) for path in sorted(TESTS.rglob("test_*.py")))
    return [
        mark
        for path, source in files
        if "mark.requirement(" in source and path.name != Path(__file__).name
        for mark in marks(source, str(path.relative_to(TESTS)))
    ]


def test_every_cell_of_every_requirement_has_a_test(found: list[Mark]) -> None:
    proven: dict[str, set[Cell]] = {}
    for mark in found:
        if mark.requirement in REQUIREMENTS:
            cells = claimed(mark.requirement, era=mark.era, transport=mark.transport)
            proven.setdefault(mark.requirement, set()).update(cells)
    missing = [
        f"{row.id}: no test in {cell.era} over {cell.transport}: {row.rule}"
        for row in REQUIREMENTS.values()
        for cell in row.cells
        if cell not in proven.get(row.id, ())
    ]
    assert not missing, "\n" + "\n".join(missing)


def test_every_marker_names_what_is_claimed(found: list[Mark]) -> None:
    wrong = [
        f"{mark.test}: {mark.requirement} has no {mark.era or 'era'} over {mark.transport or 'any wire'}"
        for mark in found
        if mark.requirement not in REQUIREMENTS
        or not claimed(mark.requirement, era=mark.era, transport=mark.transport)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_test_that_speaks_to_a_server_says_which_cells_it_runs_in(found: list[Mark]) -> None:
    """Unless it takes `cell`, or its requirement has one cell, era, or wire anyway."""
    vague: list[str] = []
    for mark in found:
        if mark.pure or mark.every_cell or mark.requirement not in REQUIREMENTS:
            continue
        row = REQUIREMENTS[mark.requirement]
        if (mark.era is None and len(row.eras) > 1) or (mark.transport is None and len(row.transports) > 1):
            vague.append(
                f"{mark.test}: {mark.requirement} in which of {', '.join(map('-'.join, row.cells))}?"
            )
    assert not vague, "\n" + "\n".join(vague)


def test_no_marker_is_there_twice(found: list[Mark]) -> None:
    twice = [mark.test for mark, count in Counter(found).items() if count > 1]
    assert not twice, twice


def test_every_row_is_told_once_and_says_where_it_comes_from() -> None:
    rows = [row for section in SECTIONS.values() for row in section]
    assert len({row.id for row in rows}) == len(rows) == len(REQUIREMENTS)
    for row in rows:
        assert row.rule and row.cells and len(set(row.cells)) == len(row.cells)
        assert row.id.count(".") == 1 and row.id == row.id.lower()
        for place in row.place.split("; "):
            assert place.startswith(PLACES), f"{row.id}: {place}"
    assert all(row.rule and row.reason and row.place.startswith(PLACES) for row in NOT_OURS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("@pytest.mark.requirement('a.b')\ndef test_x(): ...", [("a.b", None, None, False)]),
        ("@pytest.mark.requirement('a.b', era='modern')\nasync def test_x(cell): ...", [("a.b", "modern", None, True)]),
        ("class A:\n @pytest.mark.requirement('a.b', transport='stdio')\n def test_x(self): ...", [("a.b", None, "stdio", False)]),
        ("@pytest.mark.slow\ndef test_x(): ...", []),
    ],
)  # fmt: skip
def test_a_marker_is_read_however_its_test_is_written(source: str, expected: list[object]) -> None:
    assert [tuple(mark)[1:5] for mark in marks(source, "f")] == expected


def test_a_marker_that_cannot_be_read_is_a_mistake() -> None:
    for wrong in ("", "'a.b', 'c.d'", "'a.b', eras='modern'", "name"):
        with pytest.raises(ValueError, match=r"f::|malformed"):
            list(marks(f"@pytest.mark.requirement({wrong})\ndef test_x(): ...", "f"))
