"""Whoever asks at the machine has one admin socket for all workers: what is about the store any of them answers, what is about a process
all of them do, and the answers are put together (`joined_answers.py`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from server.admin.control import DEADLINE_SECONDS, Command, CommandAnswer
from server.cluster.workers.joined_answers import JOINED
from server.cluster.workers.worker_messages import COMMAND, ForwardedCommand
from server.cluster.workers.worker_supervisor import Workers

# One that hangs is left out, or named, while whoever asks still waits.
ALL_SECONDS: Final = DEADLINE_SECONDS - 1


class AdminProxy:
    def __init__(self, workers: Workers) -> None:
        self._workers = workers

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
        if command.name in JOINED:
            return await self._of_all(forwarded)
        # The first, which does what only one may: always the same, as long as it lives.
        worker = serving[0]
        answer = await self._workers.ask(worker, COMMAND, forwarded, seconds=ALL_SECONDS)
        if answer is None:
            return CommandAnswer(
                ok=False,
                late=True,
                error=f"worker {worker.number} did not answer",
                hint="whether it was done is not known: look before you ask again",
            )
        return msgspec.json.decode(answer, type=CommandAnswer)

    async def _of_all(self, forwarded: ForwardedCommand) -> CommandAnswer:
        found = await self._workers.ask_all(COMMAND, forwarded, seconds=ALL_SECONDS)
        answers = {
            number: msgspec.json.decode(answer, type=CommandAnswer) for number, answer in found.items()
        }
        good: dict[int, Any] = {number: answer.result for number, answer in answers.items() if answer.ok}
        if not good:
            return next(
                iter(answers.values()),
                CommandAnswer(
                    ok=False, late=True, error="no worker answered", hint="its log says what they do"
                ),
            )
        joined = JOINED[forwarded.command.name](good, self._workers.seen)
        return CommandAnswer(ok=True, result=joined)
