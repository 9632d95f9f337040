"""The tools of an agent that is a program: their settings, and what both kinds of such agents have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta

from server.agents.base.agent_turns import SharedPlaces
from server.agents.base.backend import Trouble
from server.agents.base.short_schema import BadShortSchema, read_schema
from server.agents.command.agent_program import Programs, ProgramSettings
from server.agents.python.offer import LONGEST_SECONDS
from server.lib.log.logger import Logger
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


class ProgramTool:
    """A tool, ready to be called."""

    def __init__(self, settings: ToolSettings) -> None:
        self.settings = settings
        self.tool = describe(settings)
        self.schema = ToolSchema(self.tool)


Offered = TypeVar("Offered", bound=ProgramTool)


class ProgramBackend(Generic[Offered]):
    """A `Backend`, `HasDeadlines` and `Watched` whose tools run the programs of one agent."""

    def __init__(
        self, config: ProgramSettings, *, environment: Mapping[str, str], name: str, log: Logger
    ) -> None:
        """Find the folder of the programs. `environment` is what they get to see, `name` is for the log. Raises `ValueError`."""
        self._programs = Programs(config, environment, name=name, log=log)
        self._places = SharedPlaces(config.calls_at_once)
        self._offered: Mapping[str, Offered] = {}

    def tools(self) -> Sequence[Tool]:
        return [each.tool for each in self._offered.values()]

    def deadline(self, tool: str) -> float | None:
        offered = self._offered.get(tool)
        return None if offered is None else offered.settings.deadline_seconds

    def trouble(self) -> Trouble | None:
        return self._programs.trouble

    async def aclose(self) -> None:
        self._programs.close()


AnyTool = TypeVar("AnyTool", bound=ToolSettings)


def tools_problems(
    tools: Sequence[AnyTool], faults: Callable[[AnyTool], list[tuple[str, str]]]
) -> list[tuple[str, str]]:
    """Return (key, what is wrong), where `faults` are those of one of them."""
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
    """Return the tool as callers see it. Raises `BadShortSchema`."""
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
