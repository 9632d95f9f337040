"""The bounds of a program that the server starts, and the user that it runs as, from its settings."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from server.agents.base.program_confinement import Confinement
from server.agents.python.find_interpreter import find_interpreter
from server.agents.python.python_agent import SHIM
from server.lib import paths
from server.lib.landlock import ForbiddenPaths
from server.lib.other_user import OtherUser, find_user, missing_rights
from server.settings.program_rights import ProgramRights

_HOMES: Final = "programs"
_PLAIN: Final = re.compile(r"[^A-Za-z0-9_-]+")


def user_of(program: ProgramRights) -> OtherUser | None:
    """Return as whom it runs; None for the server's own user. Raises `ValueError` where that cannot be."""
    if not program.run_as:
        return None
    user = find_user(program.run_as)
    if why := missing_rights():
        raise ValueError(f"run_as: this server cannot start programs as {program.run_as}: {why}")
    _show_shim()
    return user


def _show_shim() -> None:
    """Let other users read what runs Python agents: the one-file executable unpacks itself for its own user alone."""
    unpacked = getattr(sys, "_MEIPASS", "")
    if not unpacked or not SHIM.is_relative_to(unpacked):
        return
    above = [each for each in SHIM.parents if each.is_relative_to(unpacked)]
    for path in (*above, SHIM, *SHIM.rglob("*")):
        with suppress(OSError):  # which a program that cannot read it says
            path.chmod(0o755 if path.is_dir() else 0o644)


def bounds_of(
    program: ProgramRights,
    user: OtherUser | None,
    forbidden: ForbiddenPaths | None,
    *,
    name: str,
    data_dir: Path,
) -> Confinement | None:
    """Return its bounds; None where it has none of its own. Raises `ValueError` where they cannot be kept here."""
    if not program.confined:
        return None
    folder = str(getattr(program, "cwd", "") or getattr(program, "working_dir", ""))
    folder = os.path.abspath(os.path.expanduser(folder)) if folder else ""
    file, module = getattr(program, "file", ""), getattr(program, "module", "")
    own = [folder] if folder else []
    if file:
        own.append(os.path.dirname(os.path.abspath(os.path.expanduser(file))))
    if module:
        own.append(os.getcwd())
    if user is None:
        known = getattr(program, "id", "")
        home = _own_home(f"{name.partition('[')[0]}/{known}" if known else name, data_dir, forbidden)
    else:
        home = Path(user.home) if user.home else None
    return Confinement(
        program,
        commands=[*_commands(program)],
        folder=folder or os.getcwd(),
        own=own,
        home=home,
        makes_home=user is None,
    )


def _own_home(name: str, data_dir: Path, forbidden: ForbiddenPaths | None) -> Path:
    """Return the home of the program of that name: it keeps it from start to start, where the server's user has a place for it."""
    tag = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:12]
    # Names that look the same when they are written as one of a folder have folders of their own.
    exact = hashlib.sha256(name.encode()).hexdigest()[:8]
    home = paths.state_home() / _HOMES / tag / f"{_PLAIN.sub('-', name).strip('-')}-{exact}"
    if forbidden is not None and forbidden.holds(os.path.realpath(home)):
        return Path(_temporary().name) / home.name
    return home


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """Make the homes of this process, which go with it."""
    return tempfile.TemporaryDirectory(prefix="ostiary-programs-", ignore_cleanup_errors=True)


def _commands(program: Any) -> Iterator[Sequence[str]]:
    """Yield the words of its owner that it is started with. A word that a caller fills in is none."""
    if run := getattr(program, "run", ()) or getattr(program, "command", ()):
        yield _static(run)
    for tool in getattr(program, "tool", ()):
        if run := getattr(tool, "run", ()):
            yield _static(run)
    file = getattr(program, "file", "")
    if file or getattr(program, "module", ""):
        beside = Path(file).expanduser().absolute().parent if file else Path.cwd()
        yield [find_interpreter(program.python, beside), str(SHIM / "run.py")]


def _static(words: Sequence[Any]) -> list[str]:
    return [os.path.expanduser(word) for word in words if isinstance(word, str) and "{" not in word]
