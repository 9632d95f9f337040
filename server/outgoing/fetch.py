"""Outgoing HTTP to an address that the configuration names: one request, one answer, every part of it bounded.

It stands on httpcore2, the lower half of httpx2: at that level there are no cookies (which would leak from one caller to
the next), no redirects, no proxies and no netrc to switch off. Connections are kept here rather than in its pool: a call
that is cancelled closes its own connection and gives its slot back whatever it was doing, the TLS handshake included.
Nothing is ever sent twice; only a connection that could not be made is tried again. Addresses that a stranger names
need resolved addresses to be checked first, and are not for this module.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from socket import gaierror
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpcore2
import trio

from server import __version__

USER_AGENT: Final = f"ostiary/{__version__}"
URL_CHARACTERS: Final = 2048
CONNECT_SECONDS: Final = 10.0
# Waiting longer than this for one of our own connections means that the other side does not keep up.
SLOT_SECONDS: Final = 10.0
# Pauses before the second and the third attempt to connect: an agent that is being restarted is back by then.
CONNECT_PAUSES: Final = (0.1, 0.5)
# Below the idle limit of common servers (gunicorn 2 s, node and uvicorn 5 s): a request sent into a connection that is
# just being closed is lost, and may not be sent again.
KEEPALIVE_SECONDS: Final = 1.5
# Closing a socket does not wait for anybody; this only keeps the rule that a shield has an end.
CLOSE_SECONDS: Final = 2.0


class FetchFailed(Exception):
    """The exchange failed. The text continues a sentence about the other side, and names neither address nor secret."""


class NotConnected(FetchFailed):
    """Not a byte of the request was sent."""


class Busy(NotConnected):
    """All connections that we allow ourselves are in use."""


class BrokenOff(FetchFailed):
    """The request may have been carried out, but its answer did not arrive in full."""


class TooLarge(FetchFailed):
    """The answer is longer than was asked for."""


class DeadlinePassed(Exception):
    """The whole exchange took longer than it may. What was asked for may have happened."""


def url_problem(url: str) -> str | None:
    """What keeps `url` from being an address that can be called, or None."""
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


class Answer:
    """Status and headers have arrived; the body is read on demand, and only up to its limit."""

    def __init__(self, response: httpcore2.Response, limit: int) -> None:
        self.status = response.status
        self._response = response
        self._limit = limit

    def header(self, name: bytes) -> str:
        """The value, several joined by commas, or an empty text."""
        return b", ".join(value for known, value in self._response.headers if known.lower() == name).decode(
            "latin-1"
        )

    @property
    def media_type(self) -> str:
        return self.header(b"content-type").partition(";")[0].strip().lower()

    async def chunks(self, limit: int | None = None) -> AsyncGenerator[bytes]:
        """The body as it arrives. Raises `TooLarge` before more than the limit has been handed on."""
        most = self._limit if limit is None else min(limit, self._limit)
        too_large = TooLarge(f"answered with more than {most // 1024} KiB")
        # We ask for identity; anything else could unfold into more than was counted.
        if self.header(b"content-encoding").strip().lower() not in ("", "identity"):
            raise FetchFailed("sent a compressed answer that was not asked for")
        length = self.header(b"content-length")
        if length.isdecimal() and int(length[:20]) > most:
            raise too_large
        size = 0
        with _in_our_words():
            async with aclosing(self._response.aiter_stream()) as parts:
                async for part in parts:
                    size += len(part)
                    if size > most:
                        raise too_large
                    yield part

    async def read(self, limit: int | None = None) -> bytes:
        async with aclosing(self.chunks(limit)) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def beginning(self, size: int) -> bytes:
        """At most the first `size` bytes of the body. What it is part of is not worth a failure of its own."""
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


class Fetcher:
    """Calls one URL over a bounded number of kept connections. Close it when the last call has ended."""

    def __init__(
        self,
        url: str,
        *,
        connections: int,
        ca_file: Path | None = None,
        slot_seconds: float = SLOT_SECONDS,
    ) -> None:
        """Raises `ValueError` for a URL or a CA file that cannot be used."""
        if problem := url_problem(url):
            raise ValueError(f"the url {problem}")
        self._url = httpcore2.URL(url)
        self._host = urlsplit(url).netloc
        self._tls = _trust(ca_file) if self._url.scheme == b"https" else None
        self._slots = trio.Semaphore(connections)
        self._slot_seconds = slot_seconds
        self._connections = connections
        self._idle: list[httpcore2.AsyncHTTPConnection] = []
        self._closed = False

    def __repr__(self) -> str:  # a URL may have a credential in its query
        return f"<Fetcher with {len(self._idle)} idle connections>"

    @asynccontextmanager
    async def post(
        self, body: bytes, *, headers: Sequence[tuple[str, str]], deadline: float, limit: int
    ) -> AsyncGenerator[Answer]:
        """`send` as a POST."""
        sending = self.send("POST", body, headers=headers, deadline=deadline, limit=limit)
        async with sending as answer:
            yield answer

    @asynccontextmanager
    async def send(
        self, method: str, body: bytes, *, headers: Sequence[tuple[str, str]], deadline: float, limit: int
    ) -> AsyncGenerator[Answer]:
        """Send `body`; the answer is valid inside the block. `deadline`, on trio's clock, covers the block as well.

        Raises `FetchFailed` and `DeadlinePassed`. Cancelling it closes the connection, which is how the other side
        learns that nobody waits any more."""
        sent = [
            ("Host", self._host),
            ("User-Agent", USER_AGENT),
            ("Accept-Encoding", "identity"),
            ("Content-Length", str(len(body))),
            *headers,
        ]
        with trio.move_on_at(deadline) as scope:
            async with self._connection() as connection:
                with _in_our_words():
                    async with connection.stream(
                        method,
                        self._url,
                        headers=sent,
                        content=body,
                        extensions={"timeout": {"connect": CONNECT_SECONDS}},
                    ) as response:
                        yield Answer(response, limit)
        if scope.cancelled_caught:
            raise DeadlinePassed

    async def aclose(self) -> None:
        """Close what is idle; a connection in use is closed by the call that uses it."""
        self._closed = True
        dropped, self._idle = self._idle, []
        await _close(dropped)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[httpcore2.AsyncHTTPConnection]:
        if self._closed:
            raise NotConnected("is no longer called: this server is stopping")
        with trio.move_on_after(self._slot_seconds) as wait:
            await self._slots.acquire()
        if wait.cancelled_caught:
            raise Busy(f"is busy: {self._connections} calls are running")
        try:
            connection, expired = self._take()
            try:
                await _close(expired)
                yield connection
            finally:
                if not self._kept(connection):
                    await _close([connection])
        finally:
            self._slots.release()

    def _take(self) -> tuple[httpcore2.AsyncHTTPConnection, list[httpcore2.AsyncHTTPConnection]]:
        """The connection used last, or a new one, and those that have to be closed."""
        fresh = [connection for connection in self._idle if not connection.has_expired()]
        expired = [connection for connection in self._idle if connection not in fresh]
        connection = fresh.pop() if fresh else self._new()
        self._idle = fresh
        return connection, expired

    def _kept(self, connection: httpcore2.AsyncHTTPConnection) -> bool:
        keep = not self._closed and connection.is_idle() and not connection.has_expired()
        if keep:
            self._idle.append(connection)
        return keep

    def _new(self) -> httpcore2.AsyncHTTPConnection:
        return httpcore2.AsyncHTTPConnection(
            origin=self._url.origin,
            ssl_context=self._tls,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=_Network(),
        )


class _Network(httpcore2.AsyncNetworkBackend):
    """Makes connections: says in our words why it could not, tries again where nothing was sent, leaks no socket."""

    def __init__(self) -> None:
        self._trio = cast(
            "httpcore2.AsyncNetworkBackend", httpcore2.TrioBackend()
        )  # typed as perhaps missing

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        for pause in (*CONNECT_PAUSES, None):
            try:
                stream = await self._trio.connect_tcp(host, port, timeout, local_address, socket_options)
            except httpcore2.ConnectTimeout:
                raise NotConnected("cannot be reached: nobody picked up in time") from None
            except UnicodeError:
                raise NotConnected("cannot be reached: its name is not valid") from None
            except httpcore2.ConnectError as error:
                if pause is None:
                    raise NotConnected(f"cannot be reached: {_network_reason(error)}") from error
            else:
                return _Connected(stream)
            await trio.sleep(pause or 0)
        raise AssertionError("the last attempt returns or raises")


class _Connected(httpcore2.AsyncNetworkStream):
    """A TCP connection, as httpcore2 has it, except that a TLS handshake that fails or is cancelled closes it."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except httpcore2.ConnectTimeout:
            raise NotConnected("cannot be reached: the TLS handshake took too long") from None
        except httpcore2.ConnectError as error:
            raise NotConnected(f"cannot be reached: {_tls_reason(error)}") from error
        except BaseException:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._stream.aclose()
            raise


