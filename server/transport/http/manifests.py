"""What a server says of itself to programs that only know where it is: one document for those that speak MCP, one in the form of an
A2A agent card.

/.well-known/mcp.json, /.well-known/agent-card.json      of the first server
…/NAME/mcp/.well-known/mcp.json, /.well-known/mcp.json/NAME/mcp     of each, by its path: both ways that clients build such addresses

No tool is named that a caller without a login does not see. The card promises no A2A endpoint: its only interface is MCP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from auth.endpoints import json_replies
from auth.values.http_messages import WireReply, WireRequest
from auth.values.issuer_and_resources import Site
from server.calls.servers.endpoint import Endpoint
from server.mcp.messages import Tool
from server.mcp.versions import LATEST

MANIFEST: Final = "/.well-known/mcp.json"
CARD: Final = "/.well-known/agent-card.json"
READ: Final = ("GET", "HEAD", "OPTIONS")
# A card is read by programs that look around: what more there is, MCP lists in pages.
MOST_SKILLS: Final = 200
OfferedTool: TypeAlias = tuple[Tool, str]  # and how much it can do
_encode: Final = msgspec.json.Encoder().encode


class Manifests:
    """Of the whole process. `offered`: the tools of a server that everybody may call, and how much each can do; None where nobody may
    call any who does not log in or show a key."""

    def __init__(
        self,
        site: Site,
        endpoints: Mapping[str, Endpoint],
        *,
        offered: Callable[[str], Sequence[OfferedTool] | None],
    ) -> None:
        self._site = site
        self._endpoints = endpoints
        self._offered = offered
        ways = {path: name for name, path in site.servers.items()} | dict(site.aliases)
        self._documents: dict[str, tuple[Callable[[str, str], dict[str, Any]], str]] = {
            MANIFEST: (self._manifest, site.default),
            CARD: (self._card, site.default),
        }
        for way, name in ways.items():
            for known, make in ((MANIFEST, self._manifest), (CARD, self._card)):
                self._documents[known + way] = self._documents[way + known] = (make, name)

    def answer(self, request: WireRequest) -> WireReply | None:
        """None: it was asked for something else."""
        found = self._documents.get(request.path)
        if found is None:
            return None
        if request.method == "OPTIONS":
            return json_replies.preflight(READ)
        if request.method not in READ:
            return json_replies.wrong_method(READ)
        make, name = found
        return json_replies.document(request, _encode(make(name, self._site.public(request.origin))))

    def _manifest(self, name: str, base: str) -> dict[str, Any]:
        info = self._endpoints[name].identity.info
        path = self._site.servers[name]
        signs_in = name not in self._site.without_login
        metadata = {"resource_metadata": f"{base}/.well-known/oauth-protected-resource{path}"}
        return {
            "protocolVersion": LATEST.version,
            "server": {
                "name": info.name,
                "title": info.title if info.title is not msgspec.UNSET else name,
                "version": info.version,
                "url": base + path,
                "transport": "streamable-http",
            },
            "auth": {"type": "oauth-protected-resource", **metadata}
            if signs_in
            else {"type": self._way_in(name)},
        }

    def _way_in(self, name: str) -> str:
        return "public" if self._offered(name) is not None else "bearer"

    def _card(self, name: str, base: str) -> dict[str, Any]:
        info = self._endpoints[name].identity.info
        url = base + self._site.servers[name]
        description = info.description if info.description is not msgspec.UNSET else ""
        schemes: dict[str, Any] = {}
        if name not in self._site.without_login:
            where = f"{base}/.well-known/oauth-authorization-server"
            schemes = {"login": {"type": "oauth2", "oauth2MetadataUrl": where}}
        elif self._way_in(name) == "bearer":
            schemes = {"key": {"type": "http", "scheme": "bearer"}}
        return {
            "name": info.title if info.title is not msgspec.UNSET else name,
            "description": description or f"MCP server {name}",
            "version": info.version,
            "url": url,
            "preferredTransport": "MCP",
            "capabilities": {"streaming": True, "pushNotifications": False},
            "defaultInputModes": ["application/json"],
            "defaultOutputModes": ["application/json", "text/plain"],
            "skills": self._skills(name),
            "securitySchemes": schemes,
            "security": [{scheme: []} for scheme in schemes],
            "mcp": {
                "url": url,
                "transport": "streamable-http",
                "manifest": base + MANIFEST + self._site.servers[name],
            },
        }

    def _skills(self, name: str) -> list[dict[str, Any]]:
        unset = msgspec.UNSET
        return [
            {
                "id": tool.name,
                "name": tool.name if tool.title is unset else tool.title,
                "description": "" if tool.description is unset else tool.description,
                "tags": [tier],
            }
            for tool, tier in (self._offered(name) or ())[:MOST_SKILLS]
        ]
