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

from contextlib import suppress
from typing import Any, Final

from server.calls.caller_tasks import CallerTasks
from server.mcp import task_faces
from server.mcp.call_questions import problem
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
from server.mcp.result_encoding import EmptyResult, RawResult, ToolResult
from server.mcp.task_faces import Face, Snapshot
from server.mcp.task_params import (
    TaskCreateParams,
    TaskListParams,
    TaskParams,
    TaskRespondParams,
    TaskUpdateParams,
    wasmagent_id,
)

PAGE: Final = 50
# The third face has no pages: what it lists is the newest of what there is.
WASMAGENT_LIST: Final = 100
BY_CLIENT: Final = "cancelled by the client"
BY_HOST: Final = "cancelled by host"  # the third face's word for it, which programs compare


async def get_task(params: TaskParams, desk: CallerTasks) -> RawResult:
    match _face(desk, "tasks/get", Face.EXTENSION, Face.CORE, Face.WASMAGENT):
        case Face.EXTENSION:
            return RawResult(task_faces.extension(await desk.get(params.named)))
        case Face.CORE:
            return RawResult(task_faces.core(await desk.get(params.named)))
        case Face.WASMAGENT:
            return RawResult(task_faces.wasmagent(await _wasmagent_task(desk, wasmagent_id(params))))


async def update_task(params: TaskUpdateParams, desk: CallerTasks) -> EmptyResult:
    """Acknowledged, whatever of it was of use: the next tasks/get tells."""
    _face(desk, "tasks/update", Face.EXTENSION)
    await desk.answer(params.task_id, params.input_responses)
    return EmptyResult()


async def cancel_task(params: TaskParams, desk: CallerTasks) -> EmptyResult | RawResult:
    match _face(desk, "tasks/cancel", Face.EXTENSION, Face.CORE, Face.WASMAGENT):
        case Face.EXTENSION:
            with suppress(TaskOver):  # cancelling is idempotent, and may come too late
                await desk.cancel(params.named, reason=BY_CLIENT)
            return EmptyResult()
        case Face.CORE:
            return RawResult(task_faces.core(await desk.cancel(params.named, reason=BY_CLIENT)))
        case Face.WASMAGENT:
            task = await _wasmagent_task(desk, wasmagent_id(params))
            try:
                task = await desk.cancel(task.id, reason=BY_HOST)
            except TaskOver:
                task = await _wasmagent_task(desk, task.id)
            return RawResult({"id": task.id, "state": task_faces.wasmagent_state(task)})


async def list_tasks(params: TaskListParams, desk: CallerTasks) -> RawResult:
    face = _face(desk, "tasks/list", Face.CORE, Face.WASMAGENT)
    if not desk.lists:
        raise MethodNotFound("tasks/list")
    if face is Face.WASMAGENT:
        return RawResult({"tasks": [task_faces.wasmagent(task) for task in await desk.list(after=None, limit=WASMAGENT_LIST)]})  # fmt: skip
    after = None if params.cursor is None else task_faces.read_cursor(params.cursor)
    found = await desk.list(after=after, limit=PAGE + 1)
    fields: dict[str, Any] = {"tasks": [task_faces.core(task) for task in found[:PAGE]]}
    if len(found) > PAGE:
        fields["nextCursor"] = task_faces.write_cursor(task_faces.place_of(found[PAGE - 1]))
    return RawResult(fields)


async def task_result(params: TaskParams, desk: CallerTasks) -> ToolResult:
    """Until it is over. Whoever waits here is whom the task's questions go to."""
    _face(desk, "tasks/result", Face.CORE)
    task_id, asked = params.named, frozenset[str]()
    await desk.get(task_id)  # of somebody else's, nothing is fetched
    with desk.fetch(task_id):
        while not (task := await desk.wait(task_id, seen=asked)).over:
            questions = {key: question for key, question in task.questions.items() if key not in asked}
            asked |= questions.keys()
            await desk.ask(task_id, questions)
    return task_faces.core_result(task)


async def create_task(params: TaskCreateParams, desk: CallerTasks) -> RawResult:
    _face(desk, "tasks/create", Face.WASMAGENT)
    try:
        task = await desk.start(params.name, params.arguments or {})
    except UnknownTool as error:
        raise WasmToolNotFound(str(error)) from error
    return RawResult({"id": task.id, "state": "pending"})


async def respond_to_task(params: TaskRespondParams, desk: CallerTasks) -> RawResult:
    _face(desk, "tasks/respond", Face.WASMAGENT)
    task = await _wasmagent_task(desk, params.id)
    if (asked := task_faces.first_question(task)) is None:
        raise WasmNotAwaiting("the task does not wait for an answer")
    key, question = asked
    answer = task_faces.wasmagent_answer(question, params.response)
    if (wrong := problem(question, answer)) is not None:
        raise BadParams(wrong)
    task = await desk.answer(task.id, {key: answer})
    return RawResult({"id": task.id, "state": task_faces.wasmagent_state(task)})


async def _wasmagent_task(desk: CallerTasks, task_id: str) -> Snapshot:
    try:
        return await desk.get(task_id)
    except UnknownTask as error:
        raise WasmTaskNotFound(str(error)) from error


def _face(desk: CallerTasks, method: str, *having: Face) -> Face:
    if (face := desk.face) is None or face not in having:
        raise MethodNotFound(method)
    if face is Face.EXTENSION and not desk.declared:
        raise MissingCapability(task_faces.REQUIRED_CAPABILITY)
    return face
