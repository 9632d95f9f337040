"""The one place where a program of somebody else's is started.

The limits that the kernel holds a program to are set in the thread that starts it, and pass on to it: code of ours between fork and exec
could stand still for ever, in a process with threads. So each program has a thread of its own, which does nothing else and ends after it. The server can
also tell by that which children are its own, and a program that asks to end with its parent ends with the server.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from server.agents.base.child_environment import ChildEnvironment
from server.lib.landlock import ForbiddenPaths, landlock_abi, refuse_new_privileges
from server.lib.other_user import keep_rights_from_programs
from server.lib.own_files import make_directory

# Beside it, where a program can make files when its temporary directory is above what is kept out.
_OTHER_TEMPORARY: Final = "/var/tmp"
# What these make in the home of their user, by the name of the program: nothing new can be made there where data lies below it.
_CACHES: Final = {
    "npx": (".npm",),
    "npm": (".npm",),
    "uvx": (".cache", ".local/share/uv"),
    "uv": (".cache", ".local/share/uv"),
    "bunx": (".bun",),
    "bun": (".bun",),
    "deno": (".cache",),
    "pipx": (".cache", ".local/share/pipx", ".local/state"),
}
# A shell that sets bounds stands before the program's own name.
_WORDS_LOOKED_AT: Final = 5


class StartedProgram(subprocess.Popen[bytes]):
    """A program whose thread ends once its exit status was taken."""

    def __init__(self, command: Sequence[str | bytes], **options: Any) -> None:
        self.taken: Final = threading.Event()
        super().__init__(list(command), **options)

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        self.taken.set()
        return code

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None:
            self.taken.set()
        return code

    def __del__(self, *arguments: Any) -> None:
        self.taken.set()
        super().__del__(*arguments)


def start(command: Sequence[str | bytes], environment: Mapping[str, str], **options: Any) -> StartedProgram:
    """Start a program with the options of `Popen`, kept from what `environment` keeps it from. Raises `OSError`.

    Blocks for the milliseconds that this takes."""
    if isinstance(environment, ChildEnvironment) and (user := environment.user):
        _let_be_opened(options)
        options |= {"user": user.uid, "group": user.gid, "extra_groups": user.groups}
    if sys.platform != "linux":
        return StartedProgram(command, env=dict(environment), **options)
    starting = _Starting(command, environment, options)
    # Nobody waits for it when this process ends.
    threading.Thread(target=starting.run, name="program", daemon=True).start()
    return starting.outcome()


def _let_be_opened(options: Mapping[str, Any]) -> None:
    """Let another user open these pipes by name, as shells do with /dev/stderr; nobody else sees them."""
    for name in ("stdin", "stdout", "stderr"):
        if isinstance(pipe := options.get(name), int) and pipe >= 0:
            os.fchmod(pipe, 0o666)


class _Starting:
    """One start, on its way from the thread that does it to the one that asked."""

    def __init__(
        self, command: Sequence[str | bytes], environment: Mapping[str, str], options: Mapping[str, Any]
    ) -> None:
        self._command = command
        self._environment = environment
        self._options = options
        self._done = threading.Event()
        self._program: StartedProgram | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        taken = None
        try:
            self._program = StartedProgram(self._command, env=self._confine(), **self._options)
            taken = self._program.taken
        except BaseException as error:
            self._error = error
        self._done.set()
        if taken is not None:
            taken.wait()

    def outcome(self) -> StartedProgram:
        self._done.wait()
        program, self._program = self._program, None
        if program is None:
            assert self._error is not None
            raise self._error
        return program

    def _confine(self) -> dict[str, str]:
        """Set what this thread's program is kept from; → its environment."""
        variables = dict(self._environment)
        keep_rights_from_programs()
        if not isinstance(self._environment, ChildEnvironment):
            return variables
        confinement = self._environment.confinement
        if confinement is not None:
            confinement.make_home()
        if (kept_out := self._environment.kept_out) is not None:
            variables = self._keep_out(kept_out, variables)
        elif confinement is not None or self._environment.user is not None:
            refuse_new_privileges()
        if confinement is not None:
            confinement.restrict_thread(variables)
        return variables

    def _keep_out(self, kept_out: ForbiddenPaths, variables: dict[str, str]) -> dict[str, str]:
        if not landlock_abi():
            refuse_new_privileges()
            return variables
        closed = kept_out.folders
        _make_caches(self._command, variables.get("HOME", ""), closed)
        temporary = os.path.realpath(variables.get("TMPDIR") or "/tmp")
        if temporary in closed and _OTHER_TEMPORARY not in closed and os.access(_OTHER_TEMPORARY, os.W_OK):
            variables["TMPDIR"] = _OTHER_TEMPORARY
        kept_out.restrict_thread()
        return variables


def _make_caches(command: Sequence[str | bytes], home: str, closed: frozenset[str]) -> None:
    """Make what the program would make itself at its first start, were it not kept from that."""
    if not home or os.path.realpath(home) not in closed:
        return
    names = {os.path.basename(os.fsdecode(word)) for word in command[:_WORDS_LOOKED_AT]}
    for cache in {folder for name in names for folder in _CACHES.get(name, ())}:
        try:
            make_directory(Path(home, cache))
        except OSError:  # which the program says itself
            continue
