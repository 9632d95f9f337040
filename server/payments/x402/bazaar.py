"""The extension `bazaar`: how a paid tool is to be called, for directories of facilitators (extensions/bazaar.md).

Clients bring it back with their payment, so it is left out where it would make payments long: a tool with so large a schema is not listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

BAZAAR: Final = "bazaar"
# A quarter of what a payment may have; in base64, a header that every proxy lets through.
BAZAAR_BYTES: Final = 4 * 1024
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def mcp_tool(
    name: str,
    *,
    description: str,
    input_schema: Mapping[str, Any],
    example: Mapping[str, Any] | None = None,
) -> dict[str, Any] | None:
    """A tool that is called over MCP, at the address of the resource."""
    info: dict[str, Any] = {
        "type": "mcp",
        "toolName": name,
        "transport": "streamable-http",
        "inputSchema": dict(input_schema),
    }
    properties: dict[str, Any] = {
        "type": {"type": "string", "const": "mcp"},
        "toolName": {"type": "string"},
        "transport": {"type": "string", "enum": ["streamable-http", "sse"]},
        "inputSchema": {"type": "object"},
    }
    if description:
        info["description"] = description
        properties["description"] = {"type": "string"}
    if example is not None:
        info["example"] = dict(example)
        properties["example"] = {"type": "object"}
    return _extension(info, properties, ["type", "toolName", "inputSchema"])


def http_call(
    *, input_schema: Mapping[str, Any], example: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The same tool, called by a plain POST with its arguments as JSON."""
    info: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "bodyType": "json",
        "body": dict(example or {}),
    }
    properties: dict[str, Any] = {
        "type": {"type": "string", "const": "http"},
        "method": {"type": "string", "enum": ["POST", "PUT", "PATCH"]},
        "bodyType": {"type": "string", "enum": ["json", "form-data", "text"]},
        # The facilitator checks the example against this: where there is none, nothing can be required of it.
        "body": dict(input_schema) if example or not input_schema.get("required") else {"type": "object"},
    }
    return _extension(info, properties, ["type", "method", "bodyType", "body"])


def _extension(
    info: dict[str, Any], properties: dict[str, Any], required: list[str]
) -> dict[str, Any] | None:
    schema = {
        "$schema": _DRAFT,
        "type": "object",
        "properties": {
            "input": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": False,
            }
        },
        "required": ["input"],
    }
    found = {"info": {"input": info}, "schema": schema}
    # Nor where the schema refers to another: a directory does not follow that, and refuses the payment with it.
    refers = any(word in msgspec.json.encode(schema) for word in (b'"$ref"', b'"$id"'))
    return None if refers or len(msgspec.json.encode(found)) > BAZAAR_BYTES else found
