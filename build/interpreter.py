"""Whether an interpreter may go into the executable, and which one it is.

usage: python build/interpreter.py

Run by the interpreter that is meant. No package registry has one that could be pinned like a package is, so there is a floor: the first
release of each line with the fixes that are known. OSTIARY_INTERPRETER_SHA256 pins the one that a release is made with, and
OSTIARY_ANY_INTERPRETER lets any go on, for a build that nobody is given. What was taken stands in the bill of materials.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

# Of March 2026 and the month before: http.cookies, email, expat and more. Raised whenever a line gets fixes.
FLOORS: Final[Mapping[tuple[int, int], int]] = MappingProxyType(
    {(3, 11): 15, (3, 12): 13, (3, 13): 12, (3, 14): 3}
)
PINNED: Final = "OSTIARY_INTERPRETER_SHA256"
ANY: Final = "OSTIARY_ANY_INTERPRETER"


def file() -> Path:
    """The interpreter itself: the library that its program loads, where there is one."""
    library = Path(str(sysconfig.get_config_var("LIBDIR"))) / str(sysconfig.get_config_var("INSTSONAME"))
    return (library if library.suffix != ".a" and library.is_file() else Path(sys.executable)).resolve()


def digest() -> str:
    """Its SHA-256. Of its own modules it says nothing."""
    return hashlib.sha256(file().read_bytes()).hexdigest()


def below_floor(version: tuple[int, int, int]) -> bool:
    """A line that is older than all of these has no fixes any more; one that is newer has them from the start."""
    line = version[:2]
    return version[2] < FLOORS[line] if line in FLOORS else line < min(FLOORS)


def refused(version: tuple[int, int, int], sha256: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Why it must not be taken, and what to do, in lines; nothing: it may."""
    shown = ".".join(map(str, version))
    pinned = environment.get(PINNED, "")
    if pinned and pinned != sha256:
        return (
            f"error: {PINNED} names another interpreter than this CPython {shown}, which has {sha256}",
            "hint: put the right one in front: rm -rf .venvs/build; PYTHON=/path/to/python3 scripts/build",
        )
    if environment.get(ANY) or not below_floor(version):
        return ()
    floors = ", ".join(f"{major}.{minor}.{floor}" for (major, minor), floor in FLOORS.items())
    return (
        f"error: CPython {shown} lacks fixes of known weaknesses, and would be in the executable; of each line this one or newer: {floors}",
        "hint: put another in front: rm -rf .venvs/build; PYTHON=/path/to/python3 scripts/build",
        f"      or, for a build that nobody is given: {ANY}=1 scripts/build",
    )


if __name__ == "__main__":
    found = sys.version_info[:3]
    if lines := refused(found, digest(), os.environ):
        sys.exit("\n".join(lines))
    remark = ", which is below the floor: for nobody" if below_floor(found) else ""
    print(
        f"the interpreter is CPython {platform.python_version()}{remark}, sha256 {digest()}", file=sys.stderr
    )
