"""Clients of either era that say which extensions they have, as hosts do that draw pages."""

from __future__ import annotations

import json
from typing import Any

import httpx2
from programs import WAIT_SECONDS

PAGES = "io.modelcontextprotocol/ui"
DRAWS = {PAGES: {"mimeTypes": ["text/html;profile=mcp-app"]}}


class Caller:
    """A client of one era that declares these extensions."""

    def __init__(self, url: str, era: str, extensions: dict[str, Any] | None = None) -> None:
        self.url, self.era, self.extensions = url, era, DRAWS if extensions is None else extensions
        self.headers = {"Accept": "application/json, text/event-stream"}
        if era == "handshake":
            self.server = self.ask(
                "initialize",
                protocolVersion="2025-11-25",
                capabilities={"extensions": self.extensions},
                clientInfo={"name": "test", "version": "1"},
            )
        else:
            self.headers["MCP-Protocol-Version"] = "2026-07-28"
            self.server = self.ask("server/discover")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self.whole(method, **params)["result"]

    def whole(self, method: str, **params: Any) -> dict[str, Any]:
        headers = dict(self.headers)
        if self.era == "stateless":
            headers["Mcp-Method"] = method
            if named := params.get("name", params.get("uri")):
                headers["Mcp-Name"] = named
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {"extensions": self.extensions},
            }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = httpx2.post(self.url, json=body, headers=headers, trust_env=False, timeout=WAIT_SECONDS)
        if session := answer.headers.get("mcp-session-id"):
            self.headers["Mcp-Session-Id"] = session
        data = (
            answer.text if answer.text.startswith("{") else answer.text.partition("data: ")[2].splitlines()[0]
        )
        return json.loads(data)

    def tools(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.ask("tools/list")["tools"]}

    def call(self, name: str, /, **arguments: Any) -> str:
        """Return the text of the answer, or the message of the error."""
        answer = self.whole("tools/call", name=name, arguments=arguments)
        return answer["error"]["message"] if "error" in answer else answer["result"]["content"][0]["text"]

    def read(self, uri: str) -> dict[str, Any]:
        (contents,) = self.ask("resources/read", uri=uri)["contents"]
        return contents
