"""Tasks as the protocol sees them: one snapshot, three faces. When a call becomes a task, and what each face calls things. Pure.

    extension   `io.modelcontextprotocol/tasks` of 2026-07-28: the server decides; flat; answers come with tasks/update
    core        2025-11-25: the client asks with `params.task`; nested; tasks/result blocks, and carries the questions
    wasmagent   of a server that says `compat.tasks = "wasmagent"`: a call that takes long goes on by itself

The work itself, and what is kept of it, is `server/calls/tasks/task_engine.py`'s. Spec: ext-tasks "tasks"; basic/utilities/tasks (2025-11-25).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from server.mcp.call_questions import Question
from server.mcp.errors import WIRE, AgentError, BadCursor, McpError, MethodNotFound, MissingCapability
from server.mcp.messages import TextContent, Tool, ToolExecution
from server.mcp.result_encoding import RawResult, ToolResult, members_of

EXTENSION_NAME: Final = "io.modelcontextprotocol/tasks"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
IMMEDIATE_RESPONSE: Final = "io.modelcontextprotocol/model-immediate-response"
REQUIRED_CAPABILITY: Final[Mapping[str, Any]] = MappingProxyType({"extensions": {EXTENSION_NAME: {}}})

# How long a call of the wasmagent face is waited for before it goes on as a task: just under what proxies wait.
SYNC_TIMEOUT_SECONDS: Final = 25.0

State: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})


class Face(StrEnum):
    EXTENSION = "extension"
    CORE = "core"
    WASMAGENT = "wasmagent"


class TaskCompleted(msgspec.Struct, frozen=True, tag="completed", omit_defaults=True):
    """The tool answered. An answer that says `is_error` is an answer, too."""

    result: ToolResult
    # As `when_written` of the request, called once the result is kept as the task's, or was given to whoever waited for it. Not kept itself.
    when_kept: Any = None
    # The request that was carried out, for whoever waited for it. Not kept itself.
    call: Any = None


class TaskFailed(msgspec.Struct, frozen=True, tag="failed", omit_defaults=True):
    """The call ended in a JSON-RPC error."""

    code: int
    message: str
    data: Mapping[str, Any] | None = None


Ending: TypeAlias = TaskCompleted | TaskFailed


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One task at one moment. Members besides its state depend on how it was asked for."""

    id: str
    server: str
    tool: str
    state: State
    message: str | None
    created_at: int  # milliseconds since 1970
    updated_at: int
    ttl_ms: int
    poll_ms: int
    version: int  # grows with every change
    tool_failed: bool = False  # completed, with a result that says so
    questions: Mapping[str, Question] = {}  # outstanding ones
    ending: Ending | None = None  # of one that completed or failed
    events: Sequence[Mapping[str, Any]] = ()
    immediate: str | None = None  # what a model may be told at once, when the task has just been made

    @property
    def over(self) -> bool:
        return self.state in TERMINAL


# ── how a call is carried out ────────────────────────────────────────────────────────────────────────────────────────


class Sync(msgspec.Struct, frozen=True):
    """Like any call: the caller waits."""


class AtOnce(msgspec.Struct, frozen=True):
    """The answer is a task. `or_waits`: where there is no room for one, the caller can as well wait."""

    or_waits: bool = False


class ByHand(msgspec.Struct, frozen=True):
    """A call that begins like any other, and becomes a task when the tool says so, or after so many seconds."""

    after_seconds: float | None = None


class TaskRefusal(msgspec.Struct, frozen=True):
    error: McpError


Manner: TypeAlias = Sync | AtOnce | ByHand | TaskRefusal


def manner(
    face: Face | None,
    execution: ToolExecution | UnsetType,
    *,
    tool: str = "this tool",
    declared: bool = False,
    asked: bool = False,
    sync_timeout_seconds: float = SYNC_TIMEOUT_SECONDS,
) -> Manner:
    """Decide how a call is answered. `face` None: this caller has no form of tasks at all. `declared`: it declared the extension with this very request.
    `asked`: it sent `params.task`, which means something on the core face only."""
    support, by_hand = (
        ("forbidden", False) if execution is UNSET else (execution.task_support, execution.by_hand)
    )
    match face:
        case Face.EXTENSION:
            if support == "forbidden":
                return Sync()
            if not declared:
                return (
                    TaskRefusal(MissingCapability(REQUIRED_CAPABILITY, needs_tasks(tool)))
                    if support == "required"
                    else Sync()
                )
            return ByHand() if by_hand else AtOnce(or_waits=support == "optional")
        case Face.CORE:
            if asked:
                return TaskRefusal(MethodNotFound("tools/call with a task", f": {tool} runs as none, so send no `task` in params")) if support == "forbidden" else AtOnce()  # fmt: skip
            return TaskRefusal(MethodNotFound("tools/call without a task", f": {tool} runs as one, so send `task` in params")) if support == "required" else Sync()  # fmt: skip
        case Face.WASMAGENT:
            if support == "required" or sync_timeout_seconds <= 0:
                return AtOnce(or_waits=support != "required")
            return ByHand(sync_timeout_seconds)
        case None:
            return Sync()


