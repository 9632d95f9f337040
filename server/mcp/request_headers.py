"""What a 2026-07-28 request repeats in its headers (MCP streamable HTTP, "Request Metadata"; tools, `x-mcp-header`)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, cast

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MAX_INTEGER = 2**53 - 1
# Deeper nesting of annotated properties is somebody's mistake.
_MAX_DEPTH = 16


def header_value(text: str) -> str:
    """`text` as a header value: as it is where that survives the way, else as the base64 sentinel."""
    plain = text.isascii() and text.isprintable() and text == text.strip()
    looks_encoded = text.startswith("=?base64?") and text.endswith("?=")
    if plain and not looks_encoded and text:
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8')).decode('ascii')}?="


def parameter_headers(schema: Any, arguments: Mapping[str, Any]) -> dict[str, str]:
    """`Mcp-Param-*` for the arguments that the tool's schema asks to see in headers."""
    found: dict[str, str] = {}
    _collect(schema, arguments, found, _MAX_DEPTH)
    return found


def _collect(schema: Any, value: Any, found: dict[str, str], depth: int) -> None:
    properties = _mapping(_mapping(schema).get("properties"))
    given = _mapping(value)
    for name, property_schema in properties.items():
        if given.get(name) is None or depth == 0:
            continue
        header = _mapping(property_schema).get("x-mcp-header")
        if isinstance(header, str) and _TOKEN.fullmatch(header):
            text = _scalar(given[name])
            if text is not None:
                found[f"Mcp-Param-{header}"] = header_value(text)
        _collect(property_schema, given[name], found, depth - 1)


def _scalar(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) <= _MAX_INTEGER else None
    return value if isinstance(value, str) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
