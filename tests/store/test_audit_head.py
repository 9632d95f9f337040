"""The file with the head of the audit trail (server/store/audit_head.py)."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from server.store.audit_head import HeadFile, HeadLost
from server.store.jobs import Position

KEY = b"a key of this chain alone"
FIRST, SECOND, THIRD = (Position(seq=seq, mac=f"{seq:064x}") for seq in (1, 20, 300))


@pytest.fixture
def file(tmp_path: Path) -> HeadFile:
    return HeadFile(tmp_path / "audit.head", KEY)


def test_what_was_written_is_read_by_whoever_has_the_key(file: HeadFile) -> None:
    for heads in ((Position(seq=0, mac=""),), (FIRST,), (FIRST, SECOND)):
        file.write(*heads)
        assert HeadFile(file.path, KEY).read() == heads
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == ["audit.head"]
    with pytest.raises(HeadLost, match="not as it was written"):
        HeadFile(file.path, b"another").read()


def test_a_head_is_added_beside_the_newest_that_is_there(file: HeadFile) -> None:
    file.add(FIRST)
    assert file.read() == (FIRST,)
    file.add(SECOND)
    file.add(THIRD)
    assert file.read() == (SECOND, THIRD)


def test_a_missing_file_and_one_that_was_altered_or_cut_are_lost(file: HeadFile) -> None:
    with pytest.raises(HeadLost, match="No such file"):
        file.read()
    file.write(SECOND)
    text = file.path.read_text()
    for other in ("", "\n", text[:-2], text[1:], text.replace("20:", "10:"), "\xff", text * 40):
        file.path.write_text(other)
        with pytest.raises(HeadLost, match="not as it was written"):
            file.read()


def test_what_a_write_that_was_cut_off_has_left_is_in_nobodys_way(file: HeadFile) -> None:
    file.write(FIRST)
    file.path.with_name("audit.head.partial").write_text("half")
    assert file.read() == (FIRST,)
    file.write(SECOND)
    assert file.read() == (SECOND,)
