"""Calls of tools over MCP, put together by hand: one request without a session, in either era, whose answer may come as a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2
from programs import WAIT_SECONDS

MODERN = "2026-07-28"


def request_of(
    tool: str, arguments: Mapping[str, Any], meta: Mapping[str, Any], *, modern: bool
) -> tuple[dict[str, str], bytes]:
    """The headers and the body of a call."""
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    params: dict[str, Any] = {"name": tool, "arguments": arguments, "_meta": dict(meta)}
    if modern:
        headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        params["_meta"] |= {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return headers, json.dumps(message).encode()


def call_tool(
    endpoint: str,
    tool: str,
    arguments: Mapping[str, Any],
    meta: Mapping[str, Any] | None = None,
    *,
    modern: bool = True,
    more: Mapping[str, str] | None = None,
    source: str = "127.0.0.1",
) -> dict[str, Any]:
    """Its result. An error of the protocol's fails the test. `source` is the address that the call comes from."""
    headers, body = request_of(tool, arguments, meta or {}, modern=modern)
    with httpx2.Client(transport=httpx2.HTTPTransport(local_address=source), timeout=WAIT_SECONDS) as web:
        answer = web.post(endpoint, content=body, headers={**headers, **(more or {})})
    assert answer.status_code == 200, (answer.status_code, answer.text)
    text = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        text = [line[len("data:") :] for line in text.splitlines() if line.startswith("data:")][-1]
    return json.loads(text)["result"]
