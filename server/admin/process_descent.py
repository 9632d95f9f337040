"""Processes at the admin socket that are programs of a server, this one or another: they are not its owner.

The server is a child subreaper (run/orphaned_processes.py), so a program stays its descendant whatever it forks and whichever session it begins. A
program that a killed server leaves behind, or that another one has started, descends from it no more: such a program is told by what it can
never take off again, that it gets no new privileges (agents/base/program_start.py). In containers everybody may be like that. There it is told
by one filter of system calls more than the server has. A process of which nothing can be told counts as a program of a server. Linux only: no
other system says any of this of a peer in a way that it cannot change.
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
    confined: bool = False  # as programs of servers are, or nobody can tell


class _Seen(msgspec.Struct, frozen=True):
    parent: int
    started: int  # in ticks since the machine's start


class _Rights(msgspec.Struct, frozen=True):
    final: bool  # it never gets more
    filters: int  # of its system calls; -1 where the kernel does not say


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
    if uid != os.getuid():
        return SocketPeer(uid=uid)
    return _judged(uid, pid, _peer_descriptor(sock, pid))


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


def _judged(uid: int, pid: int, descriptor: int) -> SocketPeer:
    if pid == 0:  # it is outside of our container, where nothing is that we started
        if descriptor >= 0:
            os.close(descriptor)
        return SocketPeer(uid=uid)
    if descriptor < 0:
        return SocketPeer(uid=uid, descends=True)
    try:
        found = descends(pid, os.getpid())
        marked = confined(pid, os.getpid())
        ended = bool(select.select([descriptor], [], [], 0)[0])  # and then its number may be another's
    finally:
        os.close(descriptor)
    return SocketPeer(uid=uid, descends=found or ended, confined=marked)


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
            rights = _rights(pid, proc)
            return rights is None or rights.final
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


def confined(pid: int, server: int, proc: Path = _PROC) -> bool:
    """Return whether `pid` is marked as programs of servers are, or that cannot be told."""
    peer, own = _rights(pid, proc), _rights(server, proc)
    if peer is None or own is None:
        return True
    if not peer.final:
        return False
    shared = _sandbox(server, proc)
    if shared is None or shared == server or shared != _sandbox(pid, proc):
        return True
    # A server that nobody lets have new privileges says nothing with that; it has its programs filtered once more.
    return peer.filters > own.filters


def _sandbox(pid: int, proc: Path) -> int | None:
    """Return the first of its parents that gets no new privileges; 0 where that holds for all in this container, None where it cannot be told."""
    first, younger = pid, 1 << 64
    for _ in range(_MOST_GENERATIONS):
        seen, rights = _look(first, proc), _rights(first, proc)
        if seen is None or rights is None or seen.started > younger:
            return None
        if seen.parent == 0:
            return 0
        above = _rights(seen.parent, proc)
        if above is None:
            return None
        if not above.final:
            return first
        first, younger = seen.parent, seen.started
    return None


def _rights(pid: int, proc: Path) -> _Rights | None:
    try:
        lines = (proc / str(pid) / "status").read_bytes().split(b"\n")
        said = dict(line.split(b":\t", 1) for line in lines if b":\t" in line)
        return _Rights(said[b"NoNewPrivs"] != b"0", int(said.get(b"Seccomp_filters", b"-1")))
    except (OSError, ValueError, KeyError):
        return None
