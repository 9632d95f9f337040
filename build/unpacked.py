"""The folder that the launcher unpacked this program into: kept from cleaners of temporary files while the program runs, and those
that killed ones left behind, removed.

The launcher removes its folder itself, and entry.py does where the launcher was killed. Where both were, with SIGKILL, the folder
stays until somebody starts the program again.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path

# The first file that a launcher unpacks (ostiary.spec): by it a folder is known as one of this program's, however little there is.
MARK = "OSTIARY"
NAME = re.compile(r"_MEI([0-9a-f]{8})\w+")  # with the launcher's process number


def hold(folder: Path) -> None:
    """Until this process ends, however that is. systemd-tmpfiles passes over what is locked; cleaners that go by age alone do not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_SH)


def clear_abandoned(own: Path, launcher: int) -> None:
    """Remove what this user's killed ones left beside `own`. Whatever fails is for the next start, or another one is at it."""
    for folder in own.parent.glob("_MEI*"):
        if folder != own and _is_abandoned(folder, launcher):
            with suppress(OSError):
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(descriptor)


def _is_abandoned(folder: Path, launcher: int) -> bool:
    """As far as can be told without its lock. From the first file to the lock, it is the living launcher that speaks for a folder."""
    found = NAME.fullmatch(folder.name)
    if found is None:
        return False
    try:
        status = folder.lstat()
        (folder / MARK).lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return False
    number = int(found[1], 16)
    # In a container, numbers come again: our launcher has this one, and its folder is ours.
    return number == launcher or not _lives(number)


def _lives(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's; or no number that a process can have
        return True
    return True
