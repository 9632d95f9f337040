"""Room that is held for a full disk (server/store/reserve_file.py)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from server.store.data_directory import open_home
from server.store.reserve_file import BALLAST_BYTES, START_BYTES, ReserveFile


class SmallDisk:
    """It lets files in one directory hold so many bytes together, and no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, size: int) -> None:
        self.directory, self.size = directory, size
        write = os.write

        def write_what_fits(descriptor: int, data: bytes) -> int:
            room = self.size - sum(path.stat().st_size for path in self.directory.iterdir() if path.is_file())
            if room <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, data[:room])

        monkeypatch.setattr(os, "write", write_what_fits)


@pytest.fixture
def ballast(tmp_path: Path) -> ReserveFile:
    return ReserveFile(tmp_path / "ballast")


def length(ballast: ReserveFile) -> int:
    return ballast.path.stat().st_size


def test_it_takes_its_room_on_the_disk_and_is_its_owners_alone(ballast: ReserveFile) -> None:
    assert ballast.fill() == length(ballast) == BALLAST_BYTES
    assert ballast.path.stat().st_mode & 0o777 == 0o600
    assert ballast.path.stat().st_blocks * 512 >= BALLAST_BYTES
    assert ballast.fill() == BALLAST_BYTES


def test_where_there_is_less_room_it_is_as_large_as_fits(
    ballast: ReserveFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SmallDisk(monkeypatch, ballast.path.parent, 100_000)
    assert ballast.fill() == 100_000
    disk.size = BALLAST_BYTES
    assert ballast.fill() == BALLAST_BYTES


def test_what_it_lends_is_free_meanwhile_and_what_is_left_is_taken_back(
    ballast: ReserveFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    SmallDisk(monkeypatch, ballast.path.parent, BALLAST_BYTES)
    ballast.fill()
    with ballast.lent():
        assert length(ballast) == 0
        ballast.path.with_name("log").write_bytes(b"x" * 40_000)
    assert length(ballast) == BALLAST_BYTES - 40_000


def test_it_is_taken_back_from_a_borrower_who_fails(ballast: ReserveFile) -> None:
    with pytest.raises(ZeroDivisionError), ballast.lent():
        raise ZeroDivisionError
    assert length(ballast) == BALLAST_BYTES


@pytest.mark.parametrize("spare", [0, START_BYTES - 1])
def test_a_start_on_a_full_disk_gets_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: int
) -> None:
    with open_home(tmp_path / "data") as home:
        ReserveFile(home.ballast).fill()
    used = sum(path.stat().st_size for path in home.path.iterdir() if path.is_file())
    SmallDisk(monkeypatch, home.path, used + spare)
    with open_home(tmp_path / "data") as home:
        assert home.ballast.stat().st_size == 0
        assert sorted(path.name for path in home.path.iterdir()) == ["backups", "ballast", "lock"]


def test_a_start_with_room_leaves_it_alone(tmp_path: Path) -> None:
    with open_home(tmp_path / "data") as home:
        ReserveFile(home.ballast).fill()
    with open_home(tmp_path / "data") as home:
        assert home.ballast.stat().st_size == BALLAST_BYTES
        assert sorted(path.name for path in home.path.iterdir()) == ["backups", "ballast", "lock"]


def test_a_link_in_its_place_is_not_followed(ballast: ReserveFile, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    ballast.path.symlink_to(precious)
    assert ballast.fill() == 0
    with ballast.lent():
        pass
    assert precious.read_bytes() == b"precious"
