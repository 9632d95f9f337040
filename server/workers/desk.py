"""Whoever asks at the machine has one admin socket for all workers: what is about the store any of them answers, what is about a process
each of them does, and the answers are put together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from server.admin.control import DEADLINE_SECONDS, Command, CommandAnswer
from server.observe.log import Logger
from server.workers.family import Workers, WorkerSlot
from server.workers.words import ForwardedCommand

Joining = Callable[[dict[int, Any]], Any]


class AdminDesk:
    def __init__(self, workers: Workers, log: Logger) -> None:
        self._workers = workers
        self._log = log

    async def answer(self, command: Command, actor: str) -> CommandAnswer:
        """Raises nothing."""
        serving = self._workers.serving
        if not serving:
            return CommandAnswer(
                ok=False,
                error="no worker of this server serves at the moment",
                hint="they are started again by themselves; its log says why they ended",
            )
        forwarded = ForwardedCommand(command=command, actor=actor)
        return await self._of_one(serving[0], forwarded)

    async def _of_one(self, worker: WorkerSlot, forwarded: ForwardedCommand) -> CommandAnswer:
        answer = await self._workers.ask(worker, "command", forwarded, seconds=DEADLINE_SECONDS)
        if answer is None:
            return CommandAnswer(
                ok=False,
                error=f"worker {worker.number} does not answer",
                hint="whether it was done is not known: ask again, and look into the log",
            )
        return msgspec.json.decode(answer, type=CommandAnswer)
