"""Files that a started program may not open, or not change: Landlock (Linux 5.19 and newer), which needs no rights and holds for root as well.

Landlock knows only what is allowed, and a right to a folder holds for all below it. So on the way down to each path that is kept out, every
other entry of each folder is allowed by itself. Nothing new can therefore be made in those folders themselves. So it is above what may only be read,
which with a Python file is the code beside it, too: what it imports, and what was compiled of it.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import threading
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Final

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG: Final = 1
_PATH_BENEATH, _NET_PORT = 1, 2
# <sys/prctl.h>, <linux/seccomp.h>, <linux/filter.h>
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 22, 24, 38, 39
_SECCOMP_MODE_FILTER: Final = 2
_RETURN, _ALLOW = 0x06, 0x7FFF0000

# <linux/landlock.h>. Names of files can be listed: a right to list would hold below, and interpreters list their folders.
_EXECUTE, _WRITE_FILE, _READ_FILE = 1 << 0, 1 << 1, 1 << 2
_READ_DIR: Final = 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
# Remove, make, and move between folders.
_OTHERS: Final = sum(1 << bit for bit in (4, 5, 7, 8, 9, 10, 12, 13))
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPED: Final = 1 << 0 | 1 << 1  # sockets with abstract names, and signals
_TCP: Final = 1 << 0 | 1 << 1  # to listen, and to connect
_CONNECT: Final = 1 << 1
# Before the second version nothing can be moved between folders, which package managers do.
OLDEST_ABI: Final = 2
PORTS_ABI: Final = 4  # Linux 6.7

# With these root walks around the kernel's rules: SYS_PTRACE, SYS_MODULE, SYS_RAWIO, SYS_ADMIN, SYS_BOOT, MKNOD, DAC_READ_SEARCH, PERFMON, BPF.
_ROOTS_CAPABILITIES: Final = (19, 16, 17, 21, 22, 27, 2, 38, 39)
_MEMORY_DEVICES: Final = frozenset({"mem", "kmem", "port"})
# What root writes there is done by the kernel, which nothing keeps out.
_OF_THE_KERNEL: Final = frozenset({"/proc", "/sys"})


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("access", ctypes.c_uint64), ("parent", ctypes.c_int32)]


class _Port(ctypes.Structure):
    _fields_ = [("access", ctypes.c_uint64), ("port", ctypes.c_uint64)]


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    ]


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction))]


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result = _libc().syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


@cache
def landlock_abi() -> int:
    """Return the version of Landlock that can be used here; 0 for none."""
    if sys.platform != "linux":
        return 0
    try:
        found = _call(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError:
        return 0
    return found if found >= OLDEST_ABI else 0


def refuse_new_privileges() -> None:
    """Keep this thread, and what it starts, from ever getting more rights, by which the admin socket knows it. Raises `OSError`."""
    already = _libc().prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1
    if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if already:
        _add_mark()


def _add_mark() -> None:
    """Have the system calls of this thread filtered once more, by a filter that allows all: what started this server has taken the other mark.
    Where a kernel has no filters, the socket goes by descent."""
    allow = _Instruction(_RETURN, 0, 0, _ALLOW)
    _libc().prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(_Filter(1, ctypes.pointer(allow))), 0, 0
    )


def confine_thread(
    files: tuple[Collection[str], Collection[str]] | None, ports: Collection[int] | None
) -> None:
    """Let this thread, for ever and with what it starts, open only what may be read and what may be written, and connect only to `ports` by
    TCP, listening on none; None is no rule. A path that is a link, or not there, gives no right. Raises `OSError`; then nothing may be started by it."""
    abi = landlock_abi()
    allowed = _allowed(abi) | _READ_DIR
    handled = 0 if files is None else allowed | _MAKE_CHAR | _MAKE_BLOCK
    described = _Ruleset(handled, 0 if ports is None else _TCP, 0)
    ruleset = _call(_CREATE_RULESET, ctypes.byref(described), 16 if abi >= PORTS_ABI else 8, 0)
    try:
        for paths, access in zip(files or (), (_EXECUTE | _READ_FILE | _READ_DIR, allowed), strict=False):
            for path in paths:
                _allow(ruleset, path, access, (), ())
        for port in ports or ():
            _call(_ADD_RULE, ruleset, _NET_PORT, ctypes.byref(_Port(_CONNECT, port)), 0)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allowed(abi: int) -> int:
    """Return what can be allowed of files and folders, but for listing names."""
    allowed = _EXECUTE | _WRITE_FILE | _READ_FILE | _OTHERS
    return allowed | (_TRUNCATE if abi >= 3 else 0) | (_IOCTL_DEV if abi >= 5 else 0)


class ForbiddenPaths:
    """Paths that started programs may not open, and those that they may only read. Used by several threads. More of them may come."""

    def __init__(self, paths: Collection[Path], read_only: Collection[Path] = ()) -> None:
        self._paths = paths
        self._read_only = read_only
        self._lock = threading.Lock()
        self._ruleset = -1
        self._made_of: object = None

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        ruleset, self._ruleset = self._ruleset, -1
        if ruleset >= 0:
            os.close(ruleset)

    @property
    def folders(self) -> frozenset[str]:
        """Folders in which programs can make nothing new: those above what is kept out."""
        paths, read_only = self._both()
        return frozenset(_ways(paths) | _ways(read_only))

    def holds(self, path: str) -> bool:
        """Return whether `path` is kept out, or below what is."""
        return not _resolved(self._paths).isdisjoint({path, *map(str, Path(path).parents)})

    def restrict_thread(self) -> None:
        """Keep this thread out, for ever, with what it starts. Raises `OSError`; then nothing may be started by it."""
        refuse_new_privileges()
        if os.geteuid() == 0:
            for capability in _ROOTS_CAPABILITIES:
                _libc().prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for what it does not have
        with self._lock:
            _call(_RESTRICT_SELF, self._ready_ruleset(), 0)

    def _both(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return what is kept out, and what else may only be read: nothing below what is kept out."""
        paths, read_only = _resolved(self._paths), _resolved(self._read_only)
        return paths, frozenset(
            each for each in read_only if paths.isdisjoint({each, *map(str, Path(each).parents)})
        )

    def _ready_ruleset(self) -> int:
        """Return one that fits what lies in the folders now."""
        paths, read_only = self._both()
        ways = _ways(paths) | _ways(read_only)
        now = (paths, read_only, [_identity(way) for way in sorted(ways)])
        if self._ruleset < 0 or now != self._made_of:
            self.close()
            self._ruleset = _make_ruleset(paths, read_only, ways)
            self._made_of = now
        return self._ruleset


