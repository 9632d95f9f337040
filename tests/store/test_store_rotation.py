"""Back-ups made again and again into one directory (server/store/rotation.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_engines import NOW

from server.store.database_snapshot import BackupFailed, stamp, stamped
from server.store.rotation import back_up_into, copies, last_made

DAY = 86_400_000


def test_the_newest_so_many_stay_and_what_is_not_ours_is_left_alone(database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    folder.mkdir()
    for name in ("before-schema-3-from-2-20260101T000000.000Z.db", "ostiary.db", "ostiary-mine.db"):
        (folder / name).touch()
    made = [back_up_into(database, folder, keep=3, now=NOW + number * DAY) for number in range(5)]
    assert copies(folder, now=NOW + 5 * DAY) == made[-3:]
    assert len(list(folder.iterdir())) == 3 + 3
    assert last_made(folder, now=NOW + 5 * DAY) == NOW + 4 * DAY


def test_without_a_number_all_stay(database: Path, tmp_path: Path) -> None:
    made = [
        back_up_into(database, tmp_path / "copies", keep=None, now=NOW + number * DAY) for number in range(4)
    ]
    assert copies(tmp_path / "copies", now=NOW + 4 * DAY) == made


def test_copies_that_a_wrong_clock_named_neither_outlive_true_ones_nor_put_them_off(
    database: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "copies"
    for number in range(3):
        back_up_into(database, folder, keep=3, now=NOW + 4000 * DAY + number)
    assert last_made(folder, now=NOW) is None
    made = [back_up_into(database, folder, keep=3, now=NOW + number) for number in range(3)]
    assert copies(folder, now=NOW + 3) == made


def test_a_copy_that_fails_removes_none(database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copies"
    made = back_up_into(database, folder, keep=1, now=NOW)
    database.unlink()
    with pytest.raises(BackupFailed):
        back_up_into(database, folder, keep=1, now=NOW + DAY)
    assert copies(folder, now=NOW + DAY) == [made]


def test_a_directory_that_cannot_be_made_is_said(database: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackupFailed, match="file"):
        back_up_into(database, tmp_path / "file" / "copies", keep=1, now=NOW)


@pytest.mark.parametrize("moment", [0, 1, 999, 1_000, 1_800_000_000_123, 4_102_444_799_999])
def test_a_stamp_is_read_back_to_the_millisecond(moment: int) -> None:
    assert stamped(stamp(moment)) == moment


def test_stamps_sort_by_time_and_tell_it() -> None:
    assert stamp(1_800_000_000_123) == "20270115T080000.123Z"
    assert sorted(map(stamp, (1_000, 0, 999, 86_400_000))) == [*map(stamp, (0, 999, 1_000, 86_400_000))]
