"""What programs send when they register: the bodies that were seen on the wire or read in their sources, and the calls of a test."""

from __future__ import annotations

import json
from typing import Any

from auth.identity import Identity
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import DEVICE_CODE
from tests.auth.identity_fakes import ORIGIN

TWO = ["authorization_code", "refresh_token"]
SCOPE = "mcp mcp:tools mcp:resources"

# docs/clients.md names the programs; the shapes are theirs, member for member.
SEEN: dict[str, dict[str, Any]] = {
    "Claude Code": {
        "client_name": "Claude Code (agent)",
        "redirect_uris": ["http://localhost:58229/callback"],
        "grant_types": TWO,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        "scope": SCOPE,
    },
    "Codex": {
        "client_name": "Codex",
        "redirect_uris": ["http://127.0.0.1:38937/callback"],
        "grant_types": TWO,
        "token_endpoint_auth_method": "none",
        "response_types": ["code"],
        "scope": SCOPE,
        "application_type": "native",
    },
    "Gemini CLI": {
        "client_name": "Gemini CLI MCP Client",
        "redirect_uris": ["http://localhost:42917/oauth/callback"],
        "grant_types": TWO,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": SCOPE,
    },
    "Gemini CLI, which says no scope": {
        "client_name": "Gemini CLI MCP Client",
        "redirect_uris": ["http://localhost:42917/oauth/callback"],
        "grant_types": TWO,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": "",
    },
    "Inspector": {
        "redirect_uris": ["http://127.0.0.1:6276/oauth/callback"],
        "token_endpoint_auth_method": "none",
        "grant_types": TWO,
        "response_types": ["code"],
        "client_name": "MCP Inspector",
        "client_uri": "https://github.com/modelcontextprotocol/inspector",
        "scope": SCOPE,
    },
    "mcp-remote": {
        "redirect_uris": ["http://localhost:14142/oauth/callback"],
        "token_endpoint_auth_method": "none",
        "grant_types": TWO,
        "response_types": ["code"],
        "client_name": "MCP CLI Proxy",
        "client_uri": "https://github.com/modelcontextprotocol/mcp-cli",
        "software_id": "2e6dc280-f3c3-4e01-99a7-8181dbd1d23d",
        "software_version": "0.15.1",
        "scope": SCOPE,
    },
    "mcp-remote --device-code": {
        "redirect_uris": ["http://localhost:14142/oauth/callback"],
        "token_endpoint_auth_method": "none",
        "grant_types": [DEVICE_CODE, "refresh_token"],
        "response_types": ["code"],
        "client_name": "MCP CLI Proxy",
        "client_uri": "https://github.com/modelcontextprotocol/mcp-cli",
        "software_id": "2e6dc280-f3c3-4e01-99a7-8181dbd1d23d",
        "software_version": "0.15.1",
        "application_type": "native",
        "scope": SCOPE,
    },
    "Hermes --flow device": {
        "client_name": "Hermes Agent",
        "redirect_uris": ["http://127.0.0.1:8765/callback"],
        "grant_types": [DEVICE_CODE, "refresh_token"],
        "response_types": [],
        "token_endpoint_auth_method": "none",
    },
    "a device without a browser": {
        "client_name": "Lamp",
        "grant_types": [DEVICE_CODE],
        "token_endpoint_auth_method": "none",
    },
    "Python SDK": {
        "redirect_uris": ["http://localhost:3030/callback"],
        "grant_types": TWO,
        "response_types": ["code"],
        "client_name": "Simple Auth Client",
        "scope": SCOPE,
    },
    "fastmcp": {
        "client_name": "FastMCP Client",
        "redirect_uris": ["http://localhost:45123/callback"],
        "grant_types": TWO,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": "",
    },
    "TypeScript SDK": {
        "redirect_uris": ["http://localhost:8090/callback"],
        "client_name": "Simple OAuth MCP Client",
        "grant_types": TWO,
        "response_types": ["code"],
        "token_endpoint_auth_method": "client_secret_post",
        "contacts": ["dev@example.org"],
    },
    "Cursor": {
        "client_name": "Cursor",
        "redirect_uris": [
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "https://www.cursor.com/agents/mcp/oauth/callback",
            "http://localhost:8787/callback",
        ],
        "grant_types": TWO,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    },
    "VS Code": {
        "client_name": "Visual Studio Code",
        "client_uri": "https://code.visualstudio.com",
        "grant_types": ["authorization_code", "refresh_token", DEVICE_CODE],
        "response_types": ["code"],
        "redirect_uris": [
            "https://insiders.vscode.dev/redirect",
            "https://vscode.dev/redirect",
            "http://127.0.0.1/",
            "http://127.0.0.1:33418/",
        ],
        "scope": "mcp",
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    },
    "openid-client": {"redirect_uris": ["http://127.0.0.1:9999/cb"]},
    "an application with a scheme of its own": {
        "redirect_uris": ["com.example.app:/cb"],
        "token_endpoint_auth_method": "none",
        "logo_uri": "https://app.example.com/logo.png",
        "x_future": {"deep": [1, 2, {"er": None}]},
        "client_name": None,
    },
}


def ask(
    path: str,
    body: object = None,
    *,
    method: str = "POST",
    token: str | None = None,
    raw: bytes | None = None,
    ip: str = "127.0.0.1",
    origin: str = ORIGIN,
) -> WireRequest:
    headers = {"content-type": "application/json", "user-agent": "test/1"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    return WireRequest(method=method, path=path, json=sent, headers=headers, origin=origin, ip=ip)


async def sent(identity: Identity, request: WireRequest) -> WireReply:
    reply = await identity.handle(request)
    assert reply is not None
    return reply


async def enrolled(identity: Identity, name: str = "Claude Code", **changed: Any) -> dict[str, Any]:
    """Registered as this program does it, with what is to be otherwise."""
    reply = await sent(identity, ask("/register", {**SEEN[name], **changed}))
    assert reply.status == 201, reply.body
    return json.loads(reply.body)
