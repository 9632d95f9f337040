"""A mock as a document: JSON, or TOML with the same keys. Tools, resources and prompts are written as MCP has them; the rest
says how they answer.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from server.agents.base.short_schema import BadShortSchema, read_schema
from server.agents.mock.scenario_conditions import BadCondition, Condition, When
from server.lib.shortened import short_name
from server.mcp.call_outlet import LogLevel
from server.mcp.messages import Prompt, PromptMessage, Resource, ResourceTemplate, Tool, ToolAnnotations
from server.mcp.schema import BadTool, ToolSchema
from server.mcp.uri_template import BadTemplate, UriTemplate
from server.mcp.versions import REVISIONS

_ANNOTATIONS: Final = ToolAnnotations.__struct_encode_fields__
DOCUMENT_BYTES: Final = 16 * 1024 * 1024
ENTRIES: Final = 1000  # of one kind, and of the scenarios of a tool
STEPS: Final = 1000
DEPTH: Final = 8  # of scenarios that follow answers
LONGEST_SECONDS: Final = 24 * 3600.0

_Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=LONGEST_SECONDS)]
_Many = Meta(max_length=ENTRIES)


class BadMock(ValueError):
    """A document that cannot be a mock; says where, and what to change."""


class _Written(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    pass


class MockAsk(_Written, frozen=True, kw_only=True):
    id: Annotated[str, Meta(min_length=1, max_length=64)]
    prompt: Annotated[str, Meta(min_length=1)]
    schema: dict[str, Any] = {}


class MockStep(_Written, frozen=True, kw_only=True):
    """A step before the answer: it waits, tells how far it is, says something to the client's log, asks."""

    wait_seconds: _Seconds = 0
    progress: float | UnsetType = UNSET
    total: float | None = None
    message: str | None = None
    log: Any = UNSET
    level: LogLevel = "info"
    ask: MockAsk | UnsetType = UNSET


class MockError(_Written, frozen=True, kw_only=True):
    """An error of the protocol."""

    code: int
    message: str
    data: dict[str, Any] | None = None


class Scenario(_Written, frozen=True, kw_only=True):
    """The answer where the arguments are as `when` says. At most one of `respond`, `result`, `error` and `protocolError`."""

    name: str = ""
    when: When = UNSET
    delay_seconds: _Seconds = 0
    steps: Annotated[tuple[MockStep, ...], Meta(max_length=STEPS)] = ()
    # By what was answered; the first that matches takes this one's place.
    then: Annotated[tuple[Scenario, ...], _Many] = ()
    respond: Any = UNSET  # a text, or any JSON
    result: dict[str, Any] | UnsetType = UNSET  # a result as MCP has it
    error: str | UnsetType = UNSET  # a result with `isError`
    protocol_error: MockError | UnsetType = UNSET


class MockTool(Tool, frozen=True, kw_only=True, forbid_unknown_fields=True):
    input_schema: Mapping[str, Any] = {}
    input: Mapping[str, Any] | str = {}  # the same, short
    enabled: bool = True
    scenarios: Annotated[tuple[Scenario, ...], _Many] = ()


