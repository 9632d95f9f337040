"""What settings say of a tool that is a program's, whatever kind of agent it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta

from server.agents.base.short_schema import BadShortSchema, read_schema
from server.agents.python.offer import LONGEST_SECONDS
from server.mcp.messages import Tool, ToolAnnotations, ToolExecution
from server.mcp.schema import BadTool, ToolSchema

MOST_TOOLS: Final = 1000
SCHEMA: Final = 'a table, e.g. { city = "string" }, or a JSON Schema as a table or a text'

SchemaSetting = Annotated[dict[str, Any] | str, Meta(description=SCHEMA)]


class ToolSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=64, description="a name of letters, digits, _ . and -")] = ""
    title: Annotated[str, Meta(max_length=200, description="a short title")] = ""
    description: Annotated[str, Meta(max_length=8000, description="what a model should know of it")] = ""
    input: SchemaSetting = {}
    output: SchemaSetting = {}
    deadline_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=LONGEST_SECONDS)] | None, Meta(description="seconds up to 86400")
    ] = None
    read_only: Annotated[bool | None, Meta(description="true or false")] = None
    destructive: Annotated[bool | None, Meta(description="true or false")] = None
    idempotent: Annotated[bool | None, Meta(description="true or false")] = None
    task: Annotated[
        Literal["forbidden", "optional", "required", "by_hand"],
        Meta(description='"forbidden", "optional", "required" or "by_hand"'),
    ] = "forbidden"


AnyTool = TypeVar("AnyTool", bound=ToolSettings)


def tools_problems(
    tools: Sequence[AnyTool], faults: Callable[[AnyTool], list[tuple[str, str]]]
) -> list[tuple[str, str]]:
    """(key, what is wrong), where `faults` are those of one of them."""
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    for place, tool in enumerate(tools, 1):
        if tool.name in seen:
            found.append((f"tool[{place}].name", f'"{tool.name}" is used twice; write another'))
        seen.add(tool.name)
        found += [(f"tool[{place}]{'.' if key else ''}{key}", what) for key, what in faults(tool)]
    return found


def tool_faults(tool: ToolSettings) -> list[tuple[str, str]]:
    if not tool.name:
        return [("name", "is missing; write what callers know the tool by")]
    for key in ("input", "output"):
        try:
            read_schema(getattr(tool, key))
        except BadShortSchema as error:
            return [(key, str(error))]
    try:
        ToolSchema(describe(tool))
    except BadTool as error:
        return [("", f"cannot be offered: {error}")]
    return []


def describe(tool: ToolSettings) -> Tool:
    """As callers see it. Raises `BadShortSchema`."""
    hints = (tool.read_only, tool.destructive, tool.idempotent)
    read_only, destructive, idempotent = (UNSET if hint is None else hint for hint in hints)
    annotations = ToolAnnotations(
        read_only_hint=read_only, destructive_hint=destructive, idempotent_hint=idempotent
    )
    execution = (
        ToolExecution(task_support="optional", by_hand=True)
        if tool.task == "by_hand"
        else ToolExecution(task_support=tool.task)
    )
    return Tool(
        name=tool.name,
        title=tool.title or UNSET,
        description=tool.description or UNSET,
        input_schema=read_schema(tool.input),
        output_schema=read_schema(tool.output) if tool.output else UNSET,
        annotations=UNSET if all(hint is None for hint in hints) else annotations,
        execution=UNSET if tool.task == "forbidden" else execution,
    )
