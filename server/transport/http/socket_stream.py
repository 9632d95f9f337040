"""One accepted socket as a trio stream that knows whether its peer still reads. TLS lies on top of it (trio.SSLStream).

trio's own SocketStream does the same work with a checkpoint and a lock around every call; this one tries the socket first and
waits only when it must, and it keeps the account that the write rule needs: that rule is decided here, and
enforced by whoever asks `overdue`.
"""

from __future__ import annotations

import contextlib
import socket
import struct

import trio

from server.lib.short_waits import wait_readable

from .connection_limits import HttpLimits

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: on, zero seconds
# Unsent bytes that the kernel keeps per connection. Small, so that progress is seen as the peer makes it, not in one lump
# when megabytes have drained, and so that a stalled reader holds little memory.
_UNSENT_BYTES = 64 * 1024


class PeerStream(trio.abc.HalfCloseableStream):
    """The stream of one peer, read by one task and written by one task at a time; errors of the socket are `trio.BrokenResourceError`."""

    __slots__ = ("_closed", "_socket", "_taken", "_waited", "_waiting_since")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # a Unix socket has none of these
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        self._socket = sock
        self._closed = False
        self._waiting_since: float | None = None
        self._waited = 0.0  # seconds spent waiting for the peer to read, in this window
        self._taken = 0  # bytes the peer took meanwhile

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        size = max_bytes or 65536
        while True:
            if self._closed:
                raise trio.ClosedResourceError("this connection was closed")
            await wait_readable(self._socket)
            try:
                return self._socket.recv(size)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError("the peer is gone") from error

    def has_left(self, *, quiet: bool) -> bool:
        """Return whether the peer is known to have closed. The kernel takes what is then sent to it, and tells of it too late. `quiet`: it has
        nothing to say now but that it leaves, which in TLS is a record like any other."""
        if self._closed:
            return True
        try:
            data = self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return quiet or not data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it, without a checkpoint when the kernel takes all of it, which is nearly always."""
        if self._closed:
            raise trio.ClosedResourceError("this connection was closed")
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise trio.BrokenResourceError("the peer is gone") from error
        if sent < len(data):
            await self._send_rest(memoryview(data)[sent:])

    async def _send_rest(self, rest: memoryview) -> None:
        while rest:
            self._waiting_since = trio.current_time()
            try:
                await trio.lowlevel.wait_writable(self._socket)
            finally:
                self._waited += trio.current_time() - self._waiting_since
                self._waiting_since = None
            if self._closed:
                raise trio.ClosedResourceError("this connection was closed")
            try:
                sent = self._socket.send(rest)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError("the peer is gone") from error
            self._taken += sent
            rest = rest[sent:]

    def overdue(self, now: float, limits: HttpLimits, size: int) -> bool:
        """Return whether the peer reads too slowly to be served any longer: asked every tick, about the wait in progress. `size`: how
        much it is being sent at once."""
        since = self._waiting_since
        if since is None:
            return False
        if now - since >= limits.write_stall_seconds:
            return True
        waited = self._waited + now - since
        if waited < limits.write_window_seconds:
            return False
        if self._taken < waited * max(limits.write_floor_bytes_per_second, size / limits.write_whole_seconds):
            return True
        self._waited = since - now  # A new window begins: the wait so far belongs to the old one.
        self._taken = 0
        return False

    async def wait_send_all_might_not_block(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this connection was closed")
        await trio.lowlevel.wait_writable(self._socket)

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Close at once; what the kernel still holds is delivered."""
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def abort(self) -> None:
        """Close at once and drop what the peer did not read, so that a stalled reader leaves nothing behind in the kernel."""
        if not self._closed:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.close()
