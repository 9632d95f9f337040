"""Calls of a tool that become tasks, waited for until they end: the extension of 2026-07-28, and the tasks of 2025-11-25.

Asked for only where the tool cannot be called otherwise. mcp_client.py sends the requests; questions of a task go to whoever answers them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, cast

import trio

from server.client.client_errors import BadAnswer, CallRefused, ClientError
from server.client.mcp_answers import mapping, refused
from server.client.mcp_session.upstream_messages import MISSING_CAPABILITY
from server.mcp.versions import TASKS_EXTENSION

# Asked soon at first, as many a task is short, then as seldom as the server wishes.
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 10.0
FAREWELL_SECONDS: Final = 2.0
MAX_ID: Final = 4096


class TaskWire(Protocol):
    """The sender of what is asked about a task, who has its questions answered."""

    async def request(self, method: str, more: Mapping[str, Any]) -> dict[str, Any]: ...

    async def answer(self, questions: Mapping[str, Any]) -> Mapping[str, Any]: ...

    def tell(self, words: str) -> None: ...


def needs_task(error: CallRefused) -> bool:
    """Return whether the server refused a call because it runs as a task alone."""
    required = mapping(mapping(error.error.get("data")).get("requiredCapabilities"))
    wanted = set(mapping(required.get("extensions")))
    return error.code == MISSING_CAPABILITY and wanted == {TASKS_EXTENSION}


def always_a_task(tool: Mapping[str, Any]) -> bool:
    """Return whether the tool says that its calls are tasks (2025-11-25)."""
    return mapping(tool.get("execution")).get("taskSupport") == "required"


def task_id_of(result: Mapping[str, Any]) -> str | None:
    """Return the id of the task that an answer to tools/call is, in either form; None for a result. Raises `BadAnswer`."""
    found = result if result.get("resultType") == "task" else mapping(result.get("task"))
    if not found:
        return None
    task_id = found.get("taskId")
    if not isinstance(task_id, str) or not 0 < len(task_id) <= MAX_ID:
        raise BadAnswer("the server began a task that has no id")
    return task_id


async def wait_for(wire: TaskWire, *, modern: bool, seconds: float) -> dict[str, Any] | None:
    """Return the task's result, also one with `isError`; None when there was none after so many seconds, in which time for answering
    questions does not count. Raises `ClientError`s. A task whose result is not waited for any more is cancelled."""
    over = False
    try:
        with trio.move_on_after(seconds) as patience:
            result = (
                await _ended(wire, patience, seconds) if modern else await wire.request("tasks/result", {})
            )
            over = True
            return result
        return None
    except CallRefused:
        over = True
        raise
    finally:
        if not over:
            with trio.move_on_after(FAREWELL_SECONDS, shield=True):
                with suppress(ClientError):
                    await wire.request("tasks/cancel", {})


async def _ended(wire: TaskWire, patience: trio.CancelScope, seconds: float) -> dict[str, Any]:
    answered: set[str] = set()
    pause, told = FIRST_PAUSE, ""
    while True:
        state = await wire.request("tasks/get", {})
        match state.get("status"):
            case "completed":
                result = state.get("result")
                if not isinstance(result, dict):
                    raise BadAnswer("the task ended without a result")
                return cast("dict[str, Any]", result)
            case "failed":
                raise refused(mapping(state.get("error")), "tools/call")
            case "cancelled":
                said = state.get("statusMessage")
                raise CallRefused(
                    "the task was cancelled" + (f": {said[:500]}" if isinstance(said, str) and said else ""),
                    code=0,
                )
            case "input_required":
                questions = mapping(state.get("inputRequests"))
                fresh = {key: asked for key, asked in questions.items() if key not in answered}
                if fresh:
                    patience.deadline = math.inf
                    answers = await wire.answer(fresh)
                    patience.deadline = trio.current_time() + seconds
                    await wire.request("tasks/update", {"inputResponses": dict(answers)})
                    answered |= fresh.keys()
                    pause = FIRST_PAUSE
                    continue
            case "working":
                pass
            case _:
                raise BadAnswer("the server does not say how its task stands")
        said = state.get("statusMessage")
        if isinstance(said, str) and said != told:
            told = said
            wire.tell(said[:500])
        await trio.sleep(pause)
        pause = min(2 * pause, _wished(state))


def _wished(state: Mapping[str, Any]) -> float:
    wished = state.get("pollIntervalMs")
    if not isinstance(wished, int | float) or isinstance(wished, bool):
        return LONGEST_PAUSE
    return min(max(wished / 1000, FIRST_PAUSE), LONGEST_PAUSE)