def _resolved(written: Collection[Path]) -> frozenset[str]:
    """Return them without links, and each link on the way, which could be laid anew."""
    found: set[str] = set()
    for path in tuple(written):
        found.add(os.path.realpath(path))
        for each in (path, *path.parents):
            place = os.path.join(os.path.realpath(each.parent), each.name)
            if each == path or os.path.islink(place):
                found.add(place)
    return frozenset(found)


def _ways(paths: frozenset[str]) -> set[str]:
    """Return the folders above them. One that is below another that is kept out is none."""
    found: set[str] = set()
    for path in paths:
        above = [str(each) for each in Path(path).parents]
        if not paths & set(above):
            found.update(above)
    return found


def _identity(path: str) -> tuple[int, int, int, int] | None:
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns


def _make_ruleset(paths: frozenset[str], read_only: frozenset[str], ways: Collection[str]) -> int:
    abi = landlock_abi()
    allowed = _allowed(abi)
    # Devices can be made nowhere: with root's rights they lead around every path.
    described = _Ruleset(allowed | _MAKE_CHAR | _MAKE_BLOCK, 0, _SCOPED if abi >= 6 else 0)
    size = ctypes.sizeof(described) if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _call(_CREATE_RULESET, ctypes.byref(described), size, 0)
    # By what they are, too: a second name of a file is that file.
    secret = {(seen.st_dev, seen.st_ino) for seen in _seen(paths)}
    fixed = {(seen.st_dev, seen.st_ino) for seen in _seen(read_only)}
    of_python = {os.path.dirname(path) for path in read_only if path.endswith(".py")}
    root = os.geteuid() == 0
    try:
        for way in _ways(read_only) - _ways(paths):  # what comes there later can be read
            _allow(ruleset, way, _EXECUTE | _READ_FILE, (), ())
        for entry in _entries(paths, ways):
            access = allowed
            if root and entry in _OF_THE_KERNEL:
                access &= ~(_WRITE_FILE | _OTHERS)
            if entry in read_only or (os.path.dirname(entry) in of_python and _is_code(entry)):
                access &= _EXECUTE | _READ_FILE
            _allow(ruleset, entry, access, secret, fixed)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def _is_code(entry: str) -> bool:
    """Return whether Python may import it."""
    return entry.endswith((".py", ".pyc", ".so", "/__pycache__")) or os.path.exists(
        os.path.join(entry, "__init__.py")
    )


def _seen(paths: Collection[str]) -> Iterator[os.stat_result]:
    for path in paths:
        try:
            yield os.stat(path)
        except OSError:
            continue


def _entries(paths: Collection[str], ways: Collection[str]) -> Iterator[str]:
    """Yield what is beside the ways, and is not kept out."""
    root = os.geteuid() == 0
    for way in {*ways, "/dev"} if root else ways:
        try:
            names = os.listdir(way)
        except OSError:
            continue
        for name in names:
            entry = os.path.join(way, name)
            if entry in paths or entry in ways or (root and entry == "/dev"):
                continue
            if root and way == "/dev" and not _harmless_device(entry, name):
                continue
            yield entry


def _harmless_device(entry: str, name: str) -> bool:
    """Return whether root may have it: a disk holds every file, and so does memory."""
    try:
        mode = os.lstat(entry).st_mode
    except OSError:
        return False
    return not stat.S_ISBLK(mode) and name not in _MEMORY_DEVICES


def _allow(
    ruleset: int,
    entry: str,
    access: int,
    secret: Collection[tuple[int, int]],
    fixed: Collection[tuple[int, int]],
) -> None:
    """Allow an entry. A link is not followed: where it leads is allowed there, or not. An entry that has gone meanwhile needs no right."""
    try:
        opened = os.open(entry, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        seen = os.fstat(opened)
        if stat.S_ISLNK(seen.st_mode) or (seen.st_dev, seen.st_ino) in secret:
            return
        if (seen.st_dev, seen.st_ino) in fixed:
            access &= _EXECUTE | _READ_FILE
        if not stat.S_ISDIR(seen.st_mode):
            access &= _OF_FILES
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(_Beneath(access, opened)), 0)
    finally:
        os.close(opened)
