"""Become another program under what a unit's lines ask of the kernel: `python confined.py UNIT COMMAND …`. systemd itself is not needed
for that, only its lists of system calls, and what the calls are numbered here.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

# <linux/prctl.h>, <linux/seccomp.h>, <linux/filter.h>, <linux/audit.h>
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_SET_MDWE = 38, 22, 65
SECCOMP_MODE_FILTER = 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050001  # EPERM
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
X86_64 = 0xC000003E
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
NUMBERS = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


@cache
def members(name: str) -> frozenset[str]:
    told = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", name], capture_output=True, text=True, check=True
    ).stdout
    words = [line.split("#")[0].strip() for line in told.splitlines()]
    found: set[str] = set()
    for word in words:
        if word.startswith("@") and word != name:
            found |= members(word)
        elif word and not word.startswith("@"):
            found.add(word)
    return frozenset(found)


def allowed(unit: str) -> set[str]:
    calls: set[str] = set(members("@default"))
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE):
        names = {call for word in line.removeprefix("~").split() for call in members(word)}
        calls = calls - (names - members("@default")) if line.startswith("~") else calls | names
    return calls


def step(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("HBBI", code, true, false, value)


def filter_for(unit: str) -> bytes:
    numbers = {
        name: int(number)
        for name, number in re.findall(
            r"^#define __NR_(\w+) (\d+)$", NUMBERS.read_text("ascii"), re.MULTILINE
        )
    }
    program = step(LOAD, ARCHITECTURE) + step(EQUAL, X86_64, 1, 0) + step(RETURN, REFUSE) + step(LOAD, NUMBER)
    for name in sorted(allowed(unit) & numbers.keys() - {"socket"}):
        program += step(EQUAL, numbers[name], 0, 1) + step(RETURN, ALLOW)
    program += step(EQUAL, numbers["socket"], 1, 0) + step(RETURN, REFUSE)
    program += step(LOAD, FIRST_ARGUMENT)
    (families,) = re.findall(r"^RestrictAddressFamilies=(.*)$", unit, re.MULTILINE)
    for family in families.split():
        program += step(EQUAL, int(getattr(socket, family)), 0, 1) + step(RETURN, ALLOW)
    return program + step(RETURN, REFUSE)


def confine(unit: str) -> None:
    program = filter_for(unit)
    libc = ctypes.CDLL(None, use_errno=True)
    held = ctypes.create_string_buffer(program)
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held))
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    if "MemoryDenyWriteExecute=yes" in unit:
        assert libc.prctl(PR_SET_MDWE, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described, 0, 0) == 0


if __name__ == "__main__":
    confine(Path(sys.argv[1]).read_text("utf-8"))
    os.execvp(sys.argv[2], sys.argv[2:])
