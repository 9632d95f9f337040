"""From an operation to a tool: its schema, what a model should know of it, and what it does to the world as far as its method says."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType

from server.mcp.messages import Tool, ToolAnnotations
from server.mcp.schema import BadTool, ToolSchema
from server.openapi.document import ApiDocument, BadApi
from server.openapi.operations import ApiOperation
from server.openapi.schemas import SchemaWriter

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


def tool_of(document: ApiDocument, operation: ApiOperation, *, promised: bool) -> ApiTool:
    """Raises `BadApi` for an operation that cannot be offered."""
    tool = Tool(
        name=operation.tool,
        title=operation.summary[:TITLE_CHARACTERS] or UNSET,
        description=_description(operation),
        input_schema=_input(document, operation),
        output_schema=_output(document, operation) if promised else UNSET,
        annotations=_annotations(operation.method),
    )
    try:
        return ApiTool(operation=operation, tool=tool, schema=ToolSchema(tool))
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


def _input(document: ApiDocument, operation: ApiOperation) -> dict[str, Any]:
    writer = SchemaWriter(document, "request")
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
    whole = writer.whole({"type": "object", "properties": {}, "additionalProperties": False})
    whole["properties"] = properties
    if required:
        whole["required"] = required
    if len(msgspec.json.encode(whole)) > INPUT_BYTES:
        raise BadApi(f"the schema of its arguments has more than {INPUT_BYTES // 1024} KiB")
    return whole


def _output(document: ApiDocument, operation: ApiOperation) -> dict[str, Any] | UnsetType:
    """What every good answer is, where each of them is JSON that the document describes."""
    good = [answer for status, answer in operation.answers.items() if status.startswith("2")]
    if not good or any(answer.schema is None for answer in good):
        return UNSET
    writer = SchemaWriter(document, "answer")
    schemas = [answer.schema for answer in good]
    try:
        if len(schemas) == 1:
            written = writer.whole(schemas[0])
        else:
            written = {"anyOf": [writer.write(schema) for schema in schemas], **writer.whole({})}
    except BadApi:
        return UNSET
    return written if len(msgspec.json.encode(written)) <= OUTPUT_BYTES else UNSET


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
