"""Another user of this machine, and whether this process may start programs as one."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

import msgspec

# <linux/capability.h>: to become another, and to end what runs as another.
_NEEDED: Final = {"CAP_SETUID": 7, "CAP_SETGID": 6, "CAP_KILL": 5}
_CAPABILITY_VERSION: Final = 0x20080522
_PR_CAP_AMBIENT, _CLEAR_ALL = 47, 4  # <sys/prctl.h>


class OtherUser(msgspec.Struct, frozen=True):
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str  # empty where it has none


def find_user(written: str) -> OtherUser:
    """Return the user of that name or number. Raises `ValueError` for one that there is not, and for those that are no others."""
    import pwd

    try:
        known = pwd.getpwuid(int(written)) if written.isdecimal() else pwd.getpwnam(written)
    except KeyError:
        if not written.isdecimal():
            raise ValueError(f"there is no user {written} here") from None
        number = int(written)
        found = OtherUser(written, number, number, (number,), "")
    except OverflowError:
        raise ValueError(f"there is no user {written} here") from None
    else:
        groups = tuple(os.getgrouplist(known.pw_name, known.pw_gid))
        home = known.pw_dir if known.pw_dir != "/" and os.path.isdir(known.pw_dir) else ""
        found = OtherUser(known.pw_name, known.pw_uid, known.pw_gid, groups, home)
    if found.uid == 0 or 0 in (found.gid, *found.groups):
        raise ValueError(f"{written} has root's rights, which nothing is kept from")
    if found.uid in (os.getuid(), os.geteuid()):
        raise ValueError(f"{written} is the user of the server itself")
    if not _is_mapped(found.uid):
        raise ValueError(f"there is no user {written} in this user namespace")
    return found


def missing_rights() -> str:
    """Return why this process may start no programs as others; empty where it may."""
    if sys.platform != "linux":
        return "" if os.geteuid() == 0 else "only root may"
    try:
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
        has = int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)
    except (OSError, ValueError, StopIteration):
        return "the system does not say what it may"
    lacking = [name for name, bit in _NEEDED.items() if not has >> bit & 1]
    return f"it lacks {', '.join(lacking)}" if lacking else ""


def keep_rights_from_programs() -> None:
    """Let what this thread starts inherit none of the rights that this process was given as another than root. Linux only."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)  # a kernel without them gives none
    # Without the former the inheritable ones give nothing either, in a process that gets no new privileges.
    header, rights = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, rights) == 0 and (rights[2] or rights[5]):
        rights[2] = rights[5] = 0
        libc.capset(header, rights)


def _is_mapped(uid: int) -> bool:
    try:
        rows = [line.split() for line in Path("/proc/self/uid_map").read_text("ascii").splitlines()]
    except OSError:
        return True
    return any(int(first) <= uid < int(first) + int(count) for first, _, count in rows)
