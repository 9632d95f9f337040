"""Files and directories of one's own: nobody else gets in, whatever the umask, and nothing is followed or overwritten."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from server.lib.own_files import make_directory, make_file, open_lock_file, open_to_others, replace_file


@pytest.fixture(autouse=True)
def _nothing_is_masked() -> Generator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("make", [make_file, open_lock_file])
def test_a_file_is_made_for_its_owner_alone_and_is_not_inherited(
    tmp_path: Path, make: Callable[[Path], int]
) -> None:
    descriptor = make(tmp_path / "file")
    assert (mode(tmp_path / "file"), os.get_inheritable(descriptor)) == (0o600, False)
    os.close(descriptor)


@pytest.mark.parametrize("make", [make_file, open_lock_file])
def test_a_link_is_not_followed(tmp_path: Path, make: Callable[[Path], int]) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="file"):
        make(tmp_path / "file")
    assert not (tmp_path / "elsewhere").exists()


def test_a_new_file_is_never_one_that_is_there_and_a_lock_is_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(FileExistsError):
        make_file(tmp_path / "file")
    with os.fdopen(open_lock_file(tmp_path / "file"), "r+") as file:
        assert file.read() == "kept"


def test_a_directory_is_made_for_its_owner_alone_with_those_above_and_once(tmp_path: Path) -> None:
    for _ in range(2):
        make_directory(tmp_path / "above" / "own")
    assert mode(tmp_path / "above" / "own") == 0o700


@pytest.mark.parametrize("bits", [0o1, 0o2, 0o4, 0o10, 0o20, 0o40])
def test_each_right_of_others_is_seen(tmp_path: Path, bits: int) -> None:
    tmp_path.chmod(0o700)
    assert not open_to_others(tmp_path.stat())
    tmp_path.chmod(0o700 | bits)
    assert open_to_others(tmp_path.stat())


def test_a_file_is_replaced_whole_by_one_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "file.partial").write_text("what somebody who was killed left behind")
    (tmp_path / "file").touch(0o644)
    replace_file(tmp_path / "file", b"new")
    assert (mode(tmp_path / "file"), (tmp_path / "file").read_bytes()) == (0o600, b"new")
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file.partial").mkdir()
    with pytest.raises(OSError, match="partial"):
        replace_file(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_text() == "old"


def test_what_replaces_a_file_is_on_the_disk_before_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        kind = os.fstat(descriptor).st_mode
        done.append("directory" if stat.S_ISDIR(kind) else f"{os.fstat(descriptor).st_size} bytes")
        sync(descriptor)

    def replaced(old: Path, new: Path) -> None:
        done.append("name")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    replace_file(tmp_path / "file", b"new")
    assert done == ["3 bytes", "name", "directory"]
