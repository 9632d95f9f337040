"""Connections to one address of the configuration: why one cannot be made is said in our words, and no socket is left behind.

Nothing was sent yet, so it is tried again. Addresses that strangers name are checked first, in server/run/pinned_fetcher.py.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from socket import gaierror
from typing import Final

import trio

from server.lib.http_client.client_connection import UpstreamConnection
from server.lib.http_client.failures import (
    BadCertificate,
    ConnectTimeout,
    NobodyAnswers,
    NotConnected,
    NotTls,
    TlsFailed,
    UnknownName,
)
from server.lib.http_client.tls_stream import TlsStream
from server.lib.http_client.upstream_socket import UpstreamSocket

CONNECT_SECONDS: Final = 10.0
# Pauses before the second and the third attempt to connect: an agent that is being restarted is back by then.
CONNECT_PAUSES: Final = (0.1, 0.5)
# OpenSSL's words for a first record that is not one of TLS; they depend on its version.
_NO_TLS_RECORD: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})


class Dialer:
    """The way to one address. A call makes a connection."""

    def __init__(
        self, host: str, port: int, trust: ssl.SSLContext | None, *, pauses: Sequence[float] = CONNECT_PAUSES
    ) -> None:
        """Name the address. `trust` None: it is plain HTTP. `pauses`: seconds before each further attempt to connect."""
        self._host = host
        self._port = port
        self._trust = trust
        self._pauses = pauses

    async def __call__(self) -> UpstreamConnection:
        """Connect, and shake hands. Raises `NotConnected`."""
        wire = UpstreamSocket(await self._connect())
        if self._trust is None:
            return UpstreamConnection(wire)
        try:
            with trio.fail_after(CONNECT_SECONDS):
                return UpstreamConnection(await secure(wire, self._trust, self._host))
        except trio.TooSlowError:
            wire.close()
            raise ConnectTimeout("cannot be reached: the TLS handshake took too long") from None
        except BaseException:
            wire.close()
            raise

    async def _connect(self) -> trio.SocketStream:
        for pause in (*self._pauses, None):
            try:
                with trio.fail_after(CONNECT_SECONDS):
                    return await trio.open_tcp_stream(self._host, self._port)
            except trio.TooSlowError:
                raise ConnectTimeout("cannot be reached: nobody picked up in time") from None
            except UnicodeError:
                raise UnknownName("cannot be reached: its name is not valid") from None
            except OSError as error:
                if pause is None:
                    raise _not_connected(error) from error
            await trio.sleep(pause or 0)
        raise AssertionError("the last attempt returns or raises")


async def secure(wire: UpstreamSocket, trust: ssl.SSLContext, host: str) -> TlsStream:
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