class MockResource(Resource, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: str | UnsetType = UNSET
    json: Any = UNSET
    blob: str | UnsetType = UNSET  # base64


class MockTemplate(ResourceTemplate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: str | UnsetType = UNSET  # `{{name}}` stands for a variable
    json: Any = UNSET


class MockArgument(_Written, frozen=True, kw_only=True):
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET
    default: str | UnsetType = UNSET


class MockPrompt(Prompt, frozen=True, kw_only=True, forbid_unknown_fields=True):
    arguments: Annotated[tuple[MockArgument, ...], _Many] | UnsetType = UNSET  # pyright: ignore[reportIncompatibleVariableOverride] - with defaults
    text: str | UnsetType = UNSET  # what the user says; `{{name}}` stands for an argument
    messages: Annotated[tuple[PromptMessage, ...], _Many] | UnsetType = UNSET


class MockDocument(_Written, frozen=True, kw_only=True):
    name: str = ""
    version: str = ""
    protocol_version: str = ""  # what it was imported from spoke
    tools: Annotated[tuple[MockTool, ...], _Many] = ()
    resources: Annotated[tuple[MockResource, ...], _Many] = ()
    resource_templates: Annotated[tuple[MockTemplate, ...], _Many] = ()
    prompts: Annotated[tuple[MockPrompt, ...], _Many] = ()


def read_mock(path: Path) -> MockDocument:
    """Read a file. Raises `BadMock`, which names it."""
    try:
        with path.open("rb") as file:
            data = file.read(DOCUMENT_BYTES + 1)
    except OSError as error:
        raise BadMock(f"{path}: {str(error.strerror).lower()}") from error
    if len(data) > DOCUMENT_BYTES:
        raise BadMock(f"{path}: is larger than {DOCUMENT_BYTES // 1024 // 1024} MiB")
    try:
        return parse_mock(data, toml=path.suffix == ".toml")
    except BadMock as error:
        raise BadMock(f"{path}: {error}") from error


def parse_mock(data: bytes, *, toml: bool = False) -> MockDocument:
    """Read a document. Raises `BadMock`."""
    try:
        whole = tomllib.loads(data.decode("utf-8")) if toml else msgspec.json.decode(data)
        problem = _annotation_problem(whole)
        document = msgspec.convert(whole, MockDocument)
    except (ValueError, RecursionError) as error:  # msgspec's own errors and tomllib's are such
        raise BadMock(str(error)[:500]) from error
    if problem:
        raise BadMock(problem)
    check_mock(document)
    return document


class _AnnotatedTool(msgspec.Struct, frozen=True):
    name: Any = ""
    annotations: dict[str, Any] = {}


class _AnnotatedTools(msgspec.Struct, frozen=True):
    tools: tuple[_AnnotatedTool, ...] = ()


def _annotation_problem(document: Any) -> str:
    """Name the first annotation of a tool that is none. They say what a call needs, so none is overlooked."""
    try:
        tools = msgspec.convert(document, _AnnotatedTools).tools
    except msgspec.ValidationError:
        return ""  # which is said of the whole document
    for tool in tools:
        for name in tool.annotations:
            if name not in _ANNOTATIONS:
                plain = {_plain_name(each): each for each in _ANNOTATIONS}
                near = get_close_matches(_plain_name(name), plain, n=1)
                instead = (
                    f"did you mean {plain[near[0]]}?" if near else f"there are {', '.join(_ANNOTATIONS)}"
                )
                return (
                    f'the tool {short_name(str(tool.name))}: "{short_name(name)}" is no annotation; {instead}'
                )
    return ""


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower()).removesuffix("hint")


def check_mock(document: MockDocument) -> None:
    """Raise `BadMock` for the first thing that cannot be offered, and where there is nothing at all."""
    for kind, names in (
        ("tool", [tool.name for tool in document.tools]),
        ("resource", [resource.uri for resource in document.resources]),
        ("resource template", [template.uri_template for template in document.resource_templates]),
        ("prompt", [prompt.name for prompt in document.prompts]),
    ):
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise BadMock(f"there is the {kind} {twice[:100]} twice")
    if document.protocol_version and document.protocol_version not in REVISIONS:
        raise BadMock(f"protocolVersion is none that is known here; write one of {', '.join(REVISIONS)}")
    if not (document.tools or document.resources or document.resource_templates or document.prompts):
        raise BadMock('it has no "tools", and nothing else that could be served')
    for tool in document.tools:
        try:
            ToolSchema(offered(tool))
        except (BadTool, BadShortSchema) as error:
            raise BadMock(f"the tool {short_name(tool.name)}: {error}") from error
        _check_scenarios(tool.scenarios, f"the tool {tool.name}", DEPTH)
    for template in document.resource_templates:
        try:
            UriTemplate(template.uri_template)
        except BadTemplate as error:
            raise BadMock(f"the resource template {template.uri_template[:100]}: {error}") from error


def _check_scenarios(scenarios: Sequence[Scenario], where: str, depth: int) -> None:
    if scenarios and not depth:
        raise BadMock(f"{where}: scenarios follow each other more than {DEPTH} deep")
    for place, scenario in enumerate(scenarios, 1):
        here = f"{where}: scenario {scenario.name or place}"
        try:
            Condition(scenario.when)
        except BadCondition as error:
            raise BadMock(f"{here}: {error}") from error
        answers = (scenario.respond, scenario.result, scenario.error, scenario.protocol_error)
        if sum(answer is not UNSET for answer in answers) > 1:
            raise BadMock(f"{here}: has more than one of respond, result, error and protocolError")
        for step in scenario.steps:
            if step.ask is not UNSET and step.ask.schema:
                try:
                    read_schema(step.ask.schema)
                except BadShortSchema as error:
                    raise BadMock(f"{here}: the question {step.ask.id}: {error}") from error
        _check_scenarios(scenario.then, here, depth - 1)


def offered(tool: MockTool) -> Tool:
    """Return the tool as callers see it. Raises `BadShortSchema`."""
    fields = {name: getattr(tool, name) for name in Tool.__struct_fields__}
    if not tool.input_schema:
        fields["input_schema"] = read_schema(tool.input)
    return Tool(**fields)


_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z_][\w.-]{0,127})\s*\}\}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put its value in the place of each `{{name}}`; a name without one stays as it is."""
    return _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


def fill_json(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return fill(value, values)
    if isinstance(value, list):
        return [fill_json(item, values) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {key: fill_json(item, values) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


def write_mock(document: MockDocument) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
