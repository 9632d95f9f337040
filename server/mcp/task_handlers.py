"""What the methods of tasks do, on each face. A method that a face does not have is not found there.

    method         extension     core          wasmagent
    tasks/get      + result      flat          its own record
    tasks/update   answers       –             –
    tasks/cancel   acknowledged  the task      its state
    tasks/list     –             pages         all that fit one page
    tasks/result   –             waits, asks   –
    tasks/create   –             –             like tools/call, always a task
    tasks/respond  –             –             one answer to one question

Spec: ext-tasks "tasks"; basic/utilities/tasks (2025-11-25).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from server.mcp import tasks
from server.mcp.errors import (
    BadParams,
    MethodNotFound,
    MissingCapability,
    TaskOver,
    UnknownTask,
    UnknownTool,
    WasmNotAwaiting,
    WasmTaskNotFound,
    WasmToolNotFound,
)
from server.mcp.questions import Question, problem
from server.mcp.results import Nothing, Shaped, ToolResult
from server.mcp.task_params import (
    TaskCreateParams,
    TaskListParams,
    TaskParams,
    TaskRespondParams,
    TaskUpdateParams,
    wasmagent_id,
)
from server.mcp.tasks import Face, Place, Snapshot

PAGE: Final = 50
# The third face has no pages: what it lists is the newest of what there is.
WASMAGENT_LIST: Final = 100
BY_CLIENT: Final = "cancelled by the client"
BY_HOST: Final = "cancelled by host"  # the third face's word for it, which programs compare


class TaskDesk(Protocol):
    """The tasks of one caller at one server, as the request may see them."""

    @property
    def face(self) -> Face | None:
        """None: here is nothing of the kind."""
        ...

    @property
    def declared(self) -> bool:
        """Whether this very request declared the extension."""
        ...

    @property
    def lists(self) -> bool:
        """Whether the caller can be told from others, so that a list of its tasks is its own."""
        ...

    async def start(self, tool: str, arguments: Mapping[str, Any]) -> Snapshot:
        """Raises `UnknownTool`, `InsufficientScope`, `TooManyTasks`, and what wrong arguments raise."""
        ...

    async def get(self, task_id: str) -> Snapshot:
        """Raises `UnknownTask`, as all that follow do."""
        ...

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> Snapshot: ...

    async def cancel(self, task_id: str, *, reason: str) -> Snapshot:
        """Raises `TaskOver`."""
        ...

    async def wait(self, task_id: str, *, seen: frozenset[str]) -> Snapshot:
        """When it is over, or asks something that is not among what was `seen`."""
        ...

    async def list(self, *, after: Place | None, limit: int) -> Sequence[Snapshot]:
        """Newest first, without their results."""
        ...


class TaskCall(Protocol):
    @property
    def desk(self) -> TaskDesk: ...

    async def ask(
        self, questions: Mapping[str, Question], meta: Mapping[str, Any]
    ) -> Mapping[str, Mapping[str, Any]]:
        """Requests to the client, on the stream of this one, with this `_meta`."""
        ...


async def get(params: TaskParams, call: TaskCall) -> Shaped:
    desk = call.desk
    match _face(desk, "tasks/get", Face.EXTENSION, Face.CORE, Face.WASMAGENT):
        case Face.EXTENSION:
            return Shaped(tasks.extension(await desk.get(params.named)))
        case Face.CORE:
            return Shaped(tasks.core(await desk.get(params.named)))
        case Face.WASMAGENT:
            return Shaped(tasks.wasmagent(await _wasmagent_task(desk, wasmagent_id(params))))


async def update(params: TaskUpdateParams, call: TaskCall) -> Nothing:
    """Acknowledged, whatever of it was of use: the next tasks/get tells."""
    _face(call.desk, "tasks/update", Face.EXTENSION)
    await call.desk.answer(params.task_id, params.input_responses)
    return Nothing()


async def cancel(params: TaskParams, call: TaskCall) -> Nothing | Shaped:
    desk = call.desk
    match _face(desk, "tasks/cancel", Face.EXTENSION, Face.CORE, Face.WASMAGENT):
        case Face.EXTENSION:
            with suppress(TaskOver):  # cancelling is idempotent, and may come too late
                await desk.cancel(params.named, reason=BY_CLIENT)
            return Nothing()
        case Face.CORE:
            return Shaped(tasks.core(await desk.cancel(params.named, reason=BY_CLIENT)))
        case Face.WASMAGENT:
            task = await _wasmagent_task(desk, wasmagent_id(params))
            try:
                task = await desk.cancel(task.id, reason=BY_HOST)
            except TaskOver:
                task = await _wasmagent_task(desk, task.id)
            return Shaped({"id": task.id, "state": tasks.wasmagent_state(task)})


async def list_tasks(params: TaskListParams, call: TaskCall) -> Shaped:
    desk = call.desk
    face = _face(desk, "tasks/list", Face.CORE, Face.WASMAGENT)
    if not desk.lists:
        raise MethodNotFound("tasks/list")
    if face is Face.WASMAGENT:
        return Shaped({"tasks": [tasks.wasmagent(task) for task in await desk.list(after=None, limit=WASMAGENT_LIST)]})  # fmt: skip
    after = None if params.cursor is None else tasks.read_cursor(params.cursor)
    found = await desk.list(after=after, limit=PAGE + 1)
    fields: dict[str, Any] = {"tasks": [tasks.core(task) for task in found[:PAGE]]}
    if len(found) > PAGE:
        fields["nextCursor"] = tasks.write_cursor(tasks.place_of(found[PAGE - 1]))
    return Shaped(fields)


async def result(params: TaskParams, call: TaskCall) -> ToolResult:
    """Until it is over. Whoever waits here is whom the task's questions go to."""
    desk = call.desk
    _face(desk, "tasks/result", Face.CORE)
    task_id, asked = params.named, frozenset[str]()
    while not (task := await desk.wait(task_id, seen=asked)).over:
        questions = {key: question for key, question in task.questions.items() if key not in asked}
        asked |= questions.keys()
        await desk.answer(task_id, await call.ask(questions, tasks.related(task_id)))
    return tasks.core_result(task)


async def create(params: TaskCreateParams, call: TaskCall) -> Shaped:
    _face(call.desk, "tasks/create", Face.WASMAGENT)
    try:
        task = await call.desk.start(params.name, params.arguments or {})
    except UnknownTool as error:
        raise WasmToolNotFound(str(error)) from error
    return Shaped({"id": task.id, "state": "pending"})


async def respond(params: TaskRespondParams, call: TaskCall) -> Shaped:
    desk = call.desk
    _face(desk, "tasks/respond", Face.WASMAGENT)
    task = await _wasmagent_task(desk, params.id)
    if (asked := tasks.first_question(task)) is None:
        raise WasmNotAwaiting("the task does not wait for an answer")
    key, question = asked
    answer = tasks.wasmagent_answer(question, params.response)
    if (wrong := problem(question, answer)) is not None:
        raise BadParams(wrong)
    task = await desk.answer(task.id, {key: answer})
    return Shaped({"id": task.id, "state": tasks.wasmagent_state(task)})


async def _wasmagent_task(desk: TaskDesk, task_id: str) -> Snapshot:
    try:
        return await desk.get(task_id)
    except UnknownTask as error:
        raise WasmTaskNotFound(str(error)) from error


def _face(desk: TaskDesk, method: str, *having: Face) -> Face:
    if (face := desk.face) is None or face not in having:
        raise MethodNotFound(method)
    if face is Face.EXTENSION and not desk.declared:
        raise MissingCapability(tasks.REQUIRED_CAPABILITY)
    return face
