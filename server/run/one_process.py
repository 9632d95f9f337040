"""The only process of a server: it opens its own sockets, holds its data directory, and answers whoever asks at the machine itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from server import __version__
from server.admin import control_socket
from server.lib.log.logger import Logger
from server.run.listening_sockets import BoundPorts, open_ports
from server.run.orphaned_processes import take_orphans
from server.run.process_place import ProcessFigures, Steering
from server.run.process_signals import heed_signals
from server.run.service_supervisor import supervisor_of
from server.run.start_report import StartedServer
from server.settings.setting_shapes import Config
from server.store.data_directory import DataDirectory, open_home
from server.transport.http.health_probes import Readiness

if TYPE_CHECKING:
    from server.cluster.workers.worker_messages import WorkerSeen


class OneProcess:
    def __init__(self, announce: Callable[[StartedServer], None], *, shows_claim_link: bool) -> None:
        self.number: Final = 0  # of a worker
        # Whether it does what one process of the machine does: writes what lies in the data directory, holds room on its disk.
        self.keeps: Final = True
        self.speaks: Final = True  # at the start, of what concerns all
        # Whether `ready` can show a secret to a person. A link is made only then, because a new one ends the last.
        self.shows_claim_link: Final = shows_claim_link
        self._announce = announce
        self._supervisor = supervisor_of(os.environ)

    def listen(self, config: Config) -> BoundPorts:
        return open_ports(config)

    def home(self, path: Path) -> AbstractContextManager[DataDirectory]:
        return open_home(path)

    def log_of_settings(self, log: Logger) -> Logger:
        return log

    async def answer(
        self, figures: ProcessFigures, data_dir: Path, log: Logger, *, task_status: trio.TaskStatus[object]
    ) -> None:
        counters = control_socket.ControlCounters()
        figures.metrics.counter(
            "control_accept_errors",
            "Times that no connection to the admin socket could be accepted",
            lambda: counters.accept_errors,
        )
        async with trio.open_nursery() as adopting:
            await adopting.start(take_orphans)
            await control_socket.serve(
                data_dir, figures.make_commands, log, counters, task_status=task_status
            )

    async def heed(self, steering: Steering, log: Logger, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:

            def reload() -> None:
                steering.renew()
                if not steering.draining.is_set():
                    nursery.start_soon(partial(steering.reloading.reload, renew=True))

            nursery.start_soon(steering.reloading.run)
            nursery.start_soon(self._supervisor.keep_saying_well)
            await heed_signals(
                drain=steering.draining.set,
                end=steering.everything.cancel,
                reload=reload,
                task_status=task_status,
            )

    async def metrics(self, figures: ProcessFigures) -> bytes:
        from server.lib.log.prometheus_text import (  # which a server that nobody watches need not carry
            families_of,
            render,
        )

        return render(families_of(figures.metrics))

    async def readiness(self, figures: ProcessFigures) -> Readiness:
        return await figures.readiness()

    async def workers(self) -> Sequence[WorkerSeen]:
        return ()

    def ready(self, started: StartedServer, log: Logger, *, listens: list[str], boot: str) -> None:
        self._announce(started)
        log.info(
            "server.started",
            version=__version__,
            origin=started.origin,
            listens=listens,
            admin=started.admin_origin,
            boot=boot,
        )
        self._supervisor.ready(f"serving {started.origin}")

    def draining(self, seconds: float, log: Logger) -> None:
        log.info("server.draining", seconds=seconds)
        self._supervisor.stopping(seconds)

    def stopped(self, log: Logger) -> None:
        log.info("server.stopped")
