"""Making connections to one address of the configuration: in our words why it could not be done, tried again where nothing was
sent, and no socket left behind. To addresses that strangers name, which are checked first, connects server/run/pinned_fetcher.py.
"""

from __future__ import annotations

import ssl
from socket import gaierror
from typing import Final

import trio

from server.lib.http_client.client_connection import UpstreamConnection
from server.lib.http_client.failures import BadCertificate, NotConnected
from server.lib.http_client.tls_stream import TlsStream
from server.lib.http_client.upstream_socket import UpstreamSocket

CONNECT_SECONDS: Final = 10.0
# Pauses before the second and the third attempt to connect: an agent that is being restarted is back by then.
CONNECT_PAUSES: Final = (0.1, 0.5)


class Dialer:
    def __init__(self, host: str, port: int, trust: ssl.SSLContext | None) -> None:
        """`trust` None: it is plain HTTP."""
        self._host = host
        self._port = port
        self._trust = trust

    async def __call__(self) -> UpstreamConnection:
        """Raises `NotConnected`."""
        wire = UpstreamSocket(await self._connect())
        if self._trust is None:
            return UpstreamConnection(wire)
        try:
            with trio.fail_after(CONNECT_SECONDS):
                return UpstreamConnection(await secure(wire, self._trust, self._host))
        except trio.TooSlowError:
            wire.close()
            raise NotConnected("cannot be reached: the TLS handshake took too long") from None
        except BaseException:
            wire.close()
            raise

    async def _connect(self) -> trio.SocketStream:
        for pause in (*CONNECT_PAUSES, None):
            try:
                with trio.fail_after(CONNECT_SECONDS):
                    return await trio.open_tcp_stream(self._host, self._port)
            except trio.TooSlowError:
                raise NotConnected("cannot be reached: nobody picked up in time") from None
            except UnicodeError:
                raise NotConnected("cannot be reached: its name is not valid") from None
            except OSError as error:
                if pause is None:
                    raise NotConnected(f"cannot be reached: {_network_reason(error)}") from error
            await trio.sleep(pause or 0)
        raise AssertionError("the last attempt returns or raises")


async def secure(wire: UpstreamSocket, trust: ssl.SSLContext, host: str) -> TlsStream:
    """TLS with the other side, which has proved to be `host`. Raises `NotConnected`; the socket stays its owner's to close."""
    try:
        stream = TlsStream(wire, trust, host)
        await stream.shake_hands()
    except ssl.SSLCertVerificationError as error:
        # Up to the comma: what follows names the host.
        why = error.verify_message.partition(",")[0]
        raise BadCertificate(f"cannot be reached: its TLS certificate is not accepted ({why})") from error
    except (ssl.SSLError, trio.BrokenResourceError, ValueError) as error:
        raise NotConnected("cannot be reached: no TLS connection can be made") from error
    return stream


def _network_reason(error: BaseException) -> str:
    causes = _causes(error)
    if any(isinstance(cause, gaierror) for cause in causes):
        return "its name is not known"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "connection refused"
    return "there is no way to it"


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
