"""A call that became a task at a server, followed to its end: by asking how it stands, in both forms that tasks have.

Its id is a checkpoint, so that ours goes on with it: when its caller's client comes back, and as a task of ours after a restart. A
server that is away for a while is waited for. Spec: ext-tasks (2026-07-28), basic/utilities/tasks (2025-11-25).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import msgspec
import trio
from msgspec import Raw

from server.client.mcp_session.handshake_questions import question_of
from server.client.mcp_session.session_link import Link
from server.client.mcp_session.session_messages import (
    EMPTY,
    MISSING_CAPABILITY,
    ServerFailure,
    ServerGone,
    ServerRefusal,
    members,
    refusal_of,
    said,
)
from server.client.mcp_session.session_request import SessionRequest
from server.client.mcp_session.streamable_http import name_header
from server.mcp.call_outlet import Outlet, PassingOutlet, Progress
from server.mcp.call_questions import Question
from server.mcp.task_faces import EXTENSION_NAME

TASK: Final = "task"
# Beside it in a checkpoint of one that was begun in the handshake era, in which it is asked about as well.
HANDSHAKE: Final = "handshake"
ID_CHARACTERS: Final = 1024
KEY_CHARACTERS: Final = 128  # of a question
POLL_SECONDS: Final = 1.0
SHORTEST_POLL_SECONDS: Final = (
    0.1  # and the first pause; each is twice the one before, up to what the server wishes
)
LONGEST_POLL_SECONDS: Final = 30.0
AWAY_SECONDS: Final = 5.0
# A server that stays away this long has forgotten its tasks, or will not come back.
AWAY_AT_MOST_SECONDS: Final = 15 * 60.0

OpenLink: TypeAlias = Callable[[], AbstractAsyncContextManager[Link]]
# One request about the task whose answer may take long, and may ask: `tasks/result`.
Wait: TypeAlias = Callable[[Link, Mapping[str, Any], Outlet], Awaitable[Raw]]


class TaskCancelled(ServerFailure):
    """A task that was cancelled there, perhaps with a reason."""

    def __init__(self, why: str | None) -> None:
        super().__init__("cancelled the task that it made of this call" + (f": {said(why)}" if why else ""))


class _State(msgspec.Struct, rename="camel"):
    status: str = "working"
    status_message: str | None = None
    poll_interval: float | None = None
    poll_interval_ms: float | None = None
    input_requests: Raw = EMPTY
    result: Raw = EMPTY
    error: Raw = EMPTY


class _Created(msgspec.Struct, rename="camel"):
    result_type: str = "complete"
    task_id: str = ""
    task: Raw = EMPTY


NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

_decode_state: Final = msgspec.json.Decoder(_State).decode
_decode_created: Final = msgspec.json.Decoder(_Created).decode


def created(raw: Raw, *, modern: bool) -> str | None:
    """Return the id of the task that the answer is; None: the answer is a result."""
    try:
        found = _decode_created(raw)
    except (ValueError, RecursionError):
        return None
    if modern and found.result_type != "task":
        return None
    task_id: Any = found.task_id if modern else members(found.task).get("taskId")
    if not modern and task_id is None:
        return None
    if not isinstance(task_id, str) or not 0 < len(task_id) <= ID_CHARACTERS:
        raise ServerFailure("began a task that has no id")
    return task_id


def wants_tasks(refusal: ServerRefusal) -> bool:
    """Return whether a server of the stateless era refused a request because its client did not say that it takes tasks."""
    if refusal.code != MISSING_CAPABILITY or refusal.data is None:
        return False
    return EXTENSION_NAME in _object(_object(refusal.data.get("requiredCapabilities")).get("extensions"))


class TaskLine(PassingOutlet):
    """The caller's line, whose checkpoints name the task besides."""

    def __init__(self, outlet: Outlet, kept: Mapping[str, Any]) -> None:
        super().__init__(outlet)
        self._kept = kept

    async def checkpoint(self, data: Any) -> None:
        await super().checkpoint({**_object(data), **self._kept})


