"""The program of an agent: what its settings say of it, and how it is found and started."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import trio
from msgspec import Meta

from server.agents.base.agent_faults import wall_clock
from server.agents.base.backend import Millis, Trouble
from server.agents.base.child_environment import EnvironmentSetting, environment_problems
from server.agents.base.child_process import Child, LogAllowance, Speech, start_program
from server.agents.command.guardian import Guardian
from server.agents.command.resource_limits import ProcessBounds, limited, limits_problems
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError
from server.settings.program_rights import ProgramRights, rights_problems

# Bytes of one call's words, in a setting.
Words: TypeAlias = Annotated[
    tuple[str | tuple[str, ...], ...],
    Meta(max_length=200, description='a list of words, e.g. ["weather", "--", "{city}"]'),
]
_GONE: Final = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.EPERM)


class ProgramSettings(ProgramRights, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of every agent that is a program."""

    cwd: Annotated[str, Meta(max_length=4096, description="the path of a folder")] = ""
    environment: EnvironmentSetting = ()
    unconfined: Annotated[bool, Meta(description="true or false")] = False
    limits: Annotated[ProcessBounds, Meta(description="a table, e.g. { cpu_seconds = 10 }")] = ProcessBounds()
    calls_at_once: Annotated[int, Meta(ge=1, le=1000, description="a number from 1 to 1000")] = 8


def program_problems(config: ProgramSettings) -> list[tuple[str, str]]:
    return [
        *environment_problems(config.environment),
        *limits_problems(config.limits),
        *rights_problems(config, unconfined=config.unconfined),
    ]


class Programs:
    """The programs of one agent. `trouble` is for its owner: what keeps the last one from being started."""

    def __init__(
        self,
        config: ProgramSettings,
        environment: Mapping[str, str],
        *,
        name: str,
        log: Logger,
        clock: Callable[[], Millis] = wall_clock,
    ) -> None:
        """Find the folder. Raises `ValueError` where it is none."""
        folder = Path(config.cwd).expanduser().absolute() if config.cwd else Path.cwd()
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}")
        self.trouble: Trouble | None = None
        self._folder = str(folder)
        self._environment = environment
        self._limits = config.limits
        self._name = name
        self._log = log
        self._clock = clock
        self._guardian = Guardian()
        self._first_allowance: LogAllowance | None = None

    def close(self) -> None:
        self._guardian.close()

    def find(self, written: str) -> str:
        """Return the path of a program. Like every path in the settings, one that has a slash is looked for from where the
        server was started. Raises `ValueError`."""
        named = os.path.expanduser(written)
        if os.sep in named:
            named = os.path.abspath(named)
        found = shutil.which(named, path=self._environment.get("PATH"))
        if found is None:
            raise ValueError(f"there is no program {written}")
        return os.path.abspath(found)

    @property
    def _allowance(self) -> LogAllowance:
        """The allowance of all of them, made where there is a clock."""
        if self._first_allowance is None:
            self._first_allowance = LogAllowance(self._log, self._name, trio.current_time)
        return self._first_allowance

    def speech(self) -> Speech:
        """Return the way into the log for what one of them prints where it should speak."""
        return Speech(self._allowance)

    def report(self, event: str, reason: str) -> None:
        self._log.error(event, agent=self._name, reason=reason)

    def start(self, command: Sequence[str | bytes], *, listens: bool) -> Child:
        """Start a program. Raises `BackendError`."""
        bounded = limited(self._limits, command)
        try:
            if bounded is not command and not os.access(command[0], os.X_OK):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))  # the shell would be found
            self._guardian.be_there()
            child = start_program(
                bounded,
                self._environment,
                folder=self._folder,
                listens=listens,
                allowance=self._allowance,
                over=self._guardian.forget,
            )
            self._guardian.watch(child.pid)
        except OSError as error:
            if error.errno == errno.E2BIG:
                raise BackendError("the arguments are too long together for a command") from error
            self._log.error("agent.not_started", agent=self._name, reason=str(error.strerror))
            if error.errno in _GONE and self.trouble is None:
                words = f"its program cannot be started: {str(error.strerror).lower()}"
                self.trouble = Trouble(words, self._clock())
            raise BackendError("the agent's program cannot be started") from error
        self.trouble = None
        return child
