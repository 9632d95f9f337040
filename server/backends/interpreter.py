"""Which Python runs an agent: the one that the settings name, that of the virtual environment beside it, or the machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trio

from server.backends.base import BackendError
from server.backends.starting import StartedProgram, start

OLDEST: Final = (3, 9)
OLDEST_TEXT: Final = ".".join(map(str, OLDEST))
ENVIRONMENTS: Final = (".venv", "venv")
ANSWER_SECONDS: Final = (
    30.0  # to say its version; the first start from a slow disk, or on a busy machine, takes a while
)
# In words that every Python understands.
TELL_VERSION: Final = "import sys; sys.stdout.write('%d.%d.%d' % tuple(sys.version_info[:3]))"


def find_interpreter(named: str, folder: Path) -> str:
    """`folder` is where the agent lies. Raises `ValueError`."""
    if named:
        found = shutil.which(os.path.expanduser(named))
        if found is None:
            raise ValueError(f"there is no Python interpreter {named}")
        return found
    for environment in ENVIRONMENTS:
        # Not resolved: an environment is known by the path under which its interpreter is started.
        if found := shutil.which(str(folder / environment / "bin" / "python")):
            return found
    if found := shutil.which("python3"):
        return found
    raise ValueError(
        f'there is no python3 to run a Python agent with; install one ({OLDEST_TEXT} or newer), or set python = "/path/to/python"'
    )


async def check_interpreter(python: str, environment: Mapping[str, str]) -> None:
    """Raises `BackendError` for one that does not work, is too old, or does not say in time which it is."""
    try:
        started = start(
            [python, "-I", "-S", "-c", TELL_VERSION],
            environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise BackendError(f"the interpreter {python} cannot be started: {error.strerror}") from error
    try:
        said = await trio.to_thread.run_sync(_output, started, abandon_on_cancel=True)
    finally:
        started.kill()
    if said is None:
        raise BackendError(f"the interpreter {python} did not say its version within {ANSWER_SECONDS:g} s")
    check_version(said.decode("ascii", "replace"), python)


def _output(program: StartedProgram) -> bytes | None:
    """Return all that it says; None where it has not ended in time, which does not make it a bad one."""
    with program:
        try:
            return program.communicate(timeout=ANSWER_SECONDS)[0]
        except subprocess.TimeoutExpired:
            program.kill()
            return None


def check_version(version: str, python: str = "its interpreter") -> None:
    """Raises `BackendError`."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if len(numbers) < 2:
        raise BackendError(f"{python} does not work as a Python interpreter")
    if numbers < OLDEST:
        raise BackendError(
            f"{python} is Python {version[:20]}; a Python agent needs {OLDEST_TEXT} or newer: set python to one"
        )
