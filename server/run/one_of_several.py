"""One worker of several: its sockets, its data directory and its log are its parent's, and so is whoever asks at the machine.

Its parent is the only one that tells it to stop, besides whoever sends it a signal of its own: then another one is started in its place.
If the parent is gone, however that was, the worker drains and ends.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
import trio

from server.admin import control_socket
from server.calls.servers.cannot_start import CannotStart
from server.cluster.workers.worker_channel import Answering, ChannelGone, WorkerChannel, last_news
from server.cluster.workers.worker_handover import HandedOver, take_over
from server.cluster.workers.worker_messages import (
    BEAT,
    BEAT_SECONDS,
    COMMAND,
    DRAIN,
    END,
    GATHER,
    METRICS,
    READINESS,
    READY,
    REFUSAL,
    RELOAD,
    WORKERS,
    ForwardedCommand,
    Gathered,
    SaidLine,
    WorkerRefusal,
    WorkerSeen,
)
from server.lib.log.logger import Logger
from server.lib.log.prometheus_text import MetricFamily, families_of, merged, render
from server.run.listening_sockets import BoundPorts, BoundSockets
from server.run.process_place import ProcessFigures, Steering
from server.run.process_signals import heed_signals
from server.run.start_report import StartedServer, StartedWorker
from server.settings.setting_shapes import Config
from server.store.data_directory import DataDirectory, share_home
from server.transport.http.health_probes import Readiness

# The first of them does what only one process of the machine may.
KEEPER: Final = 1
# A supervisor asks often, and a worker that hangs is not waited for.
GATHER_SECONDS: Final = 4.0


class OneOfSeveral:
    def __init__(self, handed: HandedOver, sock: socket.socket) -> None:
        self.number: Final = handed.number
        self.keeps: Final = handed.number == KEEPER
        self.speaks: Final = handed.speaks
        self.shows_claim_link: Final = handed.shows_claim_link
        # The one on which the log is read, if there is one: it says how wide lines may be, and whether in colour.
        self.terminal: Final[TextIO | None] = (
            None if handed.terminal < 0 else os.fdopen(handed.terminal, "w", encoding="utf-8")
        )
        self.settings: Final = None if handed.settings < 0 else _text_of(handed.settings)
        self._handed = handed
        self._last_words = sock.dup()
        self._said_of_settings = SettingsLines()
        self._answering: dict[str, Answering] = {}
        self._hearing: dict[str, Any] = {}
        self._channel = partial(WorkerChannel, sock, answering=self._answering, hearing=self._hearing)
        self._open: WorkerChannel | None = None

    def listen(self, config: Config) -> BoundPorts:
        handed = self._handed
        return BoundPorts(
            public=_taken(handed.public),
            plain=_taken(handed.plain) if handed.plain else None,
            admin=_taken(handed.admin) if handed.admin else None,
        )

    def home(self, path: Path) -> AbstractContextManager[DataDirectory]:
        return share_home(path, self._handed.locks)

    def log_of_settings(self, log: Logger) -> Logger:
        return self._said_of_settings

    async def answer(
        self, figures: ProcessFigures, data_dir: Path, log: Logger, *, task_status: trio.TaskStatus[object]
    ) -> None:
        table = control_socket.CommandTable(figures.make_commands)

        async def command(body: msgspec.Raw) -> Any:
            given = msgspec.json.decode(body, type=ForwardedCommand)
            return await control_socket.carry_out(given.command, given.actor, await table.commands(), log)

        async def metrics(body: msgspec.Raw) -> Any:
            return families_of(figures.metrics)

        async def readiness(body: msgspec.Raw) -> Any:
            return await figures.readiness()

        self._answering |= {COMMAND: command, METRICS: metrics, READINESS: readiness}
        task_status.started()

    async def heed(self, steering: Steering, log: Logger, *, task_status: trio.TaskStatus[None]) -> None:
        async def reload(body: msgspec.Raw) -> Any:
            steering.renew()
            if not steering.draining.is_set():
                await steering.reloading.reload(renew=msgspec.json.decode(body, type=bool))
            return self._said_of_settings.taken()

        def drain(body: msgspec.Raw) -> None:
            steering.draining.set()

        def end(body: msgspec.Raw) -> None:
            steering.draining.set()
            steering.everything.cancel()

        self._answering[RELOAD] = reload
        self._hearing |= {DRAIN: drain, END: end}

        def failed(question: str) -> None:
            log.exception("worker.not_answered", worker=self.number, question=question)

        channel = self._open = self._channel(failed=failed)
        async with trio.open_nursery() as nursery:

            def reload_alone() -> None:
                steering.renew()
                if not steering.draining.is_set():
                    nursery.start_soon(partial(steering.reloading.reload, renew=True))

            nursery.start_soon(
                partial(
                    heed_signals,
                    drain=steering.draining.set,
                    end=steering.everything.cancel,
                    reload=reload_alone,
                    task_status=task_status,
                )
            )
            nursery.start_soon(_beat, channel)
            await channel.run()
            steering.draining.set()  # there is no parent any more

    async def metrics(self, figures: ProcessFigures) -> bytes:
        gathered = await self._gathered(METRICS)
        if gathered is None:
            return render(families_of(figures.metrics))
        found = {
            number: msgspec.json.decode(answer, type=list[MetricFamily])
            for number, answer in gathered.answers.items()
        }
        return render([*merged(found), *gathered.of_the_parent])

    async def readiness(self, figures: ProcessFigures) -> Readiness:
        """Return ready while any worker is, with a line for each that is not there."""
        gathered = await self._gathered(READINESS)
        if gathered is None:
            return await figures.readiness()
        found = {
            number: msgspec.json.decode(answer, type=Readiness) for number, answer in gathered.answers.items()
        }
        told: list[str] = []
        for seen in gathered.workers:
            each = found.get(seen.worker)
            if each is None:
                told.append(f"worker {seen.worker}: {_why_none(seen.state)}")
            elif each.missing:
                told.append(f"worker {seen.worker}: {each.missing}")
            else:
                told += (line for line in each.told if line not in told)
        if any(not each.missing for each in found.values()):
            return Readiness(told=told)
        missing = next((each.missing for each in found.values()), "no worker answers")
        return Readiness(missing=missing, told=told)

    async def workers(self) -> Sequence[WorkerSeen]:
        gathered = await self._gathered(WORKERS)
        return () if gathered is None else gathered.workers

    def ready(self, started: StartedServer, log: Logger, *, listens: list[str], boot: str) -> None:
        if self._open is not None:
            self._open.tell(READY, StartedWorker(started=started, listens=listens, boot=boot))

    def draining(self, seconds: float, log: Logger) -> None:
        """Say nothing: the parent does, once for all."""

    def stopped(self, log: Logger) -> None:
        """Say nothing: the parent does."""

    def refuse(self, problem: CannotStart) -> None:
        """Tell the parent, as the last word, that this worker cannot start."""
        refusal = WorkerRefusal(
            problem=str(problem),
            hint=problem.hint,
            details=problem.details,
            lasting=problem.lasting,
        )
        with suppress(OSError):
            self._last_words.sendall(last_news(REFUSAL, refusal))

    async def _gathered(self, name: str) -> Gathered | None:
        """Return what all workers say; None if there is no parent to ask."""
        if self._open is None:
            return None
        with trio.move_on_after(GATHER_SECONDS):
            try:
                return msgspec.json.decode(await self._open.ask(GATHER, name), type=Gathered)
            except ChannelGone:
                pass
        return None


async def _beat(channel: WorkerChannel) -> None:
    """Tell the parent that this loop goes round, from this loop."""
    while True:
        channel.tell(BEAT)
        await trio.sleep(BEAT_SECONDS)


def place_of(environ: MutableMapping[str, str]) -> OneOfSeveral:
    """Return the worker that this process was started as. Raises `ValueError` if it was not."""
    handed, sock = take_over(environ)
    return OneOfSeveral(handed, sock)


class SettingsLines:
    """A `Logger` that keeps what is said, for its parent to write down once for all."""

    def __init__(self) -> None:
        self._lines: list[SaidLine] = []
        self.debug: Final = partial(self._keep, "debug")
        self.info: Final = partial(self._keep, "info")
        self.warning: Final = partial(self._keep, "warning")
        self.error: Final = partial(self._keep, "error")
        self.exception: Final = self.error

    def taken(self) -> list[SaidLine]:
        lines, self._lines = self._lines, []
        return lines

    def _keep(self, level: str, event: str, **fields: object) -> None:
        self._lines.append(SaidLine(level=level, event=event, fields=fields))


def _text_of(descriptor: int) -> str:
    """Return all of a file, wherever others that share it have read to."""
    try:
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8")
    finally:
        os.close(descriptor)


def _taken(descriptors: tuple[int, ...]) -> BoundSockets:
    with socket.socket(fileno=descriptors[0]) as first:
        port = first.getsockname()[1]
        first.detach()
    return BoundSockets(descriptors=descriptors, port=port)


def _why_none(state: str) -> str:
    return {
        "starting": "is being started",
        "waiting": "has ended, and is started again in a moment",
        "ended": "has ended",
    }.get(state, "does not answer")
