"""An HTTP client for any address: one `Fetcher` for each origin, and a bound on how long an answer may be silent.

A caller who always asks the same address uses a `Fetcher`; here the next address may be named by the last answer.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

import trio

from server.lib.http_client.failures import Silent, UnusableAddress
from server.lib.http_client.fetch import Fetcher, UpstreamAnswer, url_problem
from server.lib.http_client.trusted_roots import system_trust

# Exchanges with one origin at once; each stream that is listened to is one.
CONNECTIONS: Final = 100
# Origins whose connections are kept: a server, its authorization server, and where those lead.
ORIGINS: Final = 16
ENDLESS: Final = 1 << 62
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class HttpClient:
    """Close it with `aclose`."""

    def __init__(self) -> None:
        self._fetchers: dict[tuple[str, str], Fetcher] = {}
        self._trust: ssl.SSLContext | None = None

    @asynccontextmanager
    async def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        lines: bytes = b"",
        body: bytes = b"",
        silence_seconds: float = math.inf,
    ) -> AsyncGenerator[UpstreamAnswer]:
        """Send one request, and yield its answer, whose body is read inside the block; `lines` are more headers. Raise `FetchFailed`.

        Leaving the block before the end of the answer closes its connection, and so does being cancelled."""
        fetcher = await self._fetcher(url)
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            head = fetcher.prepare(method, tuple(headers.items()), target=target)
        except ValueError as error:
            raise UnusableAddress from error
        answer: UpstreamAnswer | None = None
        with trio.move_on_after(silence_seconds):
            answer = await fetcher.begin(head + lines, body, limit=ENDLESS)
        if answer is None:
            raise Silent
        answer.connection.silence_seconds = silence_seconds
        try:
            yield answer
        finally:
            answer.connection.silence_seconds = math.inf
            fetcher.end(answer)

    async def reach(self, url: str) -> None:
        """Open a connection to the origin of `url`, and close it again: nothing is sent. Raise `FetchFailed`."""
        await (await self._fetcher(url)).reach(deadline=math.inf)

    async def aclose(self) -> None:
        """Close the connections that are idle."""
        for fetcher in self._fetchers.values():
            await fetcher.aclose()
        self._fetchers.clear()

    async def _fetcher(self, url: str) -> Fetcher:
        if url_problem(url) is not None:
            raise UnusableAddress
        parts = urlsplit(url)
        origin = (parts.scheme, parts.netloc)
        fetcher = self._fetchers.get(origin)
        if fetcher is None:
            if parts.scheme == "https" and self._trust is None:
                self._trust = await trio.to_thread.run_sync(system_trust)
            if len(self._fetchers) >= ORIGINS:
                await self._fetchers.pop(next(iter(self._fetchers))).aclose()
            fetcher = Fetcher(url, connections=CONNECTIONS, trust=self._trust, pauses=())
            self._fetchers[origin] = fetcher
        return fetcher
