"""A configuration file of another program: read whole, backed up, replaced whole with its mode.

The back-up lies beside it or, if it is a project's, in a folder of the person's; the newest few are kept. A symbolic link stays one: what
it points to is replaced. A file that somebody else wrote to meanwhile is left to them.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from server.client.client_errors import ClientError
from server.lib.own_files import make_directory, sync_directory

# Some of them keep their whole history in there.
MAX_FILE: Final = 64 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
BACKUPS_KEPT: Final = 3
# What comes after the name of the file.
_BACKUP_ENDING: Final = re.compile(r"\.bak-(\d{8}T\d{6})(?:-(\d{1,2}))?")


class FileRefused(ClientError):
    """The file cannot be used as it is; nothing was changed."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    path: Path  # as its program names it
    real: Path  # behind all links
    data: bytes | None  # None: there is no such file yet
    mode: int
    backups: Path | None = None  # the folder for them; None: beside it

    @property
    def text(self) -> str:
        data = (self.data or b"").removeprefix(_BOM)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise FileRefused(f"{self.path} is no text in UTF-8") from None


def look(path: Path, *, new_mode: int, backups: Path | None = None) -> Found:
    """Read the file as it is now. `new_mode`: of one that is not there yet."""
    try:
        real = path.resolve(strict=False)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise _refused("read", path, error) from None
    try:
        fd = os.open(real, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return Found(path=path, real=real, data=None, mode=new_mode, backups=backups)
    except OSError as error:
        raise _refused("read", path, error) from None
    status = os.fstat(fd)
    refusal = _unusable(path, status)
    if refusal is not None:
        os.close(fd)
        raise refusal
    with os.fdopen(fd, "rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise FileRefused(f"{path} is larger than any configuration")
    return Found(path=path, real=real, data=data, mode=stat.S_IMODE(status.st_mode), backups=backups)


def _unusable(path: Path, status: os.stat_result) -> FileRefused | None:
    if not stat.S_ISREG(status.st_mode):
        return FileRefused(f"{path} is no plain file")
    if status.st_uid != os.geteuid():
        return FileRefused(f"{path} belongs to another user", hint="run this as that user")
    if not status.st_mode & stat.S_IWUSR:
        return FileRefused(
            f"{path} is read-only", hint=f"chmod u+w {quote(str(path))}, if it is yours to change"
        )
    return None


def write(found: Found, text: str) -> Path | None:
    """Put `text` in its place, durably. The back-up, where there was something before."""
    data = text.encode("utf-8")
    if (found.data or b"").startswith(_BOM):
        data = _BOM + data
    try:
        found.real.parent.mkdir(parents=True, exist_ok=True)
        _unchanged(found)
        backup = None if found.data is None else _kept(found, found.data)
        _put(found.real, data, found.mode)
    except OSError as error:
        raise _refused("write", found.path, error) from None
    return backup


def remove(found: Found) -> Path | None:
    """Take away a file that only we had put there; kept as a back-up all the same."""
    try:
        _unchanged(found)
        backup = _kept(found, found.data or b"")
        found.real.unlink()
    except OSError as error:
        raise _refused("remove", found.path, error) from None
    return backup


def _unchanged(found: Found) -> None:
    try:
        now = found.real.read_bytes()
    except FileNotFoundError:
        now = None
    if now != found.data:
        raise FileRefused(f"{found.path} was changed meanwhile", hint="close that program, and try again")


def _kept(found: Found, data: bytes) -> Path:
    folder, name = found.real.parent, found.real.name
    if found.backups is not None:
        folder = found.backups
        make_directory(folder)
        # Many projects have a file of that name.
        name += "-" + hashlib.sha256(os.fsencode(found.real)).hexdigest()[:8]
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    for number in range(100):
        ending = f".bak-{stamp}" if not number else f".bak-{stamp}-{number}"
        backup = folder / (name + ending)
        try:
            fd = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, found.mode)
        except FileExistsError:
            continue
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, found.mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        _thin_out(backup, name)
        return backup
    raise FileRefused(f"there are too many back-ups of {found.path} in {folder}")


def _thin_out(newest: Path, name: str) -> None:
    """Remove the oldest back-ups beside this one, of the same file."""
    dated = list[tuple[str, int, Path]]()
    for each in newest.parent.iterdir():
        ending = _BACKUP_ENDING.fullmatch(each.name.removeprefix(name))
        if each.name.startswith(name) and ending is not None and each != newest:
            dated.append((ending[1], int(ending[2] or 0), each))
    for *_, old in sorted(dated)[: 1 - BACKUPS_KEPT]:
        old.unlink(missing_ok=True)


def _put(path: Path, data: bytes, mode: int) -> None:
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _refused(what: str, path: Path, error: BaseException) -> FileRefused:
    said = (error.strerror if isinstance(error, OSError) else None) or "it is a link in a circle"
    return FileRefused(f"cannot {what} {path}: {said.lower()}")
