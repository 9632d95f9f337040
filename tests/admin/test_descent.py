"""Who descends from whom, as /proc has it; what a real kernel says is tests/e2e/test_programs_kept_out.py's."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.admin.descent import descends

SERVER = 10


def process(
    proc: Path, pid: int, parent: int, *, started: int, privileges: int = 1, name: str = "a b) 7 (c"
) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    fields = ["S", str(parent), *["0"] * 17, str(started), "0"]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}", "utf-8")
    (folder / "status").write_text(f"Name:\tx\nNoNewPrivs:\t{privileges}\nSeccomp:\t0\n", "utf-8")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    process(tmp_path, 1, 0, started=0)
    process(tmp_path, SERVER, 1, started=50)
    return tmp_path


def test_a_child_of_a_child_descends(proc: Path) -> None:
    process(proc, 20, SERVER, started=60)
    process(proc, 21, 20, started=70)
    assert descends(21, SERVER, proc)


def test_who_was_started_by_the_servers_own_parent_does_not(proc: Path) -> None:
    process(proc, 5, 1, started=40)
    process(proc, 20, 5, started=60)
    assert not descends(20, SERVER, proc)
    assert not descends(5, SERVER, proc)
    assert not descends(SERVER, SERVER, proc)


def test_who_was_begun_in_our_container_from_outside_does_not(proc: Path) -> None:
    process(proc, 20, 0, started=60)
    assert not descends(20, SERVER, proc)


def test_a_parent_that_is_younger_than_its_child_is_somebody_else(proc: Path) -> None:
    process(proc, 20, 21, started=60)
    process(proc, 21, 1, started=70)
    assert descends(20, SERVER, proc)


def test_where_a_parent_is_hidden_only_who_may_still_get_rights_is_not_ours(proc: Path) -> None:
    process(proc, 20, 99, started=60, privileges=1)
    process(proc, 21, 99, started=60, privileges=0)
    assert descends(20, SERVER, proc)
    assert not descends(21, SERVER, proc)


def test_who_has_gone_or_goes_round_in_a_circle_cannot_be_told(proc: Path) -> None:
    assert descends(77, SERVER, proc)
    process(proc, 30, 31, started=60)
    process(proc, 31, 30, started=60)
    assert descends(30, SERVER, proc)
