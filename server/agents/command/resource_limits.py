"""What a program may take of this machine.

Bounds of a process are set in itself, before it is the program: by a shell that then becomes it. Code of ours between fork and exec
could stand still for ever, in a process with threads. The shell is given numbers of ours alone; the program and its arguments
are words that it never reads.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

SHELL: Final = "/bin/sh"
KIB_A_MIB: Final = 1024
BLOCKS_A_MIB: Final = 2048  # POSIX counts the size of files in blocks of 512 bytes


class ProcessBounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`limits` of an agent; 0 is none."""

    cpu_seconds: Annotated[int, Meta(ge=0, le=86_400, description="whole seconds up to 86400")] = 0
    memory_mib: Annotated[int, Meta(ge=0, le=1 << 20, description="MiB up to 1048576")] = 0
    file_mib: Annotated[int, Meta(ge=0, le=1 << 20, description="MiB up to 1048576")] = 0
    open_files: Annotated[int, Meta(ge=0, le=1 << 20, description="a number up to 1048576")] = 0
    processes: Annotated[int, Meta(ge=0, le=1 << 20, description="a number up to 1048576")] = 0


def limits_problems(limits: ProcessBounds, *, platform: str = sys.platform) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if limits.memory_mib and platform == "darwin":
        found.append(("limits.memory_mib", "has no effect on macOS; leave it out"))
    if 0 < limits.open_files < 8:
        found.append(("limits.open_files", "is too few for a program to start; write 8 or more"))
    return found


def limited(limits: ProcessBounds, command: Sequence[str | bytes]) -> Sequence[str | bytes]:
    """The command, held to them. Where one cannot be set, the program is not started."""
    steps: list[str] = []
    if limits.cpu_seconds:
        # It gets a signal of its own first, by which its end can be told from others; a second later it is killed.
        steps += [f"ulimit -S -t {limits.cpu_seconds}", f"ulimit -H -t {limits.cpu_seconds + 1}"]
    if limits.memory_mib:
        steps.append(f"ulimit -v {limits.memory_mib * KIB_A_MIB}")
    if limits.file_mib:
        steps.append(f"ulimit -f {limits.file_mib * BLOCKS_A_MIB}")
    if limits.open_files:
        steps.append(f"ulimit -n {limits.open_files}")
    if limits.processes:
        # Shells do not agree on its letter; where `-p` is something else, it cannot be set.
        number = limits.processes
        steps.append(f"{{ (ulimit -u {number}) 2>/dev/null && ulimit -u {number} || ulimit -p {number}; }}")
    if not steps:
        return command
    return [SHELL, "-c", " && ".join([*steps, 'exec "$@"']), SHELL, *command]
