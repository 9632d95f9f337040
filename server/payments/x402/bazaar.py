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


def mcp_tool(name: str, *, description: str, input_schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Describe a tool that is called over MCP, at the address of the resource."""
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
    schema = {
        "$schema": _DRAFT,
        "type": "object",
        "properties": {
            "input": {
                "type": "object",
                "properties": properties,
                "required": ["type", "toolName", "inputSchema"],
                "additionalProperties": False,
            }
        },
        "required": ["input"],
    }
    found = {"info": {"input": info}, "schema": schema}
    return None if len(msgspec.json.encode(found)) > BAZAAR_BYTES else found
