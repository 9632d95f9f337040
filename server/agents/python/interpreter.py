"""The check of the Python that is to run an agent: whether it works, and is new enough."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Final

import trio

from server.agents.base.program_start import StartedProgram, start
from server.agents.python.find_interpreter import OLDEST, OLDEST_TEXT
from server.mcp.call_failures import BackendError

ANSWER_SECONDS: Final = (
    30.0  # to say its version; the first start from a slow disk, or on a busy machine, takes a while
)
# In words that every Python understands.
TELL_VERSION: Final = "import sys; sys.stdout.write('%d.%d.%d' % tuple(sys.version_info[:3]))"


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
