"""The parent of several processes that serve; it serves nobody itself.

    run > ports and data directory > workers, each with its loop > admin socket, settings, signals

The parent opens the sockets, holds the data directory, starts the workers, writes their log, passes on commands of the machine, and
tells them to stop. Neither pages nor agents nor a database are loaded here: this memory comes on top of theirs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from tempfile import TemporaryFile
from typing import Any, Final

import msgspec
import trio

from server import __version__
from server.admin import control, control_socket
from server.agents.base.file_watch import changed, followed, look
from server.calls.servers.cannot_start import CannotStart
from server.cluster.workers.admin_proxy import AdminProxy
from server.cluster.workers.worker_handover import HandedOver
from server.cluster.workers.worker_messages import (
    GATHER,
    METRICS,
    READINESS,
    RELOAD,
    WORKERS,
    Gathered,
    SaidLine,
    said_once,
)
from server.cluster.workers.worker_process import Children
from server.cluster.workers.worker_supervisor import Workers, WorkersCannotStart, WorkerSlot
from server.lib.log.log_lines import Lines
from server.lib.log.logger import Logger
from server.lib.log.prometheus_text import MetricFamily, family
from server.run.listening_sockets import BoundPorts, open_ports
from server.run.orphaned_processes import take_orphans
from server.run.process_signals import heed_signals
from server.run.service_supervisor import ENDING_SECONDS, Supervisor, supervisor_of
from server.run.start_report import StartedServer, StartedWorker, first_of, why_not
from server.settings.resolved_settings import Resolved
from server.store.data_directory import DataDirectory, open_home
from server.store.jobs import CannotOpen
from server.transport.http.sockets import ListenError

# For all of them together to take new settings; agents are begun anew for that.
RELOAD_SECONDS: Final = 120.0
# Less than whoever looks at metrics waits.
GATHER_SECONDS: Final = 3.0


def run_workers(parent: Parent) -> None:
    """Serve until SIGTERM or Ctrl-C, then drain. Raises `CannotStart`."""
    try:
        trio.run(parent.serve)
    except* (CannotStart, CannotOpen, ListenError, control.CommandRefused) as group:
        raise why_not(group) from first_of(group)
    except* WorkersCannotStart as group:
        refusal = first_of(group).refusal
        raise CannotStart(refusal.problem, refusal.hint, refusal.details, lasting=refusal.lasting) from group


class Parent:
    """The process that starts the others. `command` starts this program again, as it was started; `terminal` is the descriptor of the
    one on which the log is read."""

    def __init__(
        self,
        resolved: Resolved,
        log: Logger,
        lines: Lines,
        command: Sequence[str],
        *,
        announce: Callable[[StartedServer], None],
        shows_claim_link: bool,
        terminal: int = -1,
    ) -> None:
        self._resolved = resolved
        self._log = log
        self._announce = announce
        self._shows_claim_link = shows_claim_link
        self._terminal = terminal
        self._counters = control_socket.ControlCounters()
        self._settings = -1  # an open file with what stood in theirs
        self._supervisor: Supervisor = supervisor_of(os.environ)
        self._lines = lines
        self._command = command

    async def serve(self) -> None:
        config, log = self._resolved.config, self._log
        ports = open_ports(config)
        # As it was before anybody was told that the server is there.
        source = self._resolved.source
        known = look(followed(source)) if source else {}
        with open_home(self._resolved.data_dir) as home, TemporaryFile(dir=home.path) as settings:
            if source is not None:
                settings.write(source.read_bytes())
                settings.flush()
                self._settings = settings.fileno()
            draining = trio.Event()
            async with trio.open_nursery() as background:
                workers = self._workers = Workers(
                    self._resolved.workers,
                    Children(self._command, partial(self._handed, ports, home), self._lines).start,
                    log,
                    clock=_now_millis,
                    answering={GATHER: self._gather},
                    replaced=partial(background.start_soon, self._catch_up),
                )

                def reload() -> None:
                    background.start_soon(partial(self._reload, renew=True))

                end = partial(background.start_soon, workers.end)
                background.start_soon(self._supervisor.keep_saying_well, lambda: workers.all_beat)
                await background.start(partial(heed_signals, drain=draining.set, end=end, reload=reload))
                await background.start(take_orphans, lambda: {seen.pid for seen in workers.seen})
                answer = AdminProxy(workers).answer
                await background.start(control_socket.serve_commands, home.path, answer, log, self._counters)
                async with trio.open_nursery() as serving:
                    serving.start_soon(self._drain, ports, draining, background)
                    said = await serving.start(workers.run)
                    if said is not None:
                        self._say_ready(said, ports)
                        if source is not None:
                            background.start_soon(self._follow_settings, known)
                    # From here until all have ended.
                background.cancel_scope.cancel()
        log.info("server.stopped")

    def _say_ready(self, said: msgspec.Raw, ports: BoundPorts) -> None:
        found = msgspec.json.decode(said, type=StartedWorker)
        started = found.started
        self._announce(started)
        self._log.info(
            "server.started",
            version=__version__,
            origin=started.origin,
            listens=found.listens,
            admin=started.admin_origin,
            workers=self._resolved.workers,
        )
        self._supervisor.ready(f"serving {started.origin} with {self._resolved.workers} processes")

    async def _drain(self, ports: BoundPorts, draining: trio.Event, background: trio.Nursery) -> None:
        await draining.wait()
        seconds = self._resolved.config.drain_seconds
        self._log.info("server.draining", seconds=seconds)
        self._supervisor.stopping(seconds)
        # Nobody new is let in where nobody will serve them.
        for sockets in (ports.public, ports.plain, ports.admin):
            for descriptor in () if sockets is None else sockets.descriptors:
                os.close(descriptor)
        self._workers.drain()
        background.start_soon(self._end_late, seconds + ENDING_SECONDS)

    async def _end_late(self, seconds: float) -> None:
        await trio.sleep(seconds)
        await self._workers.end()

    def _handed(self, ports: BoundPorts, home: DataDirectory, number: int, first: bool) -> HandedOver:
        speaks = first and number == 1
        return HandedOver(
            number=number,
            public=ports.public.descriptors,
            plain=() if ports.plain is None else ports.plain.descriptors,
            admin=() if ports.admin is None else ports.admin.descriptors,
            locks=home.locks,
            terminal=self._terminal,
            settings=self._settings,
            speaks=speaks,
            shows_claim_link=speaks and self._shows_claim_link,
        )

    async def _follow_settings(self, known: Any) -> None:
        """Have all workers read changed settings, and say once what is wrong with them."""
        assert self._resolved.source is not None
        while True:
            await changed(known)
            # Before they are read: what is written meanwhile is read next.
            known = look(followed(self._resolved.source))
            await self._reload(renew=False)

    async def _catch_up(self, worker: WorkerSlot) -> None:
        """Have a worker that was started later take the newer settings that the others took."""
        answer = await self._workers.ask(worker, RELOAD, False, seconds=RELOAD_SECONDS)
        if answer is not None:
            lines = msgspec.json.decode(answer, type=list[SaidLine])
            said_once(
                {
                    worker.number: lines,
                    **{each.number: [] for each in self._workers.all if each is not worker},
                },
                self._log,
            )

    async def _reload(self, *, renew: bool) -> None:
        answers = await self._workers.ask_all(RELOAD, renew, seconds=RELOAD_SECONDS)
        said = {
            number: msgspec.json.decode(answer, type=list[SaidLine]) for number, answer in answers.items()
        }
        said_once(said, self._log)

    async def _gather(self, body: msgspec.Raw) -> Gathered:
        workers = self._workers
        name = msgspec.json.decode(body, type=str)
        if name == WORKERS:
            return Gathered(answers={}, workers=workers.seen)
        if name not in (METRICS, READINESS):
            raise ValueError(name)
        answers = await workers.ask_all(name, None, seconds=GATHER_SECONDS)
        return Gathered(
            answers=answers,
            workers=workers.seen,
            of_the_parent=self._figures() if name == METRICS else [],
        )

    def _figures(self) -> list[MetricFamily]:
        """Return what only the parent counts."""
        return [
            family(
                "ostiary_workers", "gauge", "Processes that serve", [({}, float(len(self._workers.serving)))]
            ),
            family(
                "ostiary_worker_restarts_total",
                "counter",
                "Times that a process that serves had ended, and was started again",
                [({"worker": str(seen.worker)}, float(seen.restarts)) for seen in self._workers.seen],
            ),
            family(
                "ostiary_control_accept_errors_total",
                "counter",
                "Times that no connection to the admin socket could be accepted",
                [({}, float(self._counters.accept_errors))],
            ),
        ]


def _now_millis() -> int:
    return time.time_ns() // 1_000_000
