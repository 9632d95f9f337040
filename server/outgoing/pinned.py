"""Outgoing GETs to addresses that strangers name: documents of OAuth clients, and the keys those documents point to.

A name is looked up once, every address it has must be public (addresses.py), and the connection is made to one of those
addresses: what connects takes addresses, not names, so no second look-up can lead elsewhere. TLS is checked against the
name. There are no redirects, cookies, proxies or credentials to leak: httpcore2 has none at this level. Addresses that the
configuration names are fetch.py's.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from ipaddress import IPv4Address, ip_address
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import httpcore2
import msgspec
import trio

from auth.clients.documents import Address as Url
from auth.clients.documents import CannotFetch, Fetch, Fetched, read_address
from server.outgoing.addresses import Address, is_public
from server.outgoing.fetch import USER_AGENT
from server.outgoing.single_flight import SingleFlight

DOCUMENT_BYTES: Final = 5_120
KEY_SET_BYTES: Final = 64 * 1_024
# Names, connections, TLS and the answer together: somebody waits for this in a browser.
EXCHANGE_SECONDS: Final = 5.0
# One address that does not pick up must leave time for the next.
CONNECT_SECONDS: Final = 1.5
CONNECT_ATTEMPTS: Final = 4
EXCHANGES: Final = 8
# A look-up that nobody waits for any more goes on in its thread until the resolver gives up, and keeps its place until then.
LOOKUPS: Final = 16
# Head, chunk sizes, and everything else that is not the body.
OVERHEAD_BYTES: Final = 64 * 1_024
CLOSE_SECONDS: Final = 1.0

HTTPS: Final = 443
_MAX_AGE: Final = re.compile(r"max-age\s*=\s*\"?([0-9]{1,10})", re.IGNORECASE)

# Its server's last word is one of these, or the document itself. All other refusals may be about us (a challenge to
# data centres, too many requests, not signed in) or pass (5xx): they say nothing of the document.
_NO_WORD: Final = frozenset({401, 403, 407, 408, 421, 425, 429})

Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[Address]]]
Connect: TypeAlias = Callable[[Address, int], Awaitable[trio.abc.Stream]]


class _Lookups:
    """Names to addresses, by the system's resolver, in threads of their own number."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(LOOKUPS)

    async def __call__(self, host: str) -> Sequence[Address]:
        # The dot keeps search domains out of it; bytes keep Python from translating the name.
        look_up = partial(socket.getaddrinfo, host.encode("ascii") + b".", HTTPS, type=socket.SOCK_STREAM)
        found = await trio.to_thread.run_sync(look_up, abandon_on_cancel=True, limiter=self._limiter)
        return list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))


async def connect_to(address: Address, port: int) -> trio.abc.Stream:
    """A TCP connection to this address. Raises `OSError`."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    connecting = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        await connecting.connect((str(address), port))
        return trio.SocketStream(connecting)
    except BaseException:
        connecting.close()
        raise


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The outside as one process reaches it. Only tests make one that differs from `Reach.system()`."""

    resolve: Resolve
    connect: Connect
    trust: Callable[[], ssl.SSLContext]
    slots: trio.Semaphore

    @classmethod
    def system(cls) -> Reach:
        return cls(
            resolve=_Lookups(),
            connect=connect_to,
            trust=httpcore2.default_ssl_context,
            slots=trio.Semaphore(EXCHANGES),
        )


def make_fetch(reach: Reach, *, limit: int = DOCUMENT_BYTES) -> Fetch:
    """A fetch of bodies of up to `limit` bytes. Those that share a `reach` share its bound on exchanges at once."""
    return _PinnedFetch(reach, limit)


