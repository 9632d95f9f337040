"""Who descends from whom, as /proc has it; what a real kernel says is tests/e2e/test_programs_kept_out.py's."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.admin.process_descent import confined, descends

SERVER = 10


def process(
    proc: Path,
    pid: int,
    parent: int,
    *,
    started: int,
    privileges: int = 1,
    filters: int | None = 0,
    name: str = "a b) 7 (c",
) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    fields = ["S", str(parent), *["0"] * 17, str(started), "0"]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}", "utf-8")
    counted = "" if filters is None else f"Seccomp_filters:\t{filters}\n"
    (folder / "status").write_text(f"Name:\tx\nNoNewPrivs:\t{privileges}\nSeccomp:\t0\n{counted}", "utf-8")


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


def test_whoever_may_get_no_new_privileges_is_no_owner_of_a_server_that_may(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, started=0, privileges=0)
    process(tmp_path, SERVER, 1, started=50, privileges=0)
    process(tmp_path, 20, 1, started=60, privileges=1)
    process(tmp_path, 21, 1, started=60, privileges=0)
    assert confined(20, SERVER, tmp_path)
    assert not confined(21, SERVER, tmp_path)


def test_a_service_that_gets_no_new_privileges_takes_nobody_else_like_that_for_its_owner(
    tmp_path: Path,
) -> None:
    process(tmp_path, 1, 0, started=0, privileges=0)
    process(tmp_path, SERVER, 1, started=50, privileges=1, filters=7)
    process(tmp_path, 20, 1, started=60, privileges=1, filters=7)
    process(tmp_path, 21, 1, started=60, privileges=0)
    assert confined(20, SERVER, tmp_path)
    assert not confined(21, SERVER, tmp_path)


@pytest.mark.parametrize("parent", [0, 1])
def test_in_a_container_that_gives_nobody_new_privileges_one_filter_more_marks_a_program(
    tmp_path: Path, parent: int
) -> None:
    """`docker exec` begins processes whose parent is outside."""
    process(tmp_path, 1, 0, started=0, privileges=1, filters=1)
    process(tmp_path, SERVER, 1, started=50, privileges=1, filters=1)
    process(tmp_path, 20, parent, started=60, privileges=1, filters=1)
    process(tmp_path, 21, parent, started=60, privileges=1, filters=2)
    assert not confined(20, SERVER, tmp_path)
    assert not confined(20, 1, tmp_path)
    assert confined(21, SERVER, tmp_path)


def test_in_the_sandbox_of_a_server_its_owner_is_whoever_began_in_it_too(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, started=0, privileges=0)
    process(tmp_path, 5, 1, started=10, privileges=1)
    process(tmp_path, SERVER, 5, started=50, privileges=1)
    process(tmp_path, 20, 5, started=60, privileges=1)
    process(tmp_path, 6, 1, started=20, privileges=1)
    process(tmp_path, 21, 6, started=60, privileges=1)
    assert not confined(20, SERVER, tmp_path)
    assert confined(21, SERVER, tmp_path)


def test_where_a_kernel_counts_no_filters_a_container_goes_by_descent(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, started=0, privileges=1, filters=None)
    process(tmp_path, 20, 0, started=60, privileges=1, filters=None)
    assert not confined(20, 1, tmp_path)


def test_whose_marks_nobody_sees_is_confined(tmp_path: Path) -> None:
    process(tmp_path, SERVER, 0, started=50, privileges=0)
    assert confined(77, SERVER, tmp_path)
    process(tmp_path, 20, 0, started=60, privileges=0)
    assert confined(20, 77, tmp_path)
