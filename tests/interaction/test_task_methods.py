"""What the methods of tasks do on each face (server/calls/task_methods.py), at a desk that is made up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import pytest

from server.calls import task_methods as handlers
from server.calls.task_methods import PAGE
from server.mcp import task_faces
from server.mcp.call_questions import Question
from server.mcp.errors import (
    BadCursor,
    BadParams,
    McpError,
    MethodNotFound,
    MissingCapability,
    TaskOver,
    UnknownTask,
    UnknownTool,
    WasmNotAwaiting,
    WasmTaskNotFound,
    WasmToolNotFound,
)
from server.mcp.messages import TextContent
from server.mcp.result_encoding import EmptyResult, RawResult, ToolResult
from server.mcp.task_faces import Face, Place, Snapshot, TaskCompleted
from server.mcp.task_params import (
    TaskCreateParams,
    TaskListParams,
    TaskParams,
    TaskRespondParams,
    TaskUpdateParams,
)

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORM = Question(method="elicitation/create", params={"message": "how many?", "requestedSchema": SCHEMA})


def task(task_id: str = "t1", **changed: Any) -> Snapshot:
    values: dict[str, Any] = {
        "id": task_id,
        "server": "main",
        "tool": "slow",
        "state": "working",
        "message": None,
        "created_at": 1,
        "updated_at": 2,
        "ttl_ms": 3,
        "poll_ms": 4,
        "version": 5,
    }
    return Snapshot(**values | changed)


DONE = {"state": "completed", "ending": TaskCompleted(ToolResult(content=[TextContent(text="hi")]))}


class CallerTasks:
    def __init__(self, face: Face, *found: Snapshot, declared: bool = True) -> None:
        self.face: Face | None = face
        self.lists = True
        self.declared = declared
        self.tasks = {each.id: each for each in found}
        self.did: list[Any] = []
        self.asked: list[tuple[str, Mapping[str, Question]]] = []

    @contextmanager
    def fetch(self, task_id: str) -> Generator[None]:
        self.did.append(("fetch", task_id))
        yield
        self.did.append(("fetched", task_id))

    async def ask(self, task_id: str, questions: Mapping[str, Question]) -> None:
        self.asked.append((task_id, questions))
        await self.answer(task_id, {key: {"action": "accept", "content": {"n": 1}} for key in questions})

    async def start(self, tool: str, arguments: Mapping[str, Any]) -> Snapshot:
        if tool != "slow":
            raise UnknownTool(tool)
        self.did.append(("start", tool, arguments))
        return task("t9")

    async def get(self, task_id: str) -> Snapshot:
        if task_id not in self.tasks:
            raise UnknownTask
        return self.tasks[task_id]

    async def answer(self, task_id: str, answers: Mapping[str, Any]) -> Snapshot:
        found = await self.get(task_id)
        self.did.append(("answer", answers))
        left = {key: question for key, question in found.questions.items() if key not in answers}
        state = "input_required" if left else "working"
        self.tasks[task_id] = msgspec.structs.replace(found, questions=left, state=state)
        return self.tasks[task_id]

    async def cancel(self, task_id: str, *, reason: str) -> Snapshot:
        found = await self.get(task_id)
        if found.over:
            raise TaskOver("it has ended")
        self.tasks[task_id] = msgspec.structs.replace(found, state="cancelled", message=reason)
        return self.tasks[task_id]

    async def wait(self, task_id: str, *, seen: frozenset[str]) -> Snapshot:
        found = await self.get(task_id)
        if not found.questions.keys() - seen and not found.over:  # what is waited for happens
            self.tasks[task_id] = msgspec.structs.replace(found, **DONE)
        return self.tasks[task_id]

    async def list(self, *, after: Place | None, limit: int) -> Sequence[Snapshot]:
        found = sorted(self.tasks.values(), key=task_faces.place_of, reverse=True)
        return [each for each in found if after is None or task_faces.place_of(each) < after][:limit]


NAMED = TaskParams(task_id="t1")
OURS = TaskParams(id="t1")
UPDATE = TaskUpdateParams(task_id="t1", input_responses={})
RESPOND = TaskRespondParams(id="t1", response="1")

Ask = Callable[[Any], Awaitable[Any]]
METHODS: dict[str, tuple[Ask, set[Face]]] = {
    "get": (lambda desk: handlers.get_task(NAMED, desk), {Face.EXTENSION, Face.CORE}),
    "get by id": (lambda desk: handlers.get_task(OURS, desk), {Face.WASMAGENT}),
    "update": (lambda desk: handlers.update_task(UPDATE, desk), {Face.EXTENSION}),
    "cancel": (lambda desk: handlers.cancel_task(NAMED, desk), {Face.EXTENSION, Face.CORE}),
    "cancel by id": (lambda desk: handlers.cancel_task(OURS, desk), {Face.WASMAGENT}),
    "list": (lambda desk: handlers.list_tasks(TaskListParams(), desk), {Face.CORE, Face.WASMAGENT}),
    "result": (lambda desk: handlers.task_result(NAMED, desk), {Face.CORE}),
    "create": (lambda desk: handlers.create_task(TaskCreateParams(name="slow"), desk), {Face.WASMAGENT}),
    "respond": (lambda desk: handlers.respond_to_task(RESPOND, desk), {Face.WASMAGENT}),
}


@pytest.mark.requirement("tasks.no-others")
@pytest.mark.parametrize("face", list(Face))
@pytest.mark.parametrize("method", METHODS)
async def test_each_face_has_its_methods_and_no_others(method: str, face: Face) -> None:
    ask, faces = METHODS[method]
    desk: Any = CallerTasks(face, task(state="input_required", questions={"q": FORM}))
    if face in faces:
        assert await ask(desk) is not None
    else:
        with pytest.raises((MethodNotFound, BadParams)):
            await ask(desk)


@pytest.mark.parametrize("method", METHODS)
async def test_where_there_are_no_tasks_there_is_no_method_of_theirs(method: str) -> None:
    desk: Any = CallerTasks(Face.CORE, task())
    desk.face = None
    with pytest.raises(MethodNotFound):
        await METHODS[method][0](desk)


async def test_callers_who_cannot_be_told_from_one_another_have_no_list() -> None:
    desk: Any = CallerTasks(Face.CORE, task())
    desk.lists = False
    with pytest.raises(MethodNotFound):
        await METHODS["list"][0](desk)


@pytest.mark.parametrize("method", ["get", "update", "cancel"])
async def test_without_the_extension_on_the_request_nothing_of_it_is_answered(method: str) -> None:
    with pytest.raises(MissingCapability):
        await METHODS[method][0](CallerTasks(Face.EXTENSION, task(), declared=False))


@pytest.mark.parametrize("method", ["list", "result", "create", "respond"])
async def test_what_the_extension_does_not_have_is_not_found_rather_than_missing_a_capability(
    method: str,
) -> None:
    with pytest.raises(MethodNotFound):
        await METHODS[method][0](CallerTasks(Face.EXTENSION, task(), declared=False))


@pytest.mark.parametrize(
    ("method", "face", "error"),
    [
        ("get", Face.EXTENSION, UnknownTask),
        ("update", Face.EXTENSION, UnknownTask),
        ("cancel", Face.EXTENSION, UnknownTask),
        ("get", Face.CORE, UnknownTask),
        ("result", Face.CORE, UnknownTask),
        ("cancel", Face.CORE, UnknownTask),
        ("get by id", Face.WASMAGENT, WasmTaskNotFound),
        ("cancel by id", Face.WASMAGENT, WasmTaskNotFound),
        ("respond", Face.WASMAGENT, WasmTaskNotFound),
    ],
)
async def test_a_task_that_is_not_there_is_refused_in_the_words_of_the_face(
    method: str, face: Face, error: type[McpError]
) -> None:
    with pytest.raises(error):
        await METHODS[method][0](CallerTasks(face))


async def test_updating_and_cancelling_are_acknowledged_and_nothing_more() -> None:
    desk: Any = CallerTasks(Face.EXTENSION, task(state="input_required", questions={"q": FORM}))
    given = {"q": {"action": "decline"}, "unknown": 1}
    assert (
        await handlers.update_task(TaskUpdateParams(task_id="t1", input_responses=given), desk)
        == EmptyResult()
    )
    assert desk.did == [("answer", given)]
    for _ in range(2):
        assert await handlers.cancel_task(NAMED, desk) == EmptyResult()
    assert desk.tasks["t1"].state == "cancelled"


async def test_cancelling_a_core_task_shows_it_cancelled_and_only_once() -> None:
    desk: Any = CallerTasks(Face.CORE, task())
    assert (await handlers.cancel_task(NAMED, desk)) == RawResult(task_faces.core(desk.tasks["t1"]))
    with pytest.raises(TaskOver):
        await handlers.cancel_task(NAMED, desk)


async def test_the_result_of_a_core_task_comes_after_its_questions_were_put_on_the_same_stream() -> None:
    desk: Any = CallerTasks(Face.CORE, task(state="input_required", questions={"q": FORM}))
    found = await handlers.task_result(NAMED, desk)
    assert found.meta == {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}
    assert desk.asked == [("t1", {"q": FORM})]
    answered = ("answer", {"q": {"action": "accept", "content": {"n": 1}}})
    assert desk.did == [("fetch", "t1"), answered, ("fetched", "t1")]


async def test_a_list_has_pages_that_lead_through_all_of_it() -> None:
    desk: Any = CallerTasks(
        Face.CORE, *(task(f"t{number}", created_at=number) for number in range(2 * PAGE + 1))
    )
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = (await handlers.list_tasks(TaskListParams(cursor=cursor), desk)).fields
        seen += [each["taskId"] for each in page["tasks"]]
        if "nextCursor" not in page:
            break
        cursor = page["nextCursor"]
    assert seen == [f"t{number}" for number in range(2 * PAGE, -1, -1)]
    with pytest.raises(BadCursor):
        await handlers.list_tasks(TaskListParams(cursor=""), desk)


async def test_the_dialect_creates_with_an_id_and_a_state_of_its_own() -> None:
    desk: Any = CallerTasks(Face.WASMAGENT)
    made = await handlers.create_task(TaskCreateParams(name="slow", arguments={"x": 1}), desk)
    assert made.fields == {"id": "t9", "state": "pending"}
    assert desk.did == [("start", "slow", {"x": 1})]
    with pytest.raises(WasmToolNotFound):
        await handlers.create_task(TaskCreateParams(name="other"), desk)


async def test_the_dialect_takes_one_answer_and_refuses_one_that_nobody_asked_for() -> None:
    desk: Any = CallerTasks(Face.WASMAGENT, task(state="input_required", questions={"q": FORM}))
    with pytest.raises(BadParams):
        await handlers.respond_to_task(TaskRespondParams(id="t1", response="many"), desk)
    assert (await handlers.respond_to_task(RESPOND, desk)).fields == {"id": "t1", "state": "running"}
    assert desk.did == [("answer", {"q": {"action": "accept", "content": {"n": 1}}})]
    with pytest.raises(WasmNotAwaiting):
        await handlers.respond_to_task(RESPOND, desk)


async def test_the_dialect_cancels_by_failing_and_says_so_again_when_asked_again() -> None:
    desk: Any = CallerTasks(Face.WASMAGENT, task())
    for _ in range(2):
        assert (await handlers.cancel_task(OURS, desk)) == RawResult({"id": "t1", "state": "failed"})
    record = (await handlers.get_task(OURS, desk)).fields
    assert (record["state"], record["error"]) == ("failed", "cancelled by host")


async def test_an_id_that_is_missing_or_empty_is_named_as_the_face_names_it() -> None:
    with pytest.raises(BadParams, match="taskId"):
        await handlers.get_task(OURS, cast("Any", CallerTasks(Face.CORE)))
    with pytest.raises(BadParams, match="'id'"):
        await handlers.get_task(TaskParams(id=""), cast("Any", CallerTasks(Face.WASMAGENT)))