def needs_tasks(tool: str) -> str:
    """Return what a client without tasks is told of a tool that is always one."""
    return (
        f"This call was not made: {tool} runs as a task, and this client does not take tasks (it does not declare"
        f" {EXTENSION_NAME}). Calling again does not help: use a client that does, such as `ostiary call`."
    )


def wasmagent_tool(tool: Tool) -> Tool:
    """Return a tool as that face lists it, which has a word of its own for what is always a task, and none for what may be one."""
    if tool.execution is UNSET:
        return tool
    meta = tool.meta
    if tool.execution.task_support == "required":
        meta = {**({} if meta is UNSET else meta), "longRunning": True}
    return msgspec.structs.replace(tool, execution=UNSET, meta=meta)


# ── what a task looks like ───────────────────────────────────────────────────────────────────────────────────────────


def created(face: Face, task: Snapshot) -> RawResult | ToolResult:
    """Return the answer to the tools/call that is a task now."""
    match face:
        case Face.EXTENSION:
            return RawResult(_flat(task), "task")
        case Face.CORE:
            fields: dict[str, Any] = {"task": core(task)}
            if task.immediate is not None:
                fields["_meta"] = {IMMEDIATE_RESPONSE: task.immediate}
            return RawResult(fields)
        case Face.WASMAGENT:
            text = f"{task.tool} takes longer: continue via tasks/get with id {task.id}"
            return ToolResult(content=(TextContent(text=text),), meta={"taskId": task.id})


def extension(task: Snapshot) -> dict[str, Any]:
    """Return a `DetailedTask`: what tasks/get answers and `notifications/tasks` carries."""
    fields = _flat(task)
    if task.state == "input_required":
        fields["inputRequests"] = task.questions
    match task.ending:
        case TaskCompleted(result):
            fields["result"] = _call_result(result)
        case TaskFailed(code, message, data):
            fields["error"] = _error(code, message, data)
        case None:
            pass
    return fields


def _flat(task: Snapshot) -> dict[str, Any]:
    return {
        "taskId": task.id,
        "status": task.state,
        **_said(task),
        "createdAt": _date(task.created_at),
        "lastUpdatedAt": _date(task.updated_at),
        "ttlMs": task.ttl_ms,
        "pollIntervalMs": task.poll_ms,
    }


def core(task: Snapshot) -> dict[str, Any]:
    """Return a `Task`: what tasks/get and tasks/cancel answer and `notifications/tasks/status` carries."""
    return {
        "taskId": task.id,
        "status": "failed" if task.tool_failed else task.state,
        **_said(task),
        "createdAt": _date(task.created_at),
        "lastUpdatedAt": _date(task.updated_at),
        "ttl": task.ttl_ms,
        "pollInterval": task.poll_ms,
    }


def core_result(task: Snapshot) -> ToolResult:
    """Return what tasks/result answers of a task that is over: the call's own result. Raises its own error."""
    match task.ending:
        case TaskCompleted(result):
            return msgspec.structs.replace(result, meta={**(result.meta or {}), **related(task.id)})
        case TaskFailed(code, message) if code == WIRE[MissingCapability].code:
            # The handshake era has no such error: as where the call is waited for, it is said to the model.
            return ToolResult(content=(TextContent(text=message),), is_error=True, meta=related(task.id))
        case TaskFailed(code, message, data):
            error = AgentError(code, message, data)
            error.code = code  # it was settled when the call failed, and may be one of the protocol's own
            raise error
        case None:
            raise AgentError(-32603, task.message or "the task was cancelled")


def related(task_id: str) -> dict[str, Any]:
    """Return the `_meta` of whatever else has to do with a task (core face)."""
    return {RELATED_TASK: {"taskId": task_id}}


