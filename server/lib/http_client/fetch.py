"""Outgoing HTTP to an address that the configuration names: one request, one answer, every part of it bounded.

No cookies (which would leak from one caller to the next), no redirects, no netrc: there is nothing below this that knows any
(client_connection.py). Proxies are those of the environment (proxies.py). A call that is cancelled closes its own connection and gives its place back whatever it was doing, the
TLS handshake included. Nothing is ever sent twice; only a connection that could not be made is tried again. Addresses that a
stranger names need resolved addresses to be checked first, and are server/run/pinned_fetcher.py's.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

from server import __version__
from server.lib.http_client.client_connection import UpstreamConnection
from server.lib.http_client.dialing import CONNECT_PAUSES, Dialer
from server.lib.http_client.failures import CompressedUnasked, DeadlinePassed, FetchFailed, TooLarge
from server.lib.http_client.pool import SLOT_SECONDS, ConnectionPool
from server.lib.http_client.proxies import proxy_for
from server.lib.http_client.response_head import ResponseHead
from server.lib.http_client.trusted_roots import system_trust, trust_in
from server.lib.short_waits import is_cancelled
from server.lib.shortened import short_name

USER_AGENT: Final = f"ostiary/{__version__}"
URL_CHARACTERS: Final = 2048

# An answer to HEAD or CONNECT ends elsewhere.
_METHODS: Final = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE"))
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TARGET: Final = re.compile(r"/[!-~]*")
_VALUE: Final = re.compile(r"[!-~]([\t -~]*[!-~])?")


def url_problem(url: str) -> str | None:
    """Say what keeps `url` from being an address that can be called, or return None."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL"
    if len(url) > URL_CHARACTERS or not url.isascii() or not url.isprintable() or " " in url:
        return f"must be at most {URL_CHARACTERS} plain ASCII characters without spaces"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "must begin with http:// or https:// and name a host"
    if "@" in parts.netloc:
        return "must not hold credentials; send them in a header, as env:NAME or file:/path"
    if parts.fragment:
        return "must not have a #fragment"
    return None


def header_line(name: str, value: str) -> bytes:
    """Return one line of a request's head. Raises `ValueError` for what would be more, or something else, than that line."""
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        raise ValueError(f"the header {short_name(name)!r} cannot be sent")
    return f"{name}: {value}\r\n".encode("ascii")


def request_head(method: str, target: str, host: str, headers: Sequence[tuple[str, str]]) -> bytes:
    """Return all lines but the last ones, which depend on the body: `with_body` adds those. Raises `ValueError`."""
    if method not in _METHODS:
        raise ValueError(f"no request is made with the method {method[:20]!r}")
    ours = (("Host", host), ("User-Agent", USER_AGENT), ("Accept-Encoding", "identity"))
    lines = [header_line(name, value) for name, value in (*ours, *headers)]
    return b"".join([f"{method} {target} HTTP/1.1\r\n".encode("ascii"), *lines])


def with_body(head: bytes, body: bytes) -> bytes:
    if body or head.startswith(b"P"):  # RFC 9110 §8.6: a length of nothing is for POST, PUT and PATCH
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
    return head + b"\r\n"


