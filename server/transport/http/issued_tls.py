"""The server's side of TLS where a certificate authority gives the certificate while the server runs.

Until there is one, whoever comes is told that nobody of that name is here. While a name is being proved, the authority itself comes to
the same port, and says so with the protocol that it speaks (TLS-ALPN-01, RFC 8737 §3): it is shown the proof, and everybody else what they
came for. Loaded only where a domain is configured. How a proof is made is server/certificates's.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, Protocol

import trio

from .client_hello import HelloListener, NotAHello
from .server_tls import SecureStream, TlsError, new_context
from .socket_stream import PeerStream

PROOF_PROTOCOL: Final = b"acme-tls/1"
# A fatal alert in a record of TLS 1.2, as it is sent before anything was agreed on: unrecognized_name (RFC 6066 §3).
_NOBODY_HERE: Final = b"\x15\x03\x03\x00\x02\x02\x70"


class Challenges(Protocol):
    """The names that are being proved just now."""

    def __bool__(self) -> bool: ...

    def context_for(self, name: str) -> ssl.SSLContext | None: ...


class IssuedTls:
    """Implements `server.transport.http.server_tls.Secures`."""

    def __init__(self, challenges: Challenges) -> None:
        self._challenges = challenges
        self._context: ssl.SSLContext | None = None

    def take(self, file: Path) -> None:
        """The certificate for the next handshakes, with its key in the same file. Raises `TlsError`; then the one of before stays."""
        context = new_context()
        try:
            context.load_cert_chain(file, password="")
        except ssl.SSLError as error:
            raise TlsError(f"{file} holds no certificate with its key ({error.reason})") from None
        except OSError as error:
            raise TlsError(f"cannot read {file}: {error.strerror}") from None
        self.use(context)

    def use(self, context: ssl.SSLContext) -> None:
        """For the next handshakes: a `new_context` that has its certificate."""
        self._context = context

    def secured(self, wire: PeerStream) -> SecureStream:
        if self._context is not None and not self._challenges:
            return trio.SSLStream(wire, self._context, server_side=True)
        return ListeningStream(wire, self)

    def context_for(self, name: str, protocols: tuple[bytes, ...]) -> tuple[ssl.SSLContext | None, bool]:
        """What to shake hands with, and whether that is all that is wanted."""
        # §3: the authority offers this protocol, and no other.
        if protocols == (PROOF_PROTOCOL,):
            return self._challenges.context_for(name), True
        return self._context, False


class ListeningStream(trio.abc.Stream):
    """Hears the client out before it is settled which certificate it is shown. Then it is one `trio.SSLStream`, whose errors it has."""

    def __init__(self, wire: PeerStream, tls: IssuedTls) -> None:
        self._wire = wire
        self._tls = tls
        self._stream: trio.SSLStream[HeardStream] | None = None

    async def do_handshake(self) -> None:
        """Raises `trio.BrokenResourceError` as well where the handshake was all that the client wanted."""
        client, hello = HelloListener(), None
        while hello is None:
            data = await self._wire.receive_some()
            if not data:
                raise trio.BrokenResourceError("the peer is gone")
            try:
                hello = client.take(data)
            except NotAHello:
                raise trio.BrokenResourceError("what came is not TLS") from None
        context, proves = self._tls.context_for(hello.server_name, hello.protocols)
        if context is None:
            await self._wire.send_all(_NOBODY_HERE)
            raise trio.BrokenResourceError("there is no certificate for the name")
        self._stream = trio.SSLStream(HeardStream(self._wire, bytes(client.heard)), context, server_side=True)
        await self._stream.do_handshake()
        if proves:
            await self._stream.aclose()
            raise trio.BrokenResourceError("the proof was shown")

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._made().receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._made().send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._made().wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await (self._wire if self._stream is None else self._stream).aclose()

    def _made(self) -> trio.SSLStream[HeardStream]:
        if self._stream is None:
            raise trio.ClosedResourceError("hands were not shaken")
        return self._stream


class HeardStream(trio.abc.Stream):
    """A connection, of which something was read already."""

    def __init__(self, wire: PeerStream, heard: bytes) -> None:
        self._wire = wire
        self._heard = heard

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self._heard:
            size = max_bytes or len(self._heard)
            data, self._heard = self._heard[:size], self._heard[size:]
            return data
        return await self._wire.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._wire.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._wire.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._wire.aclose()
