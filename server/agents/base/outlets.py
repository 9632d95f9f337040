"""Outlets between an agent and its caller: one that lets a deadline stand still, and one that keeps the answer back until it is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from server.mcp.call_outlet import LogMessage, Outlet, PassingOutlet, Progress
from server.mcp.call_questions import Question


class DeadlinePausingOutlet(PassingOutlet):
    """The caller's, except that the call's deadline stands still while the caller is asked: a person takes their time, and it
    is not the agent's. How long an answer may take is for the caller's own outlet to say."""

    def __init__(self, outlet: Outlet, scope: trio.CancelScope) -> None:
        self._outlet = outlet  # as the base class would, which costs a function call each time
        self._scope = scope
        self._open = 0
        self._left = 0.0

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Mapping[str, Any]]:
        if not self._open:
            self._left = self._scope.deadline - trio.current_time()
            self._scope.deadline = float("inf")
        self._open += 1
        try:
            return await super().ask(questions)
        finally:
            self._open -= 1
            if not self._open:
                self._scope.deadline = trio.current_time() + self._left


class HeldOutlet(PassingOutlet):
    """The caller's, except that it hears nothing of what the answer will be: how far the work is, and what it is asked. For calls that
    are paid for when they are done, because whoever has heard enough could leave without paying."""

    async def emit(self, event: Progress | LogMessage) -> None:
        if isinstance(event, Progress):
            await super().emit(Progress(progress=event.progress, total=event.total))
