"""From an operation to a tool: its schema, what a model should know of it, and what it does to the world as far as its method says."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from server.agents.openapi.api_schemas import SchemaWriter
from server.agents.openapi.openapi_document import BadApi
from server.agents.openapi.operations import ApiOperation
from server.mcp.messages import Tool, ToolAnnotations
from server.mcp.schema import BadTool, ToolSchema

DESCRIPTION_CHARACTERS: Final = 4_000
TITLE_CHARACTERS: Final = 100
# A schema that no model reads to its end. What is larger is nearly always a description of everything that there is.
INPUT_BYTES: Final = 128 * 1024
OUTPUT_BYTES: Final = 64 * 1024

_SPACES: Final = re.compile(r"[ \t]+")


class ApiTool(msgspec.Struct, frozen=True, kw_only=True):
    operation: ApiOperation
    tool: Tool
    schema: ToolSchema


def tool_of(operation: ApiOperation, arguments: SchemaWriter, answers: SchemaWriter | None) -> ApiTool:
    """`answers` None: nothing is promised. Raises `BadApi` for an operation that cannot be offered."""
    tool = Tool(
        name=operation.tool,
        title=operation.summary[:TITLE_CHARACTERS] or UNSET,
        description=_description(operation),
        input_schema=_input(operation, arguments),
        output_schema=UNSET if answers is None else _output(operation, answers),
        annotations=_annotations(operation.method),
    )
    try:
        return ApiTool(operation=operation.slim(), tool=tool, schema=ToolSchema(tool))
    except BadTool as problem:
        raise BadApi(str(problem)) from problem


def _description(operation: ApiOperation) -> str:
    said = [operation.summary] if operation.summary else []
    if operation.description and operation.description != operation.summary:
        said.append(operation.description)
    if operation.deprecated:
        said.insert(0, "Deprecated: use another one if there is one.")
    text = "\n\n".join(said) or f"{operation.method} {operation.path}"
    return _SPACES.sub(" ", text)[:DESCRIPTION_CHARACTERS]


def _input(operation: ApiOperation, writer: SchemaWriter) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in operation.parameters:
        properties[parameter.argument] = _described(writer.write(parameter.schema), parameter.description)
        if parameter.required:
            required.append(parameter.argument)
    if operation.body is not None:
        body = operation.body
        properties[body.argument] = _described(writer.write(body.schema), body.description)
        if body.required:
            required.append(body.argument)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    if len(msgspec.json.encode(schema)) > INPUT_BYTES:
        raise BadApi(f"the schema of its arguments is larger than {INPUT_BYTES // 1024} KiB")
    return writer.whole(schema, most=INPUT_BYTES)


def _output(operation: ApiOperation, writer: SchemaWriter) -> dict[str, Any] | UnsetType:
    """What every good answer is, where each of them is JSON that the document describes, and not too much of it."""
    good = [answer for status, answer in operation.answers.items() if status.startswith("2")]
    if not good or any(answer.schema is None for answer in good):
        return UNSET
    try:
        written = [writer.write(answer.schema) for answer in good]
        return writer.whole(written[0] if len(written) == 1 else {"anyOf": written}, most=OUTPUT_BYTES)
    except BadApi:
        return UNSET


def _described(schema: Any, description: str) -> Any:
    """What is said of a parameter is said beside its schema; a schema that is true or false says nothing."""
    if not description or not isinstance(schema, dict):
        return schema
    written = cast("dict[str, Any]", schema)
    if "description" in written and "$ref" not in written:
        description = f"{description} {written['description']}"
    return {**written, "description": description[:DESCRIPTION_CHARACTERS]}


def _annotations(method: str) -> ToolAnnotations:
    """RFC 9110 §9.2."""
    return ToolAnnotations(
        read_only_hint=True if method == "GET" else UNSET,
        destructive_hint=True if method == "DELETE" else UNSET,
        idempotent_hint=True if method in ("GET", "PUT", "DELETE") else UNSET,
        open_world_hint=True,
    )
