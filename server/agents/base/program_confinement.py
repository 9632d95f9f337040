"""The bounds that the settings of a program set it: it opens what they name, what it needs to run, and a home of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from server.agents.base.program_needs import Changeable, needs_of, system_reads, system_writes
from server.lib.landlock import PORTS_ABI, confine_thread, landlock_abi
from server.lib.own_files import make_directory
from server.settings.program_rights import ProgramRights, given

_TEMPORARY: Final = "tmp"


class Confinement:
    """The bounds of one program, set in each thread that starts it. `commands` are its owner's words, `own` folders of its own to read, and
    `home` what it may write, if that is its to make. Raises `ValueError` where they cannot be kept."""

    def __init__(
        self,
        rights: ProgramRights,
        *,
        commands: Sequence[Sequence[str]],
        folder: str,
        own: Sequence[str],
        home: Path | None,
        makes_home: bool,
    ) -> None:
        if problem := unkept(rights):
            raise ValueError(problem)
        self.home: Final = home if rights.confines_files else None
        self._makes_home = makes_home
        self._commands = commands
        self._folder = folder
        self._own = own
        self._files = rights.confines_files
        self._writes = _resolved("writes", rights.writes)
        # A program could lay links there, which would lead elsewhere at its next start.
        homes = () if self.home is None else (str(self.home), os.path.realpath(self.home))
        self._changeable = Changeable((*(rights.writes or ()), *self._writes, *homes))
        self._reads = {path for path in _resolved("reads", rights.reads) if path not in self._changeable}
        self._ports = rights.connects

    def variables(self) -> dict[str, str]:
        """Return the variables that lead a program to what is its own."""
        if self.home is None or not self._makes_home:
            return {}
        temporary = str(self.home / _TEMPORARY)
        return {"HOME": str(self.home), "TMPDIR": temporary, "TEMP": temporary, "TMP": temporary}

    def make_home(self) -> None:
        """Make what it may write, where that is ours to make. Raises `OSError`."""
        if self.home is not None and self._makes_home:
            make_directory(self.home / _TEMPORARY)

    def restrict_thread(self, variables: Mapping[str, str]) -> None:
        """Set them in this thread, for ever, with what it starts. Raises `OSError`; then nothing may be started by it."""
        confine_thread(self._paths(variables) if self._files else None, self._ports)

    def _paths(self, variables: Mapping[str, str]) -> tuple[set[str], set[str]]:
        needs = {
            need
            for words in self._commands
            for need in needs_of(words, variables, self._folder, self._changeable)
        }
        needs.update(path for path in self._own if path not in self._changeable)
        home = [] if self.home is None else [self.home]
        reads = _without_links(needs).union(_system_reads(), self._reads)
        return reads, self._writes | _without_links((*system_writes(), *home))


@cache
def _system_reads() -> frozenset[str]:
    return frozenset(_without_links(system_reads()))


def _without_links(found: Iterable[str | Path]) -> set[str]:
    return {os.path.realpath(path) for path in found}


def unkept(rights: ProgramRights) -> str:
    """Return why this system cannot keep a program to its bounds; empty where it can, and where there are none."""
    if not rights.confined:
        return ""
    named = " and ".join(key for key in given(rights) if key != "run_as")
    abi = landlock_abi()
    if abi == 0:
        return f"this system has no Landlock, by which programs are kept to {named}; leave these out, or start it on Linux 5.19 or newer"
    if rights.connects is not None and abi < PORTS_ABI:
        return "this kernel cannot keep programs to ports; leave connects out, or take Linux 6.7 or newer"
    return ""


def _resolved(key: str, written: Sequence[str] | None) -> set[str]:
    """Return the paths without links, as they lead now. Raises `ValueError`."""
    found: set[str] = set()
    for each in written or ():
        path = os.path.realpath(os.path.expanduser(each))
        if not os.path.exists(path):
            raise ValueError(
                f"{key} names {each}, which is not there; make it first, or name the folder above"
            )
        found.add(path)
    return found
