"""scripts/mutants: each kind of wrong decision is made in a copy, and a test that notices it is named."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent
MODULES = ("decisions", "entries", "nearest", "trials")

DECIDING = '''
"""A docstring with 1 in it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

log = logging.getLogger(__name__)
LIMIT = 3
if TYPE_CHECKING:
    NEVER = 1


class Door:
    def __init__(self) -> None:
        self.seen: list[object] = []
        self.last = None

    def __repr__(self) -> str:
        return f"{1 < 2}" if self.seen else "-1"

    def let(self, who: object, *, known: bool, paid: bool) -> bool:
        assert who != 5
        log.warning("door", extra={"number": 7})
        self.seen.append(who)
        self.last = who
        if known:
            return not paid
        return (known) and paid or who is None


def few(count: int) -> bool:
    return (
        count
        <= LIMIT
    )
'''
KINDS = {
    (10, "number", "3", "4"),
    (10, "number", "3", "2"),
    (26, "write", "self.seen.append(who)", ""),
    (27, "write", "self.last = who", ""),
    (28, "if", "known", "not (known)"),
    (29, "not", "not paid", "paid"),
    (30, "and/or", "(known) and paid", "(known) or paid"),
    (30, "and/or", "(known) and paid or who is None", "(known) and paid and who is None"),
    (30, "comparison", "who is None", "who is not None"),
    (35, "comparison", "count <= LIMIT", "count < LIMIT"),
    (35, "comparison", "count <= LIMIT", "count > LIMIT"),
}
SHOP = """
from threading import Event

MOST = (5, 6)[1]

def discount(count):
    return count > 2

def wait(count):
    if count < 0:
        Event().wait()
    return count

def unseen(count):
    return count == 2
"""
TESTS = """
from server.shop.prices import discount, wait

def test_discount():
    assert discount(3)
    assert not discount(2)

def test_wait():
    assert wait(2) == 2
"""
ENDABLE = """
import signal
import pytest

signal.signal(signal.SIGTERM, lambda *_: pytest.fail("ended"))
"""
FILE, TEST = "server/shop/prices.py", "tests/shop/test_prices.py"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    for folder in ("test.d", "mutants.d"):
        monkeypatch.syspath_prepend(str(ROOT / "scripts" / folder))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up one, with a package and a test of it."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    root = tmp_path / "checkout"
    for name, text in {
        "server/__init__.py": "",
        "server/shop/__init__.py": "",
        FILE: SHOP,
        TEST: TESTS,
        "pytest.ini": "[pytest]\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def test_each_kind_of_decision_is_changed_and_nothing_else(programs: SimpleNamespace) -> None:
    made = programs.decisions.mutants("server/door.py", DECIDING.encode())
    assert {
        (each.line, each.kind, " ".join(each.before.split()), " ".join(each.after.split())) for each in made
    } == KINDS
    for each in made:
        written = each.written(DECIDING.encode(), "None").decode()
        compile(written, each.file, "exec")
        lines = written.splitlines()
        assert len(lines) == len(DECIDING.splitlines())
        assert lines[each.line - 1] != DECIDING.splitlines()[each.line - 1]


def test_a_start_as_a_program_decides_nothing(programs: SimpleNamespace) -> None:
    assert programs.decisions.mutants("server/__main__.py", b"print(1 < 2)\n") == []
    assert programs.decisions.mutants("server/x.py", b"if __name__ == '__main__':\n    print(1 < 2)\n") == []


def test_the_same_seed_draws_the_same_from_each_package(programs: SimpleNamespace, checkout: Path) -> None:
    (checkout / "server/stall").mkdir()
    (checkout / "server/stall/table.py").write_text(SHOP, "utf-8")
    files = ["server/shop/prices.py", "server/stall/table.py"]
    drawn = programs.trials.drawn(checkout, files, 6, 1)
    assert drawn == programs.trials.drawn(checkout, files[::-1], 6, 1)
    assert drawn != programs.trials.drawn(checkout, files, 6, 2)
    assert sorted(each.file for each in drawn) == [files[0]] * 3 + [files[1]] * 3


def test_the_nearest_tests_come_first_and_those_on_postgresql_where_it_is_about_that(
    programs: SimpleNamespace, checkout: Path
) -> None:
    for name, text in {
        "server/shop/postgres_prices.py": "",
        "tests/shop/test_opening.py": "",
        "tests/shop/test_postgres_shop.py": "",
        "tests/store/limits/test_counted.py": "from server.shop import (\n    prices,\n)\n",
        "tests/street/test_strolls.py": "from server.shop.prices_of_old import discount\n",
        "tests/interaction/test_calls.py": "",
    }.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text, "utf-8")
    stages, stage = programs.nearest.stages, programs.nearest.Stage
    others = ["tests/shop/test_opening.py", "tests/shop/test_postgres_shop.py"]
    outside = stage(["tests/interaction"])
    assert stages(checkout, FILE) == [
        stage([TEST]), stage(others), stage(["tests/store/limits/test_counted.py"]), outside
    ]  # fmt: skip
    about_postgres = "server/shop/postgres_prices.py"
    (checkout / about_postgres).write_text('"""PostgreSQL."""\n', "utf-8")
    assert stages(checkout, about_postgres) == [
        stage([others[1], TEST, others[0]]), outside, stage(["tests/store/limits"], "postgres")
    ]  # fmt: skip


def tried(programs: SimpleNamespace, checkout: Path, line: str, *only: str) -> dict[str, tuple[str, str]]:
    """Outcome and test, by what the mutants of one line make of it."""
    number = next(number for number, each in enumerate(SHOP.splitlines(), 1) if each == line)
    made = [each for each in programs.decisions.mutants(FILE, SHOP.encode()) if each.line == number]
    wanted = [each for each in made if not only or each.after in only]
    assert wanted
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    folder = Path(mkdtemp(dir=checkout.parent))
    done = programs.trials.Trials(checkout, folder, jobs=1, seconds=600).run(wanted)
    assert {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()} == before
    return {each.mutant.after: (each.outcome, each.by) for each in done}


def test_a_test_that_notices_kills_each_that_it_can(programs: SimpleNamespace, checkout: Path) -> None:
    wrong = ("count >= 2", "count <= 2", "3", "1")
    assert tried(programs, checkout, "    return count > 2") == dict.fromkeys(
        wrong, ("killed", f"{TEST}::test_discount")
    )


def test_what_no_test_notices_survives(programs: SimpleNamespace, checkout: Path) -> None:
    (checkout / TEST).write_text(TESTS.replace("    assert not discount(2)\n", ""), "utf-8")
    outcomes = tried(programs, checkout, "    return count > 2", "count >= 2", "count <= 2")
    assert outcomes == {"count >= 2": ("survived", ""), "count <= 2": ("killed", f"{TEST}::test_discount")}


def test_what_no_test_comes_to_is_told_apart(programs: SimpleNamespace, checkout: Path) -> None:
    assert tried(programs, checkout, "    return count == 2", "3") == {"3": ("not reached", "")}


def test_a_test_that_fails_anyhow_kills_nothing(programs: SimpleNamespace, checkout: Path) -> None:
    failing = "def test_broken():\n    assert discount(1)\n\n"
    (checkout / TEST).write_text(TESTS.replace("def test_discount", f"{failing}def test_discount"), "utf-8")
    assert tried(programs, checkout, "    return count > 2", "3")["3"] == ("killed", f"{TEST}::test_discount")
    assert tried(programs, checkout, "    return count == 2", "3") == {"3": ("not reached", "")}


@pytest.mark.slow
def test_one_that_never_ends_is_killed_and_so_is_one_that_does_not_load(
    programs: SimpleNamespace, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tried(programs, checkout, "MOST = (5, 6)[1]", "2")["2"] == ("killed", f"{TEST} does not load")
    # Whoever is ended writes of it, too: that is no sign of life.
    (checkout / "conftest.py").write_text(ENDABLE, "utf-8")
    monkeypatch.setattr(programs.trials, "STAGE_SECONDS", 10.0)
    monkeypatch.setattr(programs.trials, "HANGING_SECONDS", 5.0)
    outcomes = tried(programs, checkout, "    if count < 0:", "count >= 0")
    assert outcomes["count >= 0"] == ("killed", f"{TEST}::test_wait never ends")


def test_nothing_is_tried_where_the_copy_is_not_what_is_imported(
    programs: SimpleNamespace, checkout: Path
) -> None:
    (checkout / ".gitignore").write_text("server/\n", "utf-8")
    with pytest.raises(programs.trials.CannotRun, match="server"):
        tried(programs, checkout, "    return count > 2")
