"""A TCP connection that we made, as a trio stream that asks the kernel first and waits only when it must. TLS lies on top of it
(tls_stream.py). One task reads and one task writes at a time; errors of the socket are `trio.BrokenResourceError`.
"""

from __future__ import annotations

import contextlib
import socket

import trio

from server.lib.short_waits import wait_readable

READ_BYTES = 64 * 1024


class UpstreamSocket:
    """Closed by whoever has it, who does not use it after that."""

    __slots__ = ("_closed", "_socket")

    def __init__(self, stream: trio.SocketStream) -> None:
        """Take the socket over: the stream is of no use after that."""
        made = stream.socket
        family, kind, protocol = made.family, made.type, made.proto
        self._socket = socket.socket(family, kind, protocol, fileno=made.detach())
        self._socket.setblocking(False)
        self._closed = False

    async def receive_some(self) -> bytes:
        """Return the next bytes, b"" when there will be no more. Always wait: what is asked for is never there already."""
        while True:
            await wait_readable(self._socket)
            try:
                return self._socket.recv(READ_BYTES)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError("the other side is gone") from error

    async def send_all(self, data: bytes) -> None:
        """Send all of it, without a checkpoint when the kernel takes all of it, which is nearly always."""
        try:
            sent = self._socket.send(data)
        except OSError:
            sent = self.send_nowait(data)
        if sent < len(data):
            rest = memoryview(data)[sent:]
            while rest:
                await trio.lowlevel.wait_writable(self._socket)
                rest = rest[self.send_nowait(rest) :]

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Send, and return how much of it the kernel took."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError("the other side is gone") from error

    def is_quiet(self) -> bool:
        """Return whether the connection is there and nothing has come: an idle one that can be read from was closed, or holds what
        nobody asked for."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def say_goodbye(self) -> None:
        """Say nothing: TCP says it by closing."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._socket)
            with contextlib.suppress(OSError):  # a connection that was reset may say so once more
                self._socket.close()
