"""TLS over a connection that we made, which may be TLS itself: that of a proxy.

The context checks the other side's certificate against its name (trusted_roots.py). trio's own SSLStream serves any two tasks at
any time, and hides what it has read but not yet handed on. A connection is only used again if nothing lies in it that nobody
asked for, so this one can tell.
"""

from __future__ import annotations

import contextlib
import ssl

import trio

from server.lib.http_client.upstream_socket import READ_BYTES, UpstreamSocket


class TlsStream:
    """A stream that is read by one task and written by one task at a time, once `shake_hands` has returned."""

    __slots__ = ("_incoming", "_outgoing", "_socket", "_tls", "_writing")

    def __init__(self, wire: UpstreamSocket | TlsStream, context: ssl.SSLContext, host: str) -> None:
        """Prepare the handshake. Raises `ValueError` for a host that no certificate could name."""
        self._socket = wire
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._writing = False

    async def shake_hands(self) -> None:
        """Perform the handshake. Raises `ssl.SSLError` and `trio.BrokenResourceError`."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._feed()
            except ssl.SSLError:
                with contextlib.suppress(trio.BrokenResourceError):
                    self._socket.send_nowait(self._outgoing.read())  # the alert that says why
                raise
            else:
                return await self._flush()

    async def receive_some(self) -> bytes:
        """Receive as `UpstreamSocket` does. An end without TLS's own goodbye is an end as well: many servers send none, and
        HTTP says itself where an answer ends."""
        while True:
            try:
                return self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                if not self._writing:  # whoever writes sends what TLS has to say besides
                    await self._flush()
                await self._feed()
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLError as error:
                if self._incoming.eof:
                    return b""
                raise trio.BrokenResourceError("what came is not of this TLS connection") from error

    async def send_all(self, data: bytes) -> None:
        self._writing = True
        try:
            self._tls.write(data)  # into memory: all of it
            await self._flush()
        except ssl.SSLError as error:
            raise trio.BrokenResourceError("TLS cannot send any more") from error
        finally:
            self._writing = False

    def send_nowait(self, data: bytes) -> None:
        """Send a last word, if the kernel takes it: nothing may be sent after it. Raises `trio.BrokenResourceError`."""
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise trio.BrokenResourceError("TLS cannot send any more") from error
        self._socket.send_nowait(self._outgoing.read())

    def is_quiet(self) -> bool:
        """Ask as `UpstreamSocket` does; bytes that were read from the socket and not yet unpacked count as well."""
        return not self._incoming.pending and not self._tls.pending() and self._socket.is_quiet()

    def say_goodbye(self) -> None:
        """Tell the other side in TLS that no more will come, if the kernel takes it. Its own goodbye is not waited for."""
        with contextlib.suppress(ssl.SSLError, trio.BrokenResourceError):
            with contextlib.suppress(ssl.SSLWantReadError):
                self._tls.unwrap()
            self._socket.send_nowait(self._outgoing.read())
        self._socket.say_goodbye()

    def close(self) -> None:
        """Close the connection below."""
        self._socket.close()

    async def _flush(self) -> None:
        while data := self._outgoing.read():
            await self._socket.send_all(data)

    async def _feed(self) -> None:
        if data := await self._socket.receive_some():
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