@contextmanager
def _in_our_words() -> Generator[None]:
    try:
        yield
    except httpcore2.NetworkError as error:
        raise BrokenOff("closed the connection before it had answered in full") from error
    except httpcore2.RemoteProtocolError as error:
        # Two ways in which h11 and httpcore2 say that the connection ended; everything else is not HTTP.
        if "disconnected" in str(error) or "closed connection" in str(error):
            raise BrokenOff("closed the connection before it had answered in full") from error
        raise FetchFailed("did not answer in HTTP") from error


async def _close(connections: Iterable[httpcore2.AsyncHTTPConnection]) -> None:
    with trio.move_on_after(CLOSE_SECONDS, shield=True):
        for connection in connections:
            await connection.aclose()


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    """The given authority alone, or those of the system (which is where SSL_CERT_FILE still counts)."""
    if ca_file is None:
        return httpcore2.default_ssl_context()
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise ValueError(f"the CA file {ca_file} holds no certificate") from error
    except OSError as error:
        raise ValueError(f"the CA file {ca_file} cannot be read: {error.strerror}") from error


def _network_reason(error: BaseException) -> str:
    causes = _causes(error)
    if any(isinstance(cause, gaierror) for cause in causes):
        return "its name is not known"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "connection refused"
    return "there is no way to it"


def _tls_reason(error: BaseException) -> str:
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            # Up to the comma: what follows names the host.
            return f"its TLS certificate is not accepted ({cause.verify_message.partition(',')[0]})"
    return "no TLS connection can be made"


def _causes(error: BaseException) -> list[BaseException]:
    """The error, what it was raised from, and the members of groups among them."""
    found: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting and len(found) < 32:
        cause = waiting.pop()
        if cause is None or cause in found:
            continue
        found.append(cause)
        waiting += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            waiting += cause.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return found