class _PinnedFetch:
    def __init__(self, reach: Reach, limit: int) -> None:
        self._reach = reach
        self._limit = limit
        self._flights = SingleFlight[Fetched | CannotFetch]()
        self._tls: ssl.SSLContext | None = None

    async def __call__(self, url: str) -> Fetched:
        asked = read_address(url)
        if isinstance(asked, str):
            raise CannotFetch(asked, definite=True)
        outcome = await self._flights(url, partial(self._outcome, asked))
        if isinstance(outcome, CannotFetch):
            raise CannotFetch(str(outcome), definite=outcome.definite)  # each caller's own: tracebacks grow
        return outcome

    async def _outcome(self, asked: Url) -> Fetched | CannotFetch:
        with trio.move_on_after(EXCHANGE_SECONDS):
            try:
                async with self._reach.slots:
                    return await self._exchange(asked)
            except CannotFetch as problem:
                return problem
        return CannotFetch(f"did not answer within {EXCHANGE_SECONDS:.0f} seconds")

    async def _exchange(self, asked: Url) -> Fetched:
        addresses = await self._addresses(asked.host)
        if self._tls is None:  # reading the system's authorities takes tens of milliseconds: not at the start
            self._tls = self._reach.trust()
        async with self._connected(addresses) as stream:
            connection = httpcore2.AsyncHTTPConnection(
                origin=httpcore2.Origin(b"https", asked.host.encode(), HTTPS),
                ssl_context=self._tls,
                network_backend=_OneConnection(stream, most=self._limit + OVERHEAD_BYTES),
            )
            url = httpcore2.URL(
                scheme=b"https", host=asked.host.encode(), port=HTTPS, target=asked.target.encode()
            )
            headers = [
                ("Host", asked.host),
                ("User-Agent", USER_AGENT),
                ("Accept", "application/json"),
                ("Accept-Encoding", "identity"),
                ("Connection", "close"),
            ]
            try:
                async with connection.stream("GET", url, headers=headers) as response:
                    return await self._read(response)
            except httpcore2.ConnectError as error:
                raise CannotFetch("cannot be reached: no TLS connection can be made") from error
            except httpcore2.NetworkError as error:
                raise CannotFetch("closed the connection before it had answered") from error
            except httpcore2.ProtocolError as error:
                raise CannotFetch("did not answer in HTTP") from error

    async def _addresses(self, host: str) -> list[Address]:
        try:
            addresses = await self._reach.resolve(host)
        except (OSError, ValueError) as error:
            raise CannotFetch("cannot be reached: its name is not known") from error
        if not addresses:
            raise CannotFetch("cannot be reached: its name is not known")
        if not all(is_public(address) for address in addresses):
            # All of them: a name with one public address must not be a way to find out about the others.
            raise CannotFetch("is not on the public internet")
        return _alternating(addresses)[:CONNECT_ATTEMPTS]

    @asynccontextmanager
    async def _connected(self, addresses: Sequence[Address]) -> AsyncGenerator[trio.abc.Stream]:
        """A connection to the first of these that picks up, closed at the end whatever happens."""
        for address in addresses:
            with trio.move_on_after(CONNECT_SECONDS):
                try:
                    stream = await self._reach.connect(address, HTTPS)
                except OSError:
                    continue
                break
        else:
            raise CannotFetch("cannot be reached: nobody picked up")
        try:
            yield stream
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await trio.aclose_forcefully(stream)

    async def _read(self, response: httpcore2.Response) -> Fetched:
        status = response.status
        if status != 200:
            definite = 200 <= status < 500 and status not in _NO_WORD
            text = "sent us elsewhere" if 300 <= status < 400 else f"answered with status {status}"
            raise CannotFetch(text, definite=definite)
        media = _header(response, b"content-type").partition(";")[0].strip().lower()
        if media != "application/json" and not re.fullmatch(r"application/[a-z0-9.!#$&^_-]+\+json", media):
            raise CannotFetch("answered with something else than JSON", definite=True)
        if _header(response, b"content-encoding").strip().lower() not in ("", "identity"):
            # It was asked not to: what unfolds may be any size.
            raise CannotFetch("sent a compressed answer that was not asked for", definite=True)
        too_large = CannotFetch(f"answered with more than {self._limit} bytes", definite=True)
        declared = _header(response, b"content-length")
        if declared.isdecimal() and int(declared[:20]) > self._limit:
            raise too_large
        body = bytearray()
        async with aclosing(response.aiter_stream()) as parts:
            async for part in parts:
                body += part
                if len(body) > self._limit:
                    raise too_large
        age = _MAX_AGE.search(_header(response, b"cache-control"))
        return Fetched(body=bytes(body), max_age_seconds=int(age[1]) if age else None)


class _OneConnection(httpcore2.AsyncNetworkBackend):
    """Hands out the connection that was made; there is no other to be had."""

    def __init__(self, stream: trio.abc.Stream, *, most: int) -> None:
        self._stream: trio.abc.Stream | None = stream
        self._most = most

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        stream, self._stream = self._stream, None
        if stream is None:
            raise httpcore2.ConnectError("one connection, one exchange")
        return _Checked(stream, most=self._most)


class _Checked(httpcore2.AsyncNetworkStream):
    """A connection from which only so many bytes are read. Whoever made it closes it."""

    def __init__(self, stream: trio.abc.Stream, *, most: int) -> None:
        self._stream = stream
        self._left = most

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore2.ReadError(str(error)) from error
        self._left -= len(data)
        if self._left < 0:
            raise CannotFetch("answered with more than anybody needs", definite=True)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            await self._stream.send_all(buffer)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore2.WriteError(str(error)) from error

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)

    def get_extra_info(self, info: str) -> Any:
        return None  # asked for the protocol that TLS agreed on: it is HTTP/1.1

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        tls = trio.SSLStream(
            self._stream, ssl_context=ssl_context, server_hostname=server_hostname, https_compatible=True
        )
        try:
            await tls.do_handshake()
        except trio.BrokenResourceError as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise CannotFetch("showed a certificate that is not accepted") from error
            raise httpcore2.ConnectError(str(error)) from error
        return _Checked(tls, most=self._left)


def _alternating(addresses: Sequence[Address]) -> list[Address]:
    """In the resolver's order, but the two families in turn: one of them may lead nowhere from here."""
    first = [address for address in addresses if address.version == addresses[0].version]
    second = [address for address in addresses if address.version != addresses[0].version]
    return [address for pair in zip_longest(first, second) for address in pair if address is not None]


def _header(response: httpcore2.Response, name: bytes) -> str:
    """The value, several joined by commas, or an empty text."""
    found = [value for known, value in response.headers if known.lower() == name]
    return b", ".join(found).decode("latin-1")
