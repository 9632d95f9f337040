"""A file that only its owner can read, replaced as a whole and changed under a lock.

The caller decides on the content: tokens, names of servers, the spending of a wallet.
"""

from __future__ import annotations

import errno
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from server.lib.file_lock import FileLock, FileRefusal
from server.lib.own_files import open_to_others, replace_file

# Some thousand entries; a larger file is not ours.
MAX_FILE = 4 * 1024 * 1024
IN_CONFIGURATION = "set OSTIARY_CONFIG_HOME"


class PrivateFile:
    """A file that no other user can read, in a directory of the same kind.

    All methods raise `refused` if the file or its directory cannot be used as it is. In the messages, `kept` names the content,
    and `elsewhere` tells how to choose another directory.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        kept: str,
        refused: FileRefusal,
        elsewhere: str = IN_CONFIGURATION,
    ) -> None:
        self.directory = directory
        self.path = directory / name
        self._kept = kept
        self._refused = refused
        self._elsewhere = elsewhere

    def lock(self) -> FileLock:
        return self.lock_named(self.path.stem)

    def lock_named(self, stem: str) -> FileLock:
        return FileLock(self.directory / f"{stem}.lock", refused=self._refused, elsewhere=self._elsewhere)

    def load(self) -> bytes | None:
        """Return the content, or None if there is no file. At most `MAX_FILE` + 1 bytes are read: a longer file is not ours."""
        self._check_directory()
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._refused(
                    f"{self.path} is a symbolic link, and {self._kept} are kept only in a plain file",
                    hint=f"put the file itself there, or {self._elsewhere}",
                ) from None
            raise self._cannot("read", self.path, error) from None
        # First: fdopen has words of its own for a directory.
        problem = self._problem(os.fstat(fd), self.path, directory=False)
        if problem is not None:
            os.close(fd)
            raise problem
        with os.fdopen(fd, "rb") as file:
            return file.read(MAX_FILE + 1)

    def replace(self, data: bytes) -> None:
        """Replace the content, durably. The caller holds the lock and has called `make_directory`."""
        try:
            replace_file(self.path, data)
        except OSError as error:
            raise self._cannot("write", self.path, error) from None

    def set_aside(self) -> Path:
        """Rename a damaged file, and return its new path. The caller holds the lock."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        kept = self.path.with_name(f"{self.path.stem}.damaged-{stamp}{self.path.suffix}")
        try:
            os.rename(self.path, kept)
        except OSError as error:
            raise self._cannot("set aside", self.path, error) from None
        return kept

    def make_directory(self) -> None:
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700)
            self.directory.chmod(0o700)  # whatever the umask took away
        except FileExistsError:
            self._check_directory()
        except OSError as error:
            raise self._cannot("make", self.directory, error) from None

    def _check_directory(self) -> None:
        try:
            found = os.lstat(self.directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._cannot("read", self.directory, error) from None
        if stat.S_ISLNK(found.st_mode):
            raise self._refused(
                f"{self.directory} is a symbolic link, and {self._kept} are kept only in a plain directory",
                hint=f"{self._elsewhere} to the directory that is meant",
            )
        problem = self._problem(found, self.directory, directory=True)
        if problem is not None:
            raise problem

    def _problem(self, found: os.stat_result, path: Path, *, directory: bool) -> Exception | None:
        if not (stat.S_ISDIR(found.st_mode) if directory else stat.S_ISREG(found.st_mode)):
            return self._refused(
                f"{path} is no plain {'directory' if directory else 'file'}", hint="move it away"
            )
        if found.st_uid != os.geteuid():
            return self._refused(
                f"{path} belongs to another user", hint=f"run this as that user, or {self._elsewhere}"
            )
        if open_to_others(found):
            return self._refused(
                f"{path} can be read or changed by others",
                hint=f"chmod {'700' if directory else '600'} {quote(str(path))}",
            )
        return None

    def _cannot(self, what: str, path: Path, error: OSError) -> Exception:
        return self._refused(f"cannot {what} {path}: {(error.strerror or 'unknown error').lower()}")
