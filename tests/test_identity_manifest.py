"""The checklist of identity against the tests, both ways: every line is there and names tests that exist, and every test that
was written for the checklist is named by a line. Tests are read, not run.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

from tests.identity_requirements import EXTENT, LINES, Line, NotDone

TESTS = Path(__file__).parent
# Written for the checklist alone: whole files, and single tests among others of their noun.
ITS_OWN = (
    "auth/clients/test_registered_on_pages.py",
    "auth/tokens/test_remembered_tokens.py",
    "e2e/test_approval_in_terminal.py",
    "e2e/test_client_habits.py",
    "e2e/test_logins_killed.py",
    "e2e/test_refresh_races.py",
    "lib/http_client/test_pinned_fetch.py::test_a_body_of_unknown_length_is_bounded_to_the_byte_as_well",
    "run/test_clock_watch.py",
    "run/test_hashing.py",
)


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    named = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in named if node.name.startswith("test_"))


def its_own() -> list[str]:
    tests: list[str] = []
    for place in ITS_OWN:
        file, _, name = place.partition("::")
        tests += [f"{file}::{each}" for each in ([name] if name else sorted(names_in(file)))]
    return tests


def named() -> list[tuple[str, str]]:
    return [(line.id, test) for line in LINES if isinstance(line, Line) for test in line.tests]


def test_every_line_of_every_area_is_there_once() -> None:
    expected = [f"{area}-{number:0{1 if area == 'A' else 2}}" for area, count in EXTENT.items() for number in range(1, count + 1)]  # fmt: skip
    assert [line.id for line in LINES] == expected


def test_every_line_is_proven_or_says_why_it_is_not_so() -> None:
    for line in LINES:
        assert line.rule, line.id
        match line:
            case Line():
                assert line.tests, line.id
            case NotDone():
                assert line.reason, line.id


def test_every_test_that_a_line_names_exists() -> None:
    missing: list[str] = []
    for line, test in named():
        file, _, name = test.partition("::")
        if not (TESTS / file).is_file() or name not in names_in(file):
            missing.append(f"{line}: {test}")
    assert not missing, "\n" + "\n".join(missing)


def test_no_line_names_a_test_twice() -> None:
    assert not [pair for pair, count in Counter(named()).items() if count > 1]


def test_every_test_that_was_written_for_the_checklist_is_named_by_a_line() -> None:
    proven = {test for _, test in named()}
    idle = [test for test in its_own() if test not in proven]
    assert not idle, "\n" + "\n".join(idle)


def test_the_page_on_security_tells_every_line_that_is_not_done() -> None:
    page = (TESTS.parent / "docs" / "security.md").read_text("utf-8")
    open_lines = [row for row in page.splitlines() if row.startswith("- [ ]")]
    for line in LINES:
        if isinstance(line, NotDone):
            for word in line.told_as:
                assert any(word in row for row in open_lines), f"{line.id}: {word}"