class UpstreamAnswer:
    """An answer whose status and headers have arrived; its body is read on demand, and only up to its limit."""

    __slots__ = ("_limit", "_seen", "connection", "head", "media_type", "status")

    def __init__(self, connection: UpstreamConnection, head: ResponseHead, limit: int) -> None:
        self.status = head.status
        self.media_type = head.media_type
        self.connection = connection  # whose it is, for the fetcher
        self.head = head
        self._limit = limit
        self._seen = 0

    def header(self, name: bytes) -> str:
        """Return the value, several joined by commas, or an empty text. `name` is in small letters."""
        return self.head.value(name)

    def values(self, name: bytes) -> list[str]:
        """Return the value of each such line, where a comma may be part of one. `name` is in small letters."""
        return self.head.values(name)

    async def chunks(self, limit: int | None = None) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives. Raises `TooLarge` before more than the limit has been handed on."""
        most = self._bound(limit)
        size = 0
        while part := await self.connection.part():
            size += len(part)
            if size > most:
                raise _too_large(most)
            yield part

    async def part(self) -> bytes:
        """Return the next piece of the body, empty at its end: for whoever may stop anywhere. Raises as `chunks` does."""
        most = self._bound(None)
        part = await self.connection.part()
        self._seen += len(part)
        if self._seen > most:
            raise _too_large(most)
        return part

    async def read(self, limit: int | None = None) -> bytes:
        head, most = self.head, self._limit
        if limit is not None and limit < most:
            most = limit
        if head.encoded or head.length > most:
            self._bound(limit)  # which raises
        connection = self.connection
        body = await connection.part()
        if not connection.complete:
            parts = [body]
            size = len(body)
            while size <= most and (part := await connection.part()):
                size += len(part)
                parts.append(part)
            body = b"".join(parts)
        if len(body) > most:
            raise _too_large(most)
        return body

    async def finish(self, seconds: float) -> None:
        """Read past what is left, if it comes to its end soon: then the connection can be used again."""
        if self.connection.complete:
            return
        try:
            with trio.move_on_after(seconds):
                while await self.connection.part():
                    pass
        except FetchFailed:
            pass

    async def beginning(self, size: int) -> bytes:
        """Return at most the first `size` bytes of the body. A failure ends them, and is not told."""
        found = bytearray()
        try:
            async with aclosing(self.chunks()) as chunks:
                async for chunk in chunks:
                    found += chunk
                    if len(found) >= size:
                        break
        except FetchFailed:
            pass
        return bytes(found[:size])

    def _bound(self, limit: int | None) -> int:
        """Return how much of the body may be read. Raises `FetchFailed` where the head says already that it cannot be."""
        most = self._limit if limit is None else min(limit, self._limit)
        # We ask for identity; anything else could unfold into more than was counted.
        if self.head.encoded:
            raise CompressedUnasked
        if self.head.length > most:
            raise _too_large(most)
        return most


class Fetcher:
    """The calls to one URL, over a bounded number of kept connections. Close it when the last call has ended."""

    def __init__(
        self,
        url: str,
        *,
        connections: int,
        ca_file: Path | None = None,
        slot_seconds: float = SLOT_SECONDS,
        trust: ssl.SSLContext | None = None,
        pauses: Sequence[float] = CONNECT_PAUSES,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Prepare to call `url`; `pauses` are the seconds before each further attempt to connect, `environment` names proxies.

        Certificates are judged by `trust`, else by `ca_file`, else by the system. Raises `ValueError` for a URL or a CA file that cannot be used."""
        if problem := url_problem(url):
            raise ValueError(f"the url {problem}")
        parts = urlsplit(url)
        self._authority = parts.netloc
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._origin = ""  # a proxy that hands on plain requests is told where to (RFC 9112 §3.2.2)
        self._for_proxy: tuple[tuple[str, str], ...] = ()
        if parts.scheme == "http":
            trust = None
        elif trust is None:
            trust = system_trust() if ca_file is None else trust_in(ca_file)
        port = parts.port or (80 if trust is None else 443)
        proxy = proxy_for(parts, environment)
        if proxy is not None and trust is None:
            self._origin = f"http://{parts.netloc}"
            if proxy.authorization:
                self._for_proxy = (("Proxy-Authorization", proxy.authorization),)
        dial = Dialer(
            parts.hostname or "",
            port,
            trust,
            pauses=pauses,
            proxy=proxy,
            proxy_trust=system_trust() if proxy is not None and proxy.secure else None,
        )
        self._dial = dial
        self._pool = ConnectionPool(dial, connections=connections, slot_seconds=slot_seconds)

    def __repr__(self) -> str:  # a URL may have a credential in its query
        return f"<Fetcher with {len(self._pool)} idle connections>"

    def prepare(self, method: str, headers: Sequence[tuple[str, str]], *, target: str | None = None) -> bytes:
        """Return the head of a request to this URL, or to another `target` (path and query) at the same place, for `exchange` and
        `open`; lines may be added to it (`header_line`). Raises `ValueError` for what cannot be sent."""
        if target is not None and not _TARGET.fullmatch(target):
            raise ValueError("the address cannot be sent")
        target = self._origin + (self._target if target is None else target)
        return request_head(method, target, self._authority, (*self._for_proxy, *headers))

    async def reach(self, *, deadline: float) -> None:
        """Open a connection, and close it again: nothing is sent. Raises `NotConnected` and `DeadlinePassed`."""
        with trio.CancelScope(deadline=deadline) as scope:
            (await self._dial()).close()
        if scope.cancelled_caught:
            raise DeadlinePassed

    async def exchange(
        self, head: bytes, body: bytes, *, deadline: float, limit: int, beginning: int
    ) -> tuple[int, bytes]:
        """Return status and body of the answer: all of it for a status of 2xx, which may have `limit` bytes, and of any other as
        much of the first `beginning` bytes as comes. `deadline` is on trio's clock. Raises as `open` does."""
        with trio.CancelScope(deadline=deadline) as scope:
            # Where a connection is idle nothing else waits before the request is gone; nobody's request is not sent.
            await trio.lowlevel.checkpoint_if_cancelled()
            connection = await self._pool.take()
            try:
                answer = UpstreamAnswer(connection, await connection.begin(with_body(head, body)), limit)
                if 200 <= answer.status < 300:
                    return answer.status, await answer.read()
                return answer.status, await answer.beginning(beginning)
            finally:
                self._pool.give_back(connection)
        # Nothing else leaves the block without returning or raising.
        assert scope.cancelled_caught
        raise DeadlinePassed

    async def begin(self, head: bytes, body: bytes, *, limit: int) -> UpstreamAnswer:
        """Return the answer, until whoever has it gives it to `end`; nothing here bounds how long it takes. Raises as `open` does,
        and then there is nothing to be ended. Made for callers whose requests are so many that a block for each costs too much."""
        if is_cancelled():  # as in `open`
            await trio.lowlevel.checkpoint()
        connection = await self._pool.take()
        try:
            return UpstreamAnswer(connection, await connection.begin(with_body(head, body)), limit)
        except BaseException:
            self._pool.give_back(connection)
            raise

    def end(self, answer: UpstreamAnswer) -> None:
        """Give the answer's connection back: nobody reads any more of it."""
        self._pool.give_back(answer.connection)

    @asynccontextmanager
    async def open(
        self, head: bytes, body: bytes, *, deadline: float, limit: int
    ) -> AsyncGenerator[UpstreamAnswer]:
        """Yield the answer, valid inside the block. `deadline`, on trio's clock, covers the block as well.

        Raises `FetchFailed` and `DeadlinePassed`. Cancelling it closes the connection, which is how the other side
        learns that nobody waits any more."""
        with trio.CancelScope(deadline=deadline) as scope:
            # Where a connection is idle nothing else waits before the request is gone; nobody's request is not sent.
            await trio.lowlevel.checkpoint_if_cancelled()
            connection = await self._pool.take()
            try:
                yield UpstreamAnswer(connection, await connection.begin(with_body(head, body)), limit)
            finally:
                self._pool.give_back(connection)
        if scope.cancelled_caught:
            raise DeadlinePassed

    async def aclose(self) -> None:
        """Close what is idle, without waiting; a connection in use is closed by the call that uses it."""
        self._pool.close()


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"answered with more than {most // 1024} KiB")
