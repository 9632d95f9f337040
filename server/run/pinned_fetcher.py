"""Outgoing GETs to addresses that strangers name: documents of OAuth clients, and the keys those documents point to.

A name is looked up once, every address it has must be public (server/lib/http_client/public_addresses.py), and the connection is
made to one of those addresses: what connects takes addresses, not names, so no second look-up can lead elsewhere. A proxy of the
environment is asked for such an address, too. TLS is checked against the name. There are no redirects, cookies or credentials to
leak: server/lib/http_client/client_connection.py knows none. Addresses that the configuration names are called by
server/lib/http_client/fetch.py.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address, ip_address
from itertools import zip_longest
from typing import Final, TypeAlias
from urllib.parse import SplitResult

import msgspec
import trio

from auth.clients.client_identifier_urls import CannotFetch, FetchDocument, FetchedDocument, read_address
from auth.clients.client_identifier_urls import DocumentAddress as Url
from server.lib.http_client import hosts_file
from server.lib.http_client.client_connection import UpstreamConnection
from server.lib.http_client.dialing import reach_proxy, secure
from server.lib.http_client.failures import (
    BadCertificate,
    BrokenOff,
    CompressedUnasked,
    NotConnected,
    NotHttp,
    ProxyFailed,
    TooLarge,
)
from server.lib.http_client.fetch import UpstreamAnswer, request_head
from server.lib.http_client.proxies import proxy_for
from server.lib.http_client.public_addresses import Address, is_public
from server.lib.http_client.response_head import ResponseHead
from server.lib.http_client.single_flight import SingleFlight
from server.lib.http_client.tls_stream import TlsStream
from server.lib.http_client.trusted_roots import system_trust
from server.lib.http_client.upstream_socket import UpstreamSocket

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

HTTPS: Final = 443
_HEADERS: Final = (("Accept", "application/json"), ("Connection", "close"))
_MAX_AGE: Final = re.compile(r"max-age\s*=\s*\"?([0-9]{1,10})", re.IGNORECASE)

# Its server's last word is one of these, or the document itself. All other refusals may be about us (a challenge to
# data centres, too many requests, not signed in) or pass (5xx): they say nothing of the document.
_NO_WORD: Final = frozenset({401, 403, 407, 408, 421, 425, 429})

Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[Address]]]
Connect: TypeAlias = Callable[[Address, int], Awaitable[trio.SocketStream]]


class _Lookups:
    """Names to addresses, by the hosts file and the system's resolver, in threads of their own number."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(LOOKUPS)

    async def __call__(self, host: str) -> Sequence[Address]:
        return await trio.to_thread.run_sync(
            partial(_look_up, host), abandon_on_cancel=True, limiter=self._limiter
        )


def _look_up(host: str) -> Sequence[Address]:
    """Return every address of a name, from whoever knows it first. Raises `OSError`."""
    if named_here := hosts_file.addresses_of(host, hosts_file.HOSTS_FILE):
        return named_here
    # The dot keeps search domains out of it; bytes keep Python from translating the name.
    found = socket.getaddrinfo(host.encode("ascii") + b".", HTTPS, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))


async def connect_to(address: Address, port: int) -> trio.SocketStream:
    """Connect to this address. Raises `OSError`."""
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
    environment: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)  # names proxies

    @classmethod
    def system(cls) -> Reach:
        return cls(
            resolve=_Lookups(),
            connect=connect_to,
            trust=system_trust,
            slots=trio.Semaphore(EXCHANGES),
        )

    def apart(self) -> Reach:
        """Return the outside as it is, with exchanges of its own."""
        return msgspec.structs.replace(self, slots=trio.Semaphore(EXCHANGES))


def make_fetch(reach: Reach, *, limit: int = DOCUMENT_BYTES) -> FetchDocument:
    """Return a fetch of bodies of up to `limit` bytes. All that share a `reach` share its bound on exchanges at once."""
    return _PinnedFetch(reach, limit)


