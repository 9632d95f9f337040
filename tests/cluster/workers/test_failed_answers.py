"""A question whose answer breaks: whoever asked learns that there is none, and the log of whose error it was says why, once."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from server.admin.control import Command
from server.cluster.workers.worker_channel import Answering, ChannelGone, IncomingMessages, WorkerChannel
from server.cluster.workers.worker_handover import HandedOver
from server.cluster.workers.worker_messages import (
    COMMAND,
    GATHER,
    METRICS,
    READINESS,
    READY,
    RELOAD,
    ForwardedCommand,
)
from server.cluster.workers.worker_supervisor import Workers
from server.lib.log.logger import Logger
from server.lib.log.metrics import Metrics
from server.lib.log.structured_log import make_logger
from server.run.one_of_several import OneOfSeveral
from server.run.process_place import ProcessFigures, Steering

PATIENCE = 60


class Written:
    """A log, read back."""

    def __init__(self) -> None:
        self._out = io.StringIO()
        self.log: Logger = make_logger(level="info", style="json", stream=self._out)

    def of(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._out.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]


def breaks(*_: object, **__: object) -> Any:
    raise LookupError("of all that there is, not this")


async def breaks_late(*_: object, **__: object) -> Any:
    breaks()


def channel(
    sock: socket.socket,
    *,
    answering: Mapping[str, Answering] = {},
    hearing: Mapping[str, IncomingMessages] = {},
    failed: Callable[[str], None] = breaks,
) -> WorkerChannel:
    return WorkerChannel(sock, answering=answering, hearing=hearing, failed=failed)


STATUS = ForwardedCommand(command=Command(name="status"), actor="local:1000")


@pytest.mark.parametrize(
    ("question", "body"), [(COMMAND, STATUS), (RELOAD, True), (METRICS, None), (READINESS, None)]
)
async def test_a_worker_that_cannot_answer_its_parent_writes_down_why(
    question: str, body: object, tmp_path: Path
) -> None:
    written = Written()
    ours, theirs = socket.socketpair()
    parent = channel(ours)
    place = OneOfSeveral(HandedOver(number=2, public=()), theirs)
    metrics = Metrics("1")
    metrics.gauge("broken", "What cannot be read", breaks)
    figures = ProcessFigures(make_commands=breaks, metrics=metrics, readiness=breaks_late)
    nothing: Any = None
    steering = Steering(draining=trio.Event(), everything=trio.CancelScope(), renew=breaks, reloading=nothing)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parent.run)
            await nursery.start(place.answer, figures, tmp_path, written.log)
            await nursery.start(place.heed, steering, written.log)
            with pytest.raises(ChannelGone):
                await parent.ask(question, body)
            nursery.cancel_scope.cancel()
    place._last_words.close()  # pyright: ignore[reportPrivateUsage]
    (line,) = written.of("worker.not_answered")
    assert (line["level"], line["worker"], line["question"]) == ("error", 2, question)
    assert "of all that there is, not this" in line["exception"]


class Child:
    """A worker without a process: the other end of its channel is the test's."""

    pid = 100

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._ended = trio.Event()

    async def wait(self) -> int:
        await self._ended.wait()
        return 0

    async def pass_on_its_log(self) -> None: ...

    def signal(self, number: int) -> None:
        self._ended.set()

    def connect(
        self,
        *,
        answering: Mapping[str, Answering],
        hearing: Mapping[str, IncomingMessages],
        failed: Callable[[str], None],
    ) -> WorkerChannel:
        return channel(self._sock, answering=answering, hearing=hearing, failed=failed)


async def test_a_parent_that_cannot_answer_its_worker_writes_down_why_and_whose_question_it_was() -> None:
    written = Written()
    ours, theirs = socket.socketpair()

    async def start(number: int, first: bool) -> Any:
        return Child(ours)

    workers = Workers(1, start, written.log, clock=lambda: 0, answering={GATHER: breaks_late})
    worker = channel(theirs)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            assert worker.tell(READY)
            await nursery.start(workers.run)
            with pytest.raises(ChannelGone):
                await worker.ask(GATHER, METRICS)
            nursery.cancel_scope.cancel()
    (line,) = written.of("worker.not_answered")
    assert (line["level"], line["worker"], line["question"]) == ("error", 1, GATHER)
    assert "of all that there is, not this" in line["exception"]
