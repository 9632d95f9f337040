"""What a process owns itself, and what its parent owns for it: alone, or as one of several workers.

Implemented by one_process.py, and by one_of_several.py, which is loaded only in a worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from server.admin.control import Handler
from server.lib.log.logger import Logger
from server.lib.log.metrics import Metrics
from server.run.listening_sockets import BoundPorts
from server.run.settings_reload import Reloading
from server.run.start_report import StartedServer
from server.settings.setting_shapes import Config
from server.store.data_directory import DataDirectory
from server.transport.http.health_probes import Readiness

if TYPE_CHECKING:
    from server.cluster.workers.worker_messages import WorkerSeen


class Steering(msgspec.Struct, frozen=True, kw_only=True):
    """How a process that serves is told to stop, and to read again."""

    draining: trio.Event
    everything: trio.CancelScope  # that serves: to end at once
    renew: Callable[[], None]  # a certificate that somebody else writes
    reloading: Reloading


class ProcessFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a process has to say when it is asked."""

    make_commands: Callable[[], Mapping[str, Handler]]
    metrics: Metrics
    readiness: Callable[[], Awaitable[Readiness]]


class ProcessPlace(Protocol):
    @property
    def number(self) -> int:
        """Of a worker; 0 for the only process."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether it does what one process of the machine does: writes what lies in the data directory, holds room on its disk."""
        ...

    @property
    def speaks(self) -> bool:
        """Whether it says at its start what concerns all."""
        ...

    @property
    def shows_claim_link(self) -> bool:
        """Whether `ready` can show a secret to a person. A link is made only then, because a new one ends the last."""
        ...

    def listen(self, config: Config) -> BoundPorts:
        """Raises `ListenError`."""
        ...

    def home(self, path: Path) -> AbstractContextManager[DataDirectory]:
        """Raises `CannotOpen`."""
        ...

    def log_of_settings(self, log: Logger) -> Logger:
        """Where it is said what came of reading the settings again."""
        ...

    async def answer(
        self, figures: ProcessFigures, data_dir: Path, log: Logger, *, task_status: trio.TaskStatus[object]
    ) -> None:
        """Be there for whoever asks at the machine, until cancelled."""
        ...

    async def heed(self, steering: Steering, log: Logger, *, task_status: trio.TaskStatus[None]) -> None:
        """Do what signals say, and whoever else may say it, until cancelled."""
        ...

    async def metrics(self, figures: ProcessFigures) -> bytes:
        """Of the whole server, in Prometheus's words."""
        ...

    async def readiness(self, figures: ProcessFigures) -> Readiness:
        """Of the whole server."""
        ...

    async def workers(self) -> Sequence[WorkerSeen]:
        """How all that serve here stand, as their parent has it; nobody where there is none."""
        ...

    def ready(self, started: StartedServer, log: Logger, *, listens: list[str], boot: str) -> None: ...

    def draining(self, seconds: float, log: Logger) -> None: ...

    def stopped(self, log: Logger) -> None: ...