class _PinnedFetch:
    def __init__(self, reach: Reach, limit: int) -> None:
        self._reach = reach
        self._limit = limit
        self._flights = SingleFlight[FetchedDocument | CannotFetch]()
        self._tls: ssl.SSLContext | None = None

    async def __call__(self, url: str) -> FetchedDocument:
        asked = read_address(url)
        if isinstance(asked, str):
            raise CannotFetch(asked, definite=True)
        outcome = await self._flights(url, partial(self._outcome, asked))
        if isinstance(outcome, CannotFetch):
            raise CannotFetch(str(outcome), definite=outcome.definite)  # each caller's own: tracebacks grow
        return outcome

    async def _outcome(self, asked: Url) -> FetchedDocument | CannotFetch:
        with trio.move_on_after(EXCHANGE_SECONDS):
            try:
                async with self._reach.slots:
                    return await self._exchange(asked)
            except CannotFetch as problem:
                return problem
        return CannotFetch(f"did not answer within {EXCHANGE_SECONDS:.0f} seconds")

    async def _exchange(self, asked: Url) -> FetchedDocument:
        addresses = await self._addresses(asked.host)
        if self._tls is None:  # reading the system's authorities takes tens of milliseconds: not at the start
            self._tls = self._reach.trust()
        wire = await self._connect(addresses, asked.host, self._tls)
        try:
            tls = await secure(wire, self._tls, asked.host)
            connection = UpstreamConnection(tls, most=self._limit + OVERHEAD_BYTES)
            return await self._read(connection, await connection.begin(_request(asked)))
        except BadCertificate as error:
            raise CannotFetch("showed a certificate that is not accepted") from error
        except NotConnected as error:
            raise CannotFetch("cannot be reached: no TLS connection can be made") from error
        except BrokenOff as error:
            raise CannotFetch("closed the connection before it had answered") from error
        except NotHttp as error:
            raise CannotFetch("did not answer in HTTP") from error
        except (TooLarge, CompressedUnasked) as error:
            raise CannotFetch(str(error), definite=True) from error
        finally:
            wire.close()

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

    async def _connect(
        self, addresses: Sequence[Address], host: str, trust: ssl.SSLContext
    ) -> UpstreamSocket | TlsStream:
        """Connect to the first of these that picks up."""
        proxy = proxy_for(SplitResult("https", host, "", "", ""), self._reach.environment)
        for address in addresses:
            with trio.move_on_after(CONNECT_SECONDS):
                try:
                    if proxy is None:
                        return UpstreamSocket(await self._reach.connect(address, HTTPS))
                    return await reach_proxy(proxy, trust, (), (str(address), HTTPS))
                except (OSError, ProxyFailed):
                    continue
        # Strangers are told, and need not know which proxy.
        raise CannotFetch(
            f"cannot be reached: {'nobody picked up' if proxy is None else 'the proxy does not lead there'}"
        )

    async def _read(self, connection: UpstreamConnection, head: ResponseHead) -> FetchedDocument:
        status = head.status
        if status != 200:
            definite = 200 <= status < 500 and status not in _NO_WORD
            text = "sent us elsewhere" if 300 <= status < 400 else f"answered with status {status}"
            raise CannotFetch(text, definite=definite)
        media = head.media_type
        if media != "application/json" and not re.fullmatch(r"application/[a-z0-9.!#$&^_-]+\+json", media):
            raise CannotFetch("answered with something else than JSON", definite=True)
        body = await UpstreamAnswer(connection, head, self._limit).read()
        age = _MAX_AGE.search(head.value(b"cache-control"))
        return FetchedDocument(body=body, max_age_seconds=int(age[1]) if age else None)


def _request(asked: Url) -> bytes:
    # A GET without a Content-Length ends with its head.
    return request_head("GET", asked.target, asked.host, _HEADERS) + b"\r\n"


def _alternating(addresses: Sequence[Address]) -> list[Address]:
    """Take the two families in turn, each in the resolver's order: one of them may lead nowhere from here."""
    first = [address for address in addresses if address.version == addresses[0].version]
    second = [address for address in addresses if address.version != addresses[0].version]
    return [address for pair in zip_longest(first, second) for address in pair if address is not None]
