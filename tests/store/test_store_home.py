"""The data directory (server/store/data_directory.py)."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from server.store import data_directory
from server.store.data_directory import HomeLocked, HomeRefused, check_local, file_system_type, open_home

CHECKOUT = Path(__file__).parents[2]

HOLD = """
import sys
from pathlib import Path
from server.store.data_directory import open_home
with open_home(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_new_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    with open_home(tmp_path / "a" / "b") as opened:
        assert stat.S_IMODE(opened.path.stat().st_mode) == 0o700
        assert stat.S_IMODE(opened.backups.stat().st_mode) == 0o700
        assert opened.database.parent == opened.key_file.parent == opened.path


@pytest.mark.parametrize("mode", [0o750, 0o705, 0o777, 0o701])
def test_a_directory_open_to_others_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(HomeRefused, match=f"{mode:04o}") as caught, open_home(path):
        pass
    assert caught.value.hint == f"chmod 700 {path}"


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(HomeRefused, match="belongs to uid"), open_home(path):
        pass


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("")
    with pytest.raises(HomeRefused), open_home(path):
        pass


def test_a_directory_that_cannot_be_made_is_told_with_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HomeRefused) as caught, open_home(tmp_path / "file" / "data"):
        pass
    assert "--data-dir" in (caught.value.hint or "")


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    path = tmp_path / "data"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(HomeLocked, match=f"process {holder.pid}") as caught, open_home(path):
            pass
        assert caught.value.hint is not None
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with open_home(path) as opened:  # a killed holder leaves no stale lock
        assert (opened.path / "lock").read_text() == f"{os.getpid()}\n"


def test_the_lock_is_held_within_one_process_too_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with open_home(path), pytest.raises(HomeLocked), open_home(path):
        pass
    with open_home(path):
        pass


def test_removing_the_lock_file_lets_nobody_else_in(tmp_path: Path) -> None:
    with open_home(tmp_path / "data") as home:
        (home.path / "lock").unlink()
        with pytest.raises(HomeLocked, match="lock file was removed"), open_home(tmp_path / "data"):
            raise AssertionError
    with open_home(tmp_path / "data"):
        pass


@pytest.mark.parametrize("removed", [False, True])
def test_whoever_is_not_let_in_leaves_nothing_open(
    removed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: set[int] = set()
    real_open, real_close = os.open, os.close

    def note_open(*given: Any, **how: Any) -> int:
        descriptor = real_open(*given, **how)
        opened.add(descriptor)
        return descriptor

    def note_close(descriptor: int) -> None:
        opened.discard(descriptor)
        real_close(descriptor)

    with open_home(tmp_path / "data") as held:
        if removed:
            (held.path / "lock").unlink()
        monkeypatch.setattr(os, "open", note_open)
        monkeypatch.setattr(os, "close", note_close)
        with pytest.raises(HomeLocked), open_home(tmp_path / "data"):
            pass
        monkeypatch.undo()
    assert opened == set()


def test_what_was_cut_off_is_cleared_at_the_start_and_nothing_else(tmp_path: Path) -> None:
    with open_home(tmp_path / "data") as home:
        kept = [home.path / "ostiary.db", home.path / "master.key", home.backups / "before-schema-3.db"]
        left = [
            home.path / "master.key.partial",
            home.path / "ostiary.db.incoming",
            home.path / "ostiary.db.incoming-journal",
            home.path / "ostiary.db.trial-77",
            home.backups / "before-schema-4.db.partial",
            home.backups / "before-schema-4.db.partial-journal",
        ]
        for path in (*kept, *left):
            path.touch()
    with open_home(tmp_path / "data"):
        assert all(path.exists() for path in kept)
        assert not any(path.exists() for path in left)


def test_a_file_where_back_ups_belong_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with open_home(tmp_path / "data") as home:
        home.backups.rmdir()
        home.backups.touch()
    with pytest.raises(HomeRefused, match="backups is a file") as caught, open_home(tmp_path / "data"):
        raise AssertionError
    assert "move it away" in (caught.value.hint or "")


def test_a_full_disk_under_the_directory_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(HomeRefused, match="No space left") as caught, open_home(tmp_path / "data"):
        raise AssertionError
    assert "free some space" in (caught.value.hint or "")
    assert not caught.value.lasting


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    (tmp_path / "target").write_text("precious")
    (path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(HomeRefused), open_home(path):
        pass
    assert (tmp_path / "target").read_text() == "precious"


MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /srv rw,relatime shared:2 - nfs4 server:/export rw,vers=4.2
31 30 0:26 / /srv/local rw - xfs /dev/vdb rw
32 22 0:27 / /mnt/with\040space rw - cifs //nas/share rw
33 22 0:28 / /over rw - ext4 /dev/vdc rw
34 22 0:29 / /over rw - fuse.sshfs host: rw
35 22 0:30 / /short - xfs /dev/vde rw
36 22 0:31 / - xfs
37 - xfs
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/ostiary", "ext4"),
        ("/srv/ostiary", "nfs4"),
        ("/srv/local/ostiary", "xfs"),
        ("/srvother", "ext4"),
        ("/mnt/with space/data", "cifs"),
        ("/over/data", "fuse.sshfs"),
        ("/short/data", "xfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_nearest_and_latest_mount(path: str, kind: str) -> None:
    assert file_system_type(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"])
def test_a_network_file_system_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 0:1 / / rw - {kind} somewhere rw\n")
    monkeypatch.setattr(data_directory, "_MOUNTINFO", mounts)
    with pytest.raises(HomeRefused, match=kind.replace(".", r"\.")):
        check_local(tmp_path)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay"])
def test_a_local_file_system_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 0:1 / / rw - {kind} somewhere rw\n")
    monkeypatch.setattr(data_directory, "_MOUNTINFO", mounts)
    check_local(tmp_path)


def test_this_systems_own_mount_table_is_understood(tmp_path: Path) -> None:
    if data_directory._MOUNTINFO.exists():
        assert file_system_type(tmp_path.resolve(), data_directory._MOUNTINFO.read_text()) is not None
