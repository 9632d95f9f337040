"""Processes at the admin socket that descend from the server: programs that it started, which are not its owner.

The server is a child subreaper (program/orphans.py), so a program stays its descendant whatever it forks and whichever session it begins. What
cannot be told counts as descent. Linux only: no other system says who a peer's parents are in a way that they cannot change.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from pathlib import Path
from typing import Final

import msgspec
import trio

_SO_PEERPIDFD: Final = 77  # Linux 6.5: the peer itself, whoever bears its number later
_MOST_GENERATIONS: Final = 256
_PROC: Final = Path("/proc")


class SocketPeer(msgspec.Struct, frozen=True, kw_only=True):
    """A process at the other end, as the kernel has it."""

    uid: int
    descends: bool = False  # from this process, or nobody can tell


class _Seen(msgspec.Struct, frozen=True):
    parent: int
    started: int  # in ticks since the machine's start


def peer_of(sock: trio.socket.SocketType) -> SocketPeer:
    """Return who has connected. To be asked at once, while whoever did is still there."""
    if sys.platform != "linux":
        raw = sock.getsockopt(
            0, 0x001, 76
        )  # macOS: SOL_LOCAL, LOCAL_PEERCRED → struct xucred {version, uid, …}
        return SocketPeer(uid=int(struct.unpack_from("=II", raw)[1]))
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    # No program of ours becomes another user: it can get no rights that its starter had not.
    descends = uid == os.getuid() and _descends(pid, _peer_descriptor(sock, pid))
    return SocketPeer(uid=uid, descends=descends)


def _peer_descriptor(sock: trio.socket.SocketType, pid: int) -> int:
    """Return a descriptor of the process; -1 where it has gone."""
    try:
        return int(sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
    except OSError:
        pass
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _descends(pid: int, descriptor: int) -> bool:
    if pid == 0:  # it is outside of our container, where nothing is that we started
        if descriptor >= 0:
            os.close(descriptor)
        return False
    if descriptor < 0:
        return True
    try:
        found = descends(pid, os.getpid())
        ended = bool(select.select([descriptor], [], [], 0)[0])  # and then its number may be another's
    finally:
        os.close(descriptor)
    return found or ended


def descends(pid: int, ancestor: int, proc: Path = _PROC) -> bool:
    """Return whether `ancestor` is among the parents of `pid`, or that cannot be told. Nobody descends from itself."""
    if pid == ancestor:
        return False
    current, younger = pid, 1 << 64
    for _ in range(_MOST_GENERATIONS):
        if current == ancestor:
            return True
        if current == 0:
            return False
        seen = _look(current, proc)
        if seen is None:
            # Some systems hide other users' processes. What we start can never again get more rights; one that can is not of ours.
            return not _may_get_rights(pid, proc)
        if seen.started > younger:
            return True  # no parent is younger: the number is another's by now
        current, younger = seen.parent, seen.started
    return True


def _look(pid: int, proc: Path) -> _Seen | None:
    try:
        text = (proc / str(pid) / "stat").read_bytes()
        fields = text[text.rindex(b")") + 1 :].split()  # its name comes before, and may hold anything
        return _Seen(int(fields[1]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None


def _may_get_rights(pid: int, proc: Path) -> bool:
    try:
        return b"\nNoNewPrivs:\t0\n" in (proc / str(pid) / "status").read_bytes()
    except OSError:
        return False
