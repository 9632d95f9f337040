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
from urllib.parse import quote, urlsplit

import trio

from server.lib.host_names import authority, in_ascii
from server.lib.http_client.failures import NoTrust, Silent, UnusableAddress, UnusableHeader
from server.lib.http_client.fetch import Fetcher, UpstreamAnswer, url_problem
from server.lib.http_client.trusted_roots import system_trust

# Exchanges with one origin at once; each stream that is listened to is one.
CONNECTIONS: Final = 100
# Origins whose connections are kept: a server, its authorization server, and where those lead.
ORIGINS: Final = 16
ENDLESS: Final = 1 << 62
# A link of a login that asks for dozens of scopes has some thousands.
TARGET_CHARACTERS: Final = 16 * 1024
# All that may stand in a path or query (RFC 3986 §3.3, §3.4), and what is quoted already.
_AS_IT_IS: Final = "/?:@!$&'()*+,;=%-._~[]|^"
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class HttpClient:
    """Close it with `aclose`."""

    def __init__(self) -> None:
        self._fetchers: dict[str, Fetcher] = {}  # by origin
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
        limit: int = ENDLESS,
    ) -> AsyncGenerator[UpstreamAnswer]:
        """Send one request, and yield its answer, whose body is read inside the block; `lines` are more headers, `limit` how long the body may be. Raise `FetchFailed`.

        Leaving the block before the end of the answer closes its connection, and so does being cancelled."""
        origin, target = written(url)
        fetcher = await self._fetcher(origin)
        try:
            head = fetcher.prepare(method, tuple(headers.items()), target=target)
        except ValueError as error:
            raise UnusableHeader from error
        answer: UpstreamAnswer | None = None
        with trio.move_on_after(silence_seconds):
            answer = await fetcher.begin(head + lines, body, limit=limit)
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
        origin, _ = written(url)
        await (await self._fetcher(origin)).reach(deadline=math.inf)

    async def aclose(self) -> None:
        """Close the connections that are idle."""
        for fetcher in self._fetchers.values():
            await fetcher.aclose()
        self._fetchers.clear()

    async def _fetcher(self, origin: str) -> Fetcher:
        if origin.startswith("https:") and self._trust is None:
            try:
                self._trust = await trio.to_thread.run_sync(system_trust)
            except ValueError as error:
                raise NoTrust(str(error)) from error
        # From here on nothing waits: those who come meanwhile find the same one.
        fetcher = self._fetchers.get(origin)
        if fetcher is None:
            try:
                fetcher = Fetcher(origin, connections=CONNECTIONS, trust=self._trust, pauses=())
            except ValueError as error:  # of a proxy that speaks TLS, and what judges its certificate
                raise NoTrust(str(error)) from error
            self._fetchers[origin] = fetcher
            if len(self._fetchers) > ORIGINS:
                await self._fetchers.pop(next(iter(self._fetchers))).aclose()
        return fetcher


def written(url: str) -> tuple[str, str]:
    """Return origin and request target of `url` as they are written in a request. Raise `UnusableAddress`.

    A host is written in ASCII (IDNA), other letters of path and query are quoted, and a fragment is left out."""
    try:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{authority(in_ascii(parts.hostname or ''), parts.port)}"
    except ValueError as error:  # and UnicodeError
        raise UnusableAddress from error
    target = quote(parts.path or "/", safe=_AS_IT_IS) + (
        f"?{quote(parts.query, safe=_AS_IT_IS)}" if parts.query else ""
    )
    if "@" in parts.netloc or not target.startswith("/") or len(target) > TARGET_CHARACTERS:
        raise UnusableAddress
    if url_problem(origin) is not None:
        raise UnusableAddress
    return origin, target
