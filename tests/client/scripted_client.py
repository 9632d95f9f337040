"""A client over no network: its answers are given by a test."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl

from server.lib.http_client.client_connection import UpstreamConnection
from server.lib.http_client.fetch import UpstreamAnswer
from server.lib.http_client.http_client import ENDLESS, NO_HEADERS, HttpClient
from server.lib.http_client.response_head import ResponseHead


class AskedOf(NamedTuple):
    """One request that was made."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


class _WholeBody:
    """The connection of an answer whose body is here already."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    @property
    def complete(self) -> bool:
        return not self._body

    async def part(self) -> bytes:
        body, self._body = self._body, b""
        return body


class ScriptedClient(HttpClient):
    """`script` answers a request with (status, value of a JSON body, headers), or raises."""

    def __init__(self, script: Callable[[AskedOf], tuple[int, Any, Mapping[str, str]]]) -> None:
        super().__init__()
        self._script = script

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        lines: bytes = b"",
        body: bytes = b"",
        silence_seconds: float = 0,
        limit: int = ENDLESS,
    ) -> AsyncGenerator[UpstreamAnswer]:
        status, value, named = self._script(AskedOf(method, url, headers, body))
        fields = tuple((name.lower().encode(), text.encode()) for name, text in named.items())
        content = json.dumps(value).encode()
        head = ResponseHead(status, fields, len(content), keep_alive=False, encoded=False)
        yield UpstreamAnswer(cast("UpstreamConnection", _WholeBody(content)), head, limit)