async def follow_task(
    task_id: str,
    call: SessionRequest,
    outlet: Outlet,
    open_link: OpenLink,
    wait: Wait,
    *,
    kept: Mapping[str, Any] | None = None,
) -> Raw:
    """Return the result. `kept` is part of each checkpoint; None: the task. Raises `ServerRefusal`, `BackendError`, and whatever `outlet` raises."""
    # How it stands is asked as this caller, and for nobody to be told or asked meanwhile.
    quiet = call.quiet()
    line = TaskLine(outlet, kept or {TASK: task_id})
    params = {"taskId": task_id}
    answered = set[str]()
    told: str | None = None
    steps = 0
    away_since: float | None = None
    pause = SHORTEST_POLL_SECONDS / 2
    while True:
        try:
            async with open_link() as link:
                modern = link.agreement.modern
                raw = await link.request(
                    "tasks/get", params, call=quiet, headers=_named(link, task_id), tasks=modern
                )
                state = _read(raw)
                if not modern and state.status in ("input_required", "completed", "failed"):
                    return await wait(link, params, line)
            away_since = None
        except ServerGone:
            now = trio.current_time()
            away_since = now if away_since is None else away_since
            if now - away_since > AWAY_AT_MOST_SECONDS:
                raise
            await trio.sleep(AWAY_SECONDS)
            continue
        match state.status:
            case "completed":
                return state.result
            case "failed":
                raise refusal_of(state.error)
            case "cancelled":
                raise TaskCancelled(state.status_message)
            case "input_required":
                open_ones = {
                    key: asked for key, asked in members(state.input_requests).items() if key not in answered
                }
                if open_ones:
                    responses = await _answers(open_ones, line)
                    async with open_link() as link:
                        update = {**params, "inputResponses": responses}
                        headers = _named(link, task_id)
                        await link.request("tasks/update", update, call=quiet, headers=headers, tasks=True)
                    answered |= open_ones.keys()
                    continue
            case "working":
                pass
            case _:
                raise ServerFailure("does not say how its task stands")
        if state.status_message and state.status_message != told and call.wants_progress:
            told = state.status_message
            steps += 1
            await outlet.emit(Progress(progress=steps, message=said(told)))
        pause = min(2 * pause, _pause(state))
        await trio.sleep(pause)


async def cancel_task(task_id: str, call: SessionRequest, open_link: OpenLink) -> None:
    """Cancel a task there. Raises as `follow_task`."""
    async with open_link() as link:
        modern = link.agreement.modern
        await link.request(
            "tasks/cancel",
            {"taskId": task_id},
            call=call.quiet(),
            headers=_named(link, task_id),
            tasks=modern,
        )


async def _answers(asked: Mapping[str, Any], outlet: Outlet) -> Mapping[str, Any]:
    """Ask, and return the answers by the server's keys: they name the same question for as long as the task lives, and so do ours."""
    named: dict[str, tuple[str, Question]] = {}
    for key, each in asked.items():
        given = _object(each)
        question = question_of(str(given.get("method")), _object(given.get("params")))
        if question is None:
            raise ServerFailure("asks what no client can be asked")
        named[f"task-{key}"[:KEY_CHARACTERS]] = (key, question)
    await outlet.checkpoint({})
    answers = await outlet.ask({ours: question for ours, (_, question) in named.items()})
    return {theirs: answers[ours] for ours, (theirs, _) in named.items()}


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else NOTHING


def _read(raw: Raw) -> _State:
    try:
        return _decode_state(raw)
    except (ValueError, RecursionError):
        raise ServerFailure("does not say how its task stands") from None


def _pause(state: _State) -> float:
    wished = state.poll_interval_ms if state.poll_interval is None else state.poll_interval
    seconds = POLL_SECONDS if wished is None else wished / 1000
    return min(max(seconds, SHORTEST_POLL_SECONDS), LONGEST_POLL_SECONDS)


def _named(link: Link, task_id: str) -> Mapping[str, str]:
    return name_header(task_id) if link.agreement.modern else {}
