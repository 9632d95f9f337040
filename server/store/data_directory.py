"""The data directory: private, on a local disk, and used by one process at a time.

What lies in it is named here; opening the database is `sqlite.py`, the key file `keyfile.py`.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from server.lib.own_files import make_directory, open_lock_file, open_to_others
from server.store.jobs import CannotOpen
from server.store.reserve_file import ReserveFile
from server.store.sqlite_connect import hint_for

# SQLite's log is shared memory and byte-range locks, which these do not keep between machines (or not at all).
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs",
        "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb3", "smbfs", "sshfs",
        "fuse.blobfuse2", "fuse.ceph", "fuse.cephfs", "fuse.curlftpfs", "fuse.davfs", "fuse.davfs2", "fuse.gcsfuse",
        "fuse.glusterfs", "fuse.goofys", "fuse.juicefs", "fuse.mfs", "fuse.moosefs", "fuse.rclone", "fuse.s3fs",
        "fuse.seaweedfs", "fuse.smbnetfs", "fuse.sshfs",
    }
)  # fmt: skip

# What a copy, a restore or a new key leaves that was cut off. SQLite would play the log of one back into the next of its name.
LEFTOVERS: Final = ("*.partial", "*.partial-journal", "*.incoming", "*.incoming-*", "*.trial-*")

_PID_BYTES: Final = 32  # of the lock file, and more
_MOUNTINFO: Final = Path("/proc/self/mountinfo")


class HomeRefused(CannotOpen):
    """The directory is not fit to hold secrets or a database."""

    lasting = True


class HomeUnusable(HomeRefused):
    """The disk does not let the directory be used."""

    lasting = False


class HomeLocked(CannotOpen):
    """Another process uses the directory."""


class DataDirectory(msgspec.Struct, frozen=True):
    """A directory that this process holds. The names in it are a promise to those who back it up by hand."""

    path: Path
    locks: tuple[int, ...] = ()  # open files; whoever inherits one holds the directory as well

    @property
    def database(self) -> Path:
        return self.path / "ostiary.db"

    @property
    def key_file(self) -> Path:
        return self.path / "master.key"

    @property
    def audit_head(self) -> Path:
        return self.path / "audit.head"

    @property
    def ledger_head(self) -> Path:
        return self.path / "ledger.head"

    @property
    def elsewhere(self) -> Path:
        """Says where the rows are, since a database had them: a reference, not an address."""
        return self.path / "store"

    @property
    def ballast(self) -> Path:
        return self.path / "ballast"

    @property
    def backups(self) -> Path:
        return self.path / "backups"


@contextmanager
def open_home(path: Path) -> Generator[DataDirectory]:
    """Make the directory if needed, check it, and hold its lock. Raises `HomeRefused` or `HomeLocked`.

    If the disk is full its ballast is given up, so that a start goes on.

    The lock belongs to the open file: it ends with the process, however that ends, so no stale lock is ever left.
    """
    with ExitStack() as held:
        home = _hold(path, held)
        ReserveFile(home.ballast).make_room_for_start()
        make_private_directory(home.backups)
        clear_what_was_cut_off(home)
        yield home


def _hold(path: Path, held: ExitStack) -> DataDirectory:
    try:
        make_directory(path)
        home = DataDirectory(path.resolve(strict=True))
        locks: list[int] = []
        check_private(home.path)
        check_local(home.path)
        # The lock file names its holder. Somebody may remove it; not the directory itself, as long as there is anything in it.
        for take in (_lock_file, _lock_directory):
            locks.append(take(home.path))
            held.callback(os.close, locks[-1])
    except FileExistsError:
        raise HomeRefused(
            f"the data directory {path} is a file", hint="name a directory: --data-dir"
        ) from None
    except OSError as error:
        raise HomeUnusable(
            f"cannot use the data directory {path}: {error.strerror}",
            hint=hint_for(error) or "name one that can be made: --data-dir",
        ) from error
    return DataDirectory(home.path, tuple(locks))


@contextmanager
def share_home(path: Path, locks: tuple[int, ...]) -> Generator[DataDirectory]:
    """The same in a process that was started by the one which holds it, with its locks: they last until both have ended."""
    with ExitStack() as held:
        for lock in locks:
            held.callback(os.close, lock)
        yield DataDirectory(path.resolve(strict=True), locks)


def clear_what_was_cut_off(home: DataDirectory) -> None:
    """Copies and trials whose maker was killed. Nobody else is at work here but a back-up, which then fails and says so."""
    for directory in (home.path, home.backups):
        for pattern in LEFTOVERS:
            for found in directory.glob(pattern):
                with suppress(OSError):
                    found.unlink()


def make_private_directory(path: Path) -> None:
    try:
        make_directory(path)
        check_private(path)
    except FileExistsError:
        raise HomeRefused(
            f"{path} is a file", hint="move it away: a directory of this name is needed"
        ) from None
    except OSError as error:
        raise HomeUnusable(f"cannot use {path}: {error.strerror}", hint=hint_for(error)) from error


def check_private(path: Path) -> None:
    """Refuse a directory that is not ours alone: whoever can write here can become anyone."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise HomeRefused(f"{path} is not a directory")
    if status.st_uid != os.geteuid():
        raise HomeRefused(
            f"{path} belongs to uid {status.st_uid}, and this process runs as uid {os.geteuid()}",
            hint="run as its owner, or use another data directory",
        )
    if open_to_others(status):
        raise HomeRefused(
            f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o})",
            hint=f"chmod 700 {quote(str(path))}",
        )


def check_local(path: Path) -> None:
    """Refuse network file systems. Where the system does not say what is mounted (not Linux), nothing is refused."""
    try:
        mounts = _MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return
    kind = file_system_type(path, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise HomeRefused(
            f"{path} is on a network file system ({kind}), where the database would be damaged",
            hint="use a data directory on a local disk",
        )


def file_system_type(path: Path, mountinfo: str) -> str | None:
    """The type of the file system that `path` (absolute, without symbolic links) is on, from mountinfo (proc(5))."""
    best = -1
    kind: str | None = None
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount_point = Path(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4]))
        depth = len(mount_point.parts)
        # Of two on one place, the later hides the earlier.
        if depth >= best and path.is_relative_to(mount_point):
            best, kind = depth, after.split(" ")[0]
    return kind


def _lock_directory(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise _in_use(path, "another process, whose lock file was removed") from None
        raise
    return descriptor


def _in_use(path: Path, who: str) -> HomeLocked:
    return HomeLocked(
        f"the data directory {path} is in use by {who}",
        hint="stop it first; or, to start another beside it, give that a directory of its own: --data-dir",
    )


def _lock_file(directory: Path) -> int:
    path = directory / "lock"
    descriptor = open_lock_file(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, _PID_BYTES, 0).decode("ascii", "replace").strip()
            raise _in_use(
                directory, f"process {holder}" if holder.isdecimal() else "another process"
            ) from None
        # Over what is there, and then cut: the other way round it would need room that a full disk does not have.
        os.ftruncate(descriptor, os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
