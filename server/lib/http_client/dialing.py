"""Connections to one address of the configuration, straight or through a proxy (proxies.py).

Why one cannot be made is said in our words, and no socket is left behind. Nothing was sent yet, so it is tried again. Addresses
that strangers name are checked first, in server/run/pinned_fetcher.py.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from socket import gaierror
from typing import Final

import trio

from server.lib.host_names import authority
from server.lib.http_client.client_connection import UpstreamConnection
from server.lib.http_client.failures import (
    BadCertificate,
    ConnectTimeout,
    FetchFailed,
    NobodyAnswers,
    NotConnected,
    NotTls,
    ProxyFailed,
    TlsFailed,
    UnknownName,
)
from server.lib.http_client.proxies import Proxy
from server.lib.http_client.response_head import ResponseHead
from server.lib.http_client.tls_stream import TlsStream
from server.lib.http_client.upstream_socket import UpstreamSocket

# For a connection; for a proxy to lead on from there; and for TLS.
CONNECT_SECONDS: Final = 10.0
# Pauses before the second and the third attempt to connect: an agent that is being restarted is back by then.
CONNECT_PAUSES: Final = (0.1, 0.5)
# OpenSSL's words for a first record that is not one of TLS; they depend on its version.
_NO_TLS_RECORD: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})


class Dialer:
    """The way to one address. A call makes a connection."""

    def __init__(
        self,
        host: str,
        port: int,
        trust: ssl.SSLContext | None,
        *,
        pauses: Sequence[float] = CONNECT_PAUSES,
        proxy: Proxy | None = None,
        proxy_trust: ssl.SSLContext | None = None,
    ) -> None:
        """Name the address. `trust` None: it is plain HTTP. `pauses`: seconds before each further attempt to connect."""
        self._host = host
        self._port = port
        self._trust = trust
        self._pauses = pauses
        self._proxy = proxy
        self._proxy_trust = proxy_trust

    async def __call__(self) -> UpstreamConnection:
        """Connect, and shake hands. Raises `NotConnected`."""
        proxy, trust = self._proxy, self._trust
        if proxy is None:
            stream = UpstreamSocket(await _connect(self._host, self._port, self._pauses))
        else:
            target = None if trust is None else (self._host, self._port)
            stream = await reach_proxy(proxy, self._proxy_trust, self._pauses, target)
            if trust is None:
                return ProxiedConnection(stream, proxy)
        if trust is None:
            return UpstreamConnection(stream)
        try:
            with trio.fail_after(CONNECT_SECONDS):
                return UpstreamConnection(await secure(stream, trust, self._host))
        except trio.TooSlowError:
            stream.close()
            raise ConnectTimeout("cannot be reached: the TLS handshake took too long") from None
        except BaseException:
            stream.close()
            raise


class ProxiedConnection(UpstreamConnection):
    """A connection to a proxy that hands on plain requests."""

    __slots__ = ("_proxy",)

    def __init__(self, stream: UpstreamSocket | TlsStream, proxy: Proxy) -> None:
        super().__init__(stream)
        self._proxy = proxy

    async def begin(self, request: bytes) -> ResponseHead:
        """Begin as any connection does. Raises `FetchFailed` where a login is wanted, which may be anybody's word by now."""
        head = await super().begin(request)
        if head.status == 407:
            raise FetchFailed(str(self._proxy.refused(head.status)))
        return head


async def reach_proxy(
    proxy: Proxy, trust: ssl.SSLContext | None, pauses: Sequence[float], target: tuple[str, int] | None
) -> UpstreamSocket | TlsStream:
    """Connect to the proxy and return the stream, which is a tunnel to `target` where one is given. Raises `ProxyFailed`.

    `trust` judges the certificate of a proxy that speaks TLS."""
    if proxy.problem:
        raise ProxyFailed(f"cannot be reached: {proxy.problem}")
    try:
        wire = UpstreamSocket(await _connect(proxy.host, proxy.port, pauses))
        try:
            with trio.fail_after(CONNECT_SECONDS):
                stream = wire
                if proxy.secure:
                    assert trust is not None
                    stream = await secure(wire, trust, proxy.host)
                if target is not None:
                    await _ask_for_tunnel(stream, proxy, authority(*target))
                return stream
        except BaseException:
            wire.close()
            raise
    except trio.TooSlowError:
        raise proxy.failed("did not answer in time") from None
    except ProxyFailed:
        raise
    except FetchFailed as problem:
        raise proxy.failed(problem) from problem


async def _ask_for_tunnel(stream: UpstreamSocket | TlsStream, proxy: Proxy, target: str) -> None:
    """Ask for one (RFC 9110 §9.3.6). Bytes behind a good answer, before anything was sent through it, are refused."""
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    connection = UpstreamConnection(stream)
    head = await connection.begin("\r\n".join([*lines, "", ""]).encode("ascii"))
    if not 200 <= head.status < 300:
        raise proxy.refused(head.status)
    if connection.followed:
        raise proxy.failed("sent more than an answer")


async def _connect(host: str, port: int, pauses: Sequence[float]) -> trio.SocketStream:
    for pause in (*pauses, None):
        try:
            with trio.fail_after(CONNECT_SECONDS):
                return await trio.open_tcp_stream(host, port)
        except trio.TooSlowError:
            raise ConnectTimeout("cannot be reached: nobody picked up in time") from None
        except UnicodeError:
            raise UnknownName("cannot be reached: its name is not valid") from None
        except OSError as error:
            if pause is None:
                raise _not_connected(error) from error
        await trio.sleep(pause or 0)
    raise AssertionError("the last attempt returns or raises")


async def secure(wire: UpstreamSocket | TlsStream, trust: ssl.SSLContext, host: str) -> TlsStream:
    """Return TLS with the other side, which has proved to be `host`. Raises `TlsFailed`; the socket stays its owner's to close."""
    try:
        stream = TlsStream(wire, trust, host)
        await stream.shake_hands()
    except ssl.SSLCertVerificationError as error:
        # Up to the comma: what follows names the host.
        why = error.verify_message.partition(",")[0]
        raise BadCertificate(f"cannot be reached: its TLS certificate is not accepted ({why})") from error
    except (ssl.SSLError, trio.BrokenResourceError, ValueError) as error:
        kind = NotTls if getattr(error, "reason", None) in _NO_TLS_RECORD else TlsFailed
        raise kind("cannot be reached: no TLS connection can be made") from error
    return stream


def _not_connected(error: OSError) -> NotConnected:
    causes = _causes(error)
    if any(isinstance(cause, gaierror) for cause in causes):
        return UnknownName("cannot be reached: its name is not known")
    refused = any(isinstance(cause, ConnectionRefusedError) for cause in causes)
    return NobodyAnswers(f"cannot be reached: {'connection refused' if refused else 'there is no way to it'}")


def _causes(error: BaseException) -> list[BaseException]:
    """Return the error, what it was raised from, and the members of groups among them."""
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
