"""An HTTP client for any address: one `Fetcher` for each origin, and a bound on how long an answer may be silent.

A caller who always asks the same address uses a `Fetcher`; here the next address may be named by the last answer.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec
import trio

from server.lib.host_names import authority, in_ascii
from server.lib.http_client.dialing import CONNECT_PAUSES
from server.lib.http_client.failures import NoTrust, Silent, UnusableAddress, UnusableHeader
from server.lib.http_client.fetch import Fetcher, UpstreamAnswer, url_problem
from server.lib.http_client.response_head import ResponseHead
from server.lib.http_client.trusted_roots import system_trust, trust_in
from server.lib.json_objects import decode_object

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


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was read to its end."""

    head: ResponseHead
    body: bytes

    def __repr__(self) -> str:  # a body may hold tokens
        return f"HttpAnswer(status={self.status}, {len(self.body)} bytes)"

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def media_type(self) -> str:
        return self.head.media_type

    def header(self, name: bytes) -> str:
        """Return the value, several joined by commas, or an empty text. `name` is in small letters."""
        return self.head.value(name)

    def json_object(self) -> dict[str, Any] | None:
        """Return the body as a JSON object, or None where it is anything else."""
        return decode_object(self.body)


async def exchange_once(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] = NO_HEADERS,
    body: bytes = b"",
    limit: int,
    seconds: float,
    ca_file: Path | None = None,
) -> HttpAnswer:
    """Do as `HttpClient.exchange` does, over a connection that is not kept: exchanges with this server are rare."""
    client = HttpClient(ca_file=ca_file, pauses=CONNECT_PAUSES)
    try:
        return await client.exchange(method, url, headers=headers, body=body, limit=limit, seconds=seconds)
    finally:
        await client.aclose()


class HttpClient:
    """The connections to any number of origins. Close it with `aclose`."""

    def __init__(self, *, ca_file: Path | None = None, pauses: Sequence[float] = ()) -> None:
        """Prepare to call; `pauses` are the seconds before each further attempt to connect.

        Certificates are judged by `ca_file`, else by the system."""
        self._fetchers: dict[str, Fetcher] = {}  # by origin
        self._ca_file = ca_file
        self._pauses = pauses
        self._trust: ssl.SSLContext | None = None

    async def exchange(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        body: bytes = b"",
        limit: int,
        seconds: float,
    ) -> HttpAnswer:
        """Send one request, and return its whole answer. Raise `FetchFailed`, which is `Silent` after so many seconds."""
        with trio.move_on_after(seconds):
            async with self.open(method, url, headers=headers, body=body, limit=limit) as answer:
                return HttpAnswer(head=answer.head, body=await answer.read())
        raise Silent

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
                self._trust = await trio.to_thread.run_sync(self._read_trust)
            except ValueError as error:
                raise NoTrust(str(error)) from error
        # From here on nothing waits: those who come meanwhile find the same one.
        fetcher = self._fetchers.get(origin)
        if fetcher is None:
            try:
                fetcher = Fetcher(origin, connections=CONNECTIONS, trust=self._trust, pauses=self._pauses)
            except ValueError as error:  # of a proxy that speaks TLS, and what judges its certificate
                raise NoTrust(str(error)) from error
            self._fetchers[origin] = fetcher
            if len(self._fetchers) > ORIGINS:
                await self._fetchers.pop(next(iter(self._fetchers))).aclose()
        return fetcher

    def _read_trust(self) -> ssl.SSLContext:
        return system_trust() if self._ca_file is None else trust_in(self._ca_file)


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
