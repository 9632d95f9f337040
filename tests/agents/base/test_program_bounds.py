"""The bounds of a program: which settings are refused, and which files it needs only to run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from server.agents.base import program_confinement
from server.agents.base.child_environment import ChildEnvironment, child_environment
from server.agents.base.program_confinement import unkept
from server.agents.base.program_needs import Changeable, needs_of
from server.lib.other_user import OtherUser, find_user
from server.settings.program_rights import ProgramRights, rights_problems


@pytest.mark.parametrize(
    ("rights", "unconfined", "keys"),
    [
        (ProgramRights(reads=("/a",), writes=(), connects=(443,), run_as="ostiary-programs"), False, []),
        (ProgramRights(reads=(), run_as="alice"), True, ["reads"]),
        (ProgramRights(writes=("/a\0b",)), False, ["writes"]),
        (ProgramRights(run_as="root"), False, ["run_as"]),
        (ProgramRights(run_as="00"), False, ["run_as"]),
        (ProgramRights(run_as="a b"), False, ["run_as"]),
    ],
)
def test_what_contradicts_itself_or_is_no_user_is_refused(
    rights: ProgramRights, unconfined: bool, keys: list[str]
) -> None:
    assert [key for key, _ in rights_problems(rights, unconfined=unconfined)] == keys


@pytest.mark.parametrize(
    ("rights", "abi", "kept"),
    [
        (ProgramRights(), 0, True),
        (ProgramRights(run_as="alice"), 0, True),
        (ProgramRights(reads=()), 0, False),
        (ProgramRights(reads=(), writes=()), 2, True),
        (ProgramRights(connects=(443,)), 3, False),
        (ProgramRights(connects=(443,)), 4, True),
    ],
)
def test_bounds_that_a_kernel_cannot_keep_are_not_taken(
    rights: ProgramRights, abi: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_confinement, "landlock_abi", lambda: abi)
    assert (unkept(rights) == "") is kept


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in (
        "home/.local/bin",
        "home/.local/share/keys",
        "home/bin",
        "app/dist",
        "app/venv/bin",
        "prefix/bin",
    ):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def program(path: Path, text: str = "") -> str:
    path.write_text(text, "utf-8")
    path.chmod(0o755)
    return str(path)


def needed(
    words: Sequence[str],
    folder: Path,
    variables: Mapping[str, str] | None = None,
    writes: Sequence[str] = (),
) -> set[str]:
    return set(needs_of(words, {"PATH": "", **(variables or {})}, str(folder), Changeable(writes)))


def test_a_program_needs_what_lies_around_it_and_no_home(place: Path) -> None:
    assert needed([program(place / "prefix/bin/run")], place) >= {str(place / "prefix")}
    for inside in ("home/bin/run", "home/.local/bin/run"):
        given = needed([program(place / inside)], place)
        assert not given & {str(place / "home"), str(place / "home/.local"), str(place)}


def test_links_and_first_lines_are_followed_to_interpreters(place: Path) -> None:
    python = program(place / "prefix/bin/python3")
    (place / "app/venv/bin/python").symlink_to(python)
    given = needed([program(place / "app/run.py", f"#!{place}/app/venv/bin/python\n")], place)
    assert {str(place / "app"), str(place / "app/venv"), str(place / "prefix")} <= given
    by_name = program(place / "app/other", "#!/usr/bin/env -S python3 -u\n")
    assert str(place / "prefix") in needed([by_name], place, {"PATH": str(place / "prefix/bin")})


def test_what_a_program_may_change_leads_nowhere_at_its_next_start(place: Path) -> None:
    secret = program(place / "prefix/bin/secret")
    (place / "app/run.py").symlink_to(secret)
    (place / "app/linked").symlink_to(place / "prefix")
    first_line = program(place / "app/other", f"#!{secret}\n")
    for word in (str(place / "app/run.py"), first_line, str(place / "app/linked/bin/secret")):
        assert str(place / "prefix") in {os.path.realpath(path) for path in needed([word], place)}
        assert not needed([word], place, writes=[str(place / "app")]) - {str(place)}


def test_a_script_of_node_needs_its_package(place: Path) -> None:
    (place / "app/package.json").touch()
    (place / "app/dist/index.js").touch()
    assert str(place / "app") in needed(["node", "dist/index.js"], place / "app")
    assert str(place / "app") not in needed(["node", "dist"], place)


@pytest.mark.parametrize("written", ["0", "root", "no-such-user-here", str(os.getuid())])
def test_a_user_that_is_none_or_no_other_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"root|no user|itself"):
        find_user(written)


@pytest.mark.parametrize(
    ("written", "home"),
    [((), "/people/bob"), (("HOME",), "/root"), ({"HOME": "/srv/bob"}, "/srv/bob")],
)
def test_another_user_has_a_home_of_its_own_unless_settings_say_otherwise(written: Any, home: str) -> None:
    user = OtherUser("bob", 1001, 1001, (1001,), "/people/bob")
    ours = {"HOME": "/root", "USER": "root", "TMPDIR": "/run/ours", "SHELL": "/bin/sh", "PATH": "/bin"}
    assert child_environment(written, ours, frozen=False, user=user) == {
        "HOME": home, "USER": "bob", "LOGNAME": "bob", "PATH": "/bin"
    }  # fmt: skip


def test_the_process_of_one_caller_is_bound_as_any_other() -> None:
    bound, user = object(), OtherUser("bob", 1001, 1001, (1001,), "/people/bob")
    all_of_them = ChildEnvironment({"PATH": "/bin"}, None, cast("Any", bound), user)
    one = all_of_them.with_caller("bob")
    assert one == {"PATH": "/bin", "OSTIARY_CALLER": "bob"}
    assert (one.kept_out, one.confinement, one.user) == (None, bound, user)
