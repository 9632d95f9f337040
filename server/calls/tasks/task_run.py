"""One call while the engine of tasks runs it, and what it ended as. Carrying it out is task_engine.py's."""

from __future__ import annotations

import math

import trio

from server.calls.tasks.task_order import TaskOrder
from server.calls.tasks.task_outlet import TaskAttempt, TaskOutlet
from server.mcp.call_outlet import Outlet
from server.mcp.errors import WIRE, AgentAway, AgentReplaced, McpError
from server.mcp.loads import Load
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.mcp.task_faces import Ending, Snapshot, TaskCompleted, TaskFailed


class TaskRun:
    def __init__(self, order: TaskOrder, load: Load | None = None) -> None:
        """Begin with nothing done. `load`: the room that its request takes."""
        self.order = order
        self.scope = trio.CancelScope()
        self.settled = trio.Event()  # it is a task, or it has ended
        self.attempt: TaskAttempt | None = None
        self.outlet: TaskOutlet | None = None  # from when on it is a task
        self.snapshot: Snapshot | None = None  # as it was made
        self.over_at = math.inf  # when its time to live ends
        self.version = 0
        self.ending: Ending | None = None
        self.error: Exception | None = None  # of one that is no task: for its request
        self._loads: list[Load] = []
        self.hold(load)

    @property
    def line(self) -> Outlet:
        line = self.attempt or self.outlet
        assert line is not None
        return line

    def hold(self, load: Load | None) -> None:
        """Hold the room of a request until the work has ended."""
        if load is not None:
            self._loads.append(load.hold())

    def let_go(self) -> None:
        """Let go of all room: the work has ended, or will never begin."""
        while self._loads:
            self._loads.pop().let_go()


def is_put_aside(work: TaskRun) -> bool:
    """Return whether it did not come to an end of its own: its agent was replaced meanwhile."""
    return isinstance(work.error, AgentReplaced)


def ending_of(work: TaskRun) -> Ending | None:
    """Return what came of it; None: the work was stopped."""
    match work.error:
        case None:
            return work.ending
        case AgentAway() as error:
            return TaskCompleted(ToolResult(content=(TextContent(text=error.advice),), is_error=True))
        case McpError() as error:
            code = getattr(error, "code", WIRE[type(error)].code)
            return TaskFailed(code, str(error), error.data)
        case _:
            return TaskFailed(-32603, f"internal error (request {work.order.call_id})")