# fmt: off
_WASMAGENT_STATES: Final[Mapping[str, str]] = MappingProxyType({
    "working":        "running",
    "input_required": "awaiting-input",
    "completed":      "complete",
    "failed":         "failed",
    "cancelled":      "failed",
})
# fmt: on


def wasmagent_state(task: Snapshot) -> str:
    return "failed" if task.tool_failed else _WASMAGENT_STATES[task.state]


def wasmagent(task: Snapshot) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": task.id,
        "toolName": task.tool,
        "state": wasmagent_state(task),
        "events": task.events,
    }
    match task.ending:
        case TaskCompleted(result) if result.is_error:
            fields["error"] = text_of(result) or "the tool failed"
        case TaskCompleted(result):
            fields["result"] = text_of(result) if result.structured is UNSET else result.structured
        case TaskFailed(message=message):
            fields["error"] = message
        case None:
            if task.state == "cancelled":
                fields["error"] = task.message or "cancelled"
    if question := first_question(task):
        key, asked = question
        fields["elicitation"] = {
            "promptId": key,
            "prompt": asked.params.get("message", ""),
            **{name: asked.params[name] for name in ("requestedSchema", "url") if name in asked.params},
        }
    fields["version"] = task.version
    return fields


def first_question(task: Snapshot) -> tuple[str, Question] | None:
    """Return the one question that this face shows at a time."""
    return next(iter(sorted(task.questions.items())), None)


def wasmagent_answer(question: Question, response: Any) -> Any:
    """Read an answer of this face: one word in reply to a form becomes the content of its one field; an object is the content itself. A whole answer
    (with `action`, or of another kind of question) is taken as it is."""
    if question.method != "elicitation/create":
        return response
    if isinstance(response, Mapping):
        content = cast("Mapping[str, Any]", response)
        return content if "action" in content else {"action": "accept", "content": content}
    properties = question.params.get("requestedSchema", {}).get("properties", {})
    if not properties:
        return {"action": "accept", "content": {}}
    name, schema = next(iter(properties.items()))
    return {"action": "accept", "content": {name: _as_asked(response, schema)}}


def _as_asked(response: Any, schema: Mapping[str, Any]) -> Any:
    """Read a text as the field's type: this face sends nothing else."""
    if not isinstance(response, str) or schema.get("type") in (None, "string"):
        return response
    try:
        return msgspec.json.decode(response)
    except msgspec.DecodeError:
        return response


NOTIFICATION: Final[Mapping[Face, str]] = MappingProxyType(
    {Face.EXTENSION: "notifications/tasks", Face.CORE: "notifications/tasks/status"}
)


def notification(face: Face, task: Snapshot) -> tuple[str, dict[str, Any]] | None:
    """Return method and parameters; None where the face has no such message."""
    match face:
        case Face.EXTENSION:
            return NOTIFICATION[face], extension(task)
        case Face.CORE:
            return NOTIFICATION[face], core(task)
        case Face.WASMAGENT:
            return None


def _call_result(result: ToolResult) -> dict[str, Any]:
    fields = {"resultType": "complete", **members_of(result)}
    if result.meta is not None:
        fields["_meta"] = result.meta
    return fields


def _error(code: int, message: str, data: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"code": code, "message": message} | ({} if data is None else {"data": data})


def _said(task: Snapshot) -> dict[str, Any]:
    return {} if task.message is None else {"statusMessage": task.message}


def text_of(result: ToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def _date(millis: int) -> str:
    date = datetime.fromtimestamp(millis // 1000, UTC).replace(microsecond=millis % 1000 * 1000)
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────────

Place: TypeAlias = tuple[int, str]  # when a task was made, and the hash of its id: where a page ended

_PLACE: Final = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")


def hash_id(task_id: str) -> str:
    """Return what a task is known by where its id must not lie about: knowing the id may be all that it takes to see the task."""
    return hashlib.sha256(task_id.encode(errors="replace")).hexdigest()


def place_of(task: Snapshot) -> Place:
    return task.created_at, hash_id(task.id)


def write_cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(f"{place[0]}:{place[1]}".encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> Place:
    """Read where a cursor says to go on. Nothing depends on a cursor being ours: it only names a place in the caller's own list. Raises
    `BadCursor`."""
    try:
        text = base64.b64decode(cursor[:200] + "=" * (-len(cursor[:200]) % 4), b"-_", validate=True).decode(
            "ascii"
        )
    except (binascii.Error, ValueError):
        text = ""
    if (match := _PLACE.fullmatch(text)) is None:
        raise BadCursor("invalid cursor")
    return int(match[1]), match[2]
