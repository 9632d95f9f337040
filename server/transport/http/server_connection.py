"""One HTTP/1.1 server connection: its requests in order, each answered in this very task (request_cycle.py) by what its head leads to.

No task per request and no timers: `deadline` is a field that the reaper looks at (connection_table.py). Bytes are read when somebody
needs them; the beginning of later requests waits in `buffer`, bounded, and the rest stays with the peer. The form of a head is in
request_head.py, that of a body in server/lib/chunked_body.py, that of a response in response.py, sockets in listen.py. RFC 9112.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, cast

import trio

from . import response
from .connection_refusals import Disconnected, RequestRefused
from .handler import Address, Handler
from .request_cycle import ConnectionCycle, scope_of
from .request_head import Head, refuse_unfinished
from .server_tls import SecureStream
from .shared_state import Serving
from .socket_stream import PeerStream

READ_BYTES: Final = 64 * 1024
_HEAD_END: Final = b"\r\n\r\n"
_BLANK_LINE: Final = b"\r\n"


class Connection:
    """One connection, which runs once. `run` lets out cancellation and what ends a process (KeyboardInterrupt …), nothing that a peer can cause."""

    __slots__ = (
        "_answers_late",
        "_cycle",
        "_kind",
        "_last_word",
        "_lot",
        "_scope",
        "_served",
        "_size",
        "_stream",
        "_timed_out",
        "_tls",
        "_vital",
        "_wire",
        "_writing",
        "at_drain",
        "at_end",
        "buffer",
        "client",
        "cut",
        "deadline",
        "gone",
        "idle",
        "scheme",
        "sent",
        "server",
        "serving",
        "when_heard_of",
    )  # fmt: skip

    def __init__(
        self,
        serving: Serving,
        wire: PeerStream,
        *,
        tls: SecureStream | None = None,
        client: Address | None = None,
        server: Address | None = None,
        proxied: bool = False,
        vital: bool = False,
    ) -> None:
        """Take a connection. `proxied`: its peer may say who calls, so the handler is found anew for each request. `vital`: there is
        no room, and it may ask once for what is answered all the same."""
        self.serving = serving
        self.client = client
        self.server = server
        self.scheme = "http" if tls is None else "https"
        self.buffer = b""
        self.deadline = math.inf
        # The next request says that the answer before it has arrived.
        self.when_heard_of: Callable[[], None] | None = None
        self.at_drain: Callable[[], None] | None = None  # of the request in progress, if it wants to know
        self.at_end: Callable[[], None] | None = None  # of the connection, however it comes
        self.idle = False  # between requests: closed without loss when the drain begins
        self.gone = False  # nothing can be sent any more: the peer left, or a write was cut short
        self.cut = False  # it ends in a reset: half a message was sent that could pass for a whole one, or nobody reads it
        self.sent = False  # a byte of the current response has left
        self._wire = wire
        self._tls = tls
        self._stream: PeerStream | SecureStream = wire if tls is None else tls
        self._scope = trio.CancelScope()
        self._served = False
        self._vital = vital
        self._answers_late = False  # when the deadline passes: 408, or a silent close
        self._timed_out = False
        self._cycle: ConnectionCycle | None = None  # the request in progress, or the one before
        self._last_word: Callable[[], Awaitable[None]] | None = None  # of one that was cut off
        self._writing = False
        self._size = 0  # of what is being written, if that takes several pieces
        self._lot: trio.lowlevel.ParkingLot | None = None
        self._kind: Hashable = None if proxied else (self.scheme, server and server[0])

    async def run(self) -> None:
        try:
            with self._scope:
                await self._serve()
            if self._timed_out and self._answers_late and not (self.sent or self.gone or self._vital):
                self._scope = trio.CancelScope()
                with self._scope:
                    await self._refuse(RequestRefused(408, "the request took too long to arrive"))
            elif self._last_word is not None and not self.gone:
                self._scope = trio.CancelScope()
                with self._scope:
                    await self._last_word()
        except Exception:
            self._crashed()
        except BaseExceptionGroup as group:
            # What an application raised while it was being cancelled is ours to report; the cancellation is not ours to keep.
            rest = group.split(trio.Cancelled)[1]
            if rest is not None and not isinstance(rest, Exception):
                raise
            if rest is not None:
                self._crashed(rest)
            raise cast("BaseExceptionGroup[BaseException]", group.split(trio.Cancelled)[0]) from None
        finally:
            if self._cycle is not None:
                self._cycle.last_word = None  # which leads back to it
            if self.cut:
                self._wire.abort()
            else:
                self._wire.close()
            if self.at_end is not None:
                self.at_end()

    def check(self, now: float) -> None:
        """Answer the reaper's question, once a tick: is this connection too late with what it owes?"""
        if self.deadline <= now:
            self.deadline = math.inf
            self._timed_out = True
            self.serving.counters.late += 1
            self._scope.cancel()
        elif self._wire.overdue(now, self.serving.limits, self._size):
            self.give_up()

    def give_up(self) -> None:
        """Cut it off: its peer does not read what it is sent."""
        self.gone = self.cut = True
        self.serving.counters.stalled += 1
        self._scope.cancel()

    def begin_drain(self) -> None:
        """Close it without loss between requests; a request in progress is told, if it wants to know; a peer that owes something has
        a moment for it."""
        if self.idle:
            self._scope.cancel()
        elif self.at_drain is not None:
            self.at_drain()
        elif self.deadline < math.inf:
            self.deadline = min(self.deadline, self.serving.owed_by)

    def cut_off(self) -> None:
        """End the request in progress: the drain is over, and nobody waits for it. Its caller is told so, where there is a word for
        that."""
        if self._cycle is not None and self._cycle.last_word is not None:
            self._last_word = self._cycle.last_word
            self._scope.cancel()

    def abandon(self) -> None:
        self.gone = True
        self._scope.cancel()

    # -- what a cycle needs ------------------------------------------------------------------------------------

    def has_left(self) -> bool:
        """Say whether the peer is known to have closed its side, without waiting for it."""
        return self.gone or (not self.buffer and self._wire.has_left(quiet=self._tls is not None))

    def due_in(self, seconds: float, *, answer: bool = False) -> None:
        """Give the peer `seconds` from now on. `answer`: tell it so (408) when they are over, if nothing was sent yet."""
        self.deadline = trio.current_time() + seconds
        self._answers_late = answer

    def due_at(self, deadline: float, *, answer: bool) -> None:
        self.deadline = deadline
        self._answers_late = answer

    async def read(self) -> bytes:
        """Return the peer's next bytes; b"" when it will send no more."""
        try:
            return bytes(await self._stream.receive_some(READ_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.gone = True
            return b""

    async def write(self, data: bytes) -> None:
        """Send all of it, or raise `Disconnected`. Cut short by cancellation it leaves half a message, so nothing may follow."""
        while self._writing:  # an interim response and a final one may come from two tasks of the application
            self._lot = self._lot or trio.lowlevel.ParkingLot()
            await self._lot.park()
        if self.gone:
            raise Disconnected("the peer is gone")
        self._writing = True
        try:
            piece = self.serving.limits.write_piece_bytes
            if len(data) <= piece:
                await self._stream.send_all(data)
            else:
                self._size = len(data)
                self.serving.unsent.add(self, len(data))
                view = memoryview(data)
                for start in range(0, len(data), piece):
                    await self._stream.send_all(view[start : start + piece])
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.gone = self.cut = True
            raise Disconnected("the peer is gone") from error
        except BaseException:
            self.gone = self.cut = True
            raise
        finally:
            self._writing = False
            if self._size:
                self._size = 0
                self.serving.unsent.remove(self)
            if self._lot is not None:
                self._lot.unpark()

    # -- lifecycle -------------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Serve in one loop, not in several functions: a task that waits for the peer here is woken for every request."""
        serving = self.serving
        known = serving.heads.known
        limits = serving.limits
        for_head = limits.vital_seconds if self._vital else limits.head_seconds
        for_handshake = limits.vital_seconds if self._vital else limits.handshake_seconds
        if self._tls is not None:
            self.due_in(for_handshake)
            self.idle = True
            try:
                await self._tls.do_handshake()
            except trio.BrokenResourceError:
                return
            self.idle = False
        self.due_in(for_head)
        try:
            while True:
                self.sent = False
                if self.buffer:
                    await trio.lowlevel.checkpoint()  # a peer that pipelines takes turns with the others
                elif serving.closing:
                    break
                else:
                    if self._served:
                        self.deadline = serving.now + serving.limits.idle_seconds
                        self._answers_late = False
                    self.idle = True
                    try:
                        self.buffer = bytes(await self._stream.receive_some(READ_BYTES))
                    except (trio.BrokenResourceError, trio.ClosedResourceError):
                        self.gone = True
                    self.idle = False
                    if not self.buffer:
                        break
                if self.buffer.startswith(_BLANK_LINE):
                    self._skip_blank_line()
                end = self.buffer.find(_HEAD_END)
                if end < 0:
                    end = await self._rest_of_head()
                    if end < 0:
                        break
                self.deadline = math.inf
                if self.when_heard_of is not None:
                    heard_of, self.when_heard_of = self.when_heard_of, None
                    heard_of()
                raw, self.buffer = self.buffer[: end + 4], self.buffer[end + 4 :]
                head = known.get(raw) or serving.heads.read(raw)
                if self._vital:
                    await self._answer_vital(head)
                    break
                handler: Handler | None = head.handlers.get(self._kind)
                cycle = self._cycle = ConnectionCycle(self, head, handler or self._find_handler(head))
                alive = await cycle.run()
                self.at_drain = cycle.last_word = None
                if not alive:
                    if cycle.peer_may_be_sending and not self.gone:
                        await self._linger()
                    break
                self._served = True
        except RequestRefused as refusal:
            if not self.sent:
                await self._refuse(refusal)
        if self._tls is not None and not self.gone:
            self.due_in(min(for_handshake, serving.limits.handshake_seconds))  # shorter while it drains
            with contextlib.suppress(trio.BrokenResourceError):
                await self._tls.aclose()

    async def _answer_vital(self, head: Head) -> None:
        """Give one short answer, in the time that there is for it; nothing more is read of a peer that goes on sending."""
        if head.path not in self.serving.vital_paths:
            self.serving.counters.over_cap += 1
            with contextlib.suppress(Disconnected):
                await self.write(response.refusal(503, "too many connections"))
            return
        self.due_in(self.serving.limits.vital_seconds)
        await ConnectionCycle(self, head, self._find_handler(head)).run()

    def _find_handler(self, head: Head) -> Handler:
        try:
            handler = self.serving.resolve(scope_of(head, self))
        except Exception as error:
            self.serving.counters.crashed += 1
            self.serving.log.error("http.app_failed", exc_info=error)
            raise RequestRefused(500, "internal error") from error
        if self._kind is not None:
            head.handlers[self._kind] = handler
        return handler

    async def _rest_of_head(self) -> int:
        """Return where the head in the buffer ends, or -1 if the peer left before that."""
        limits = self.serving.limits
        if self._served:
            self.due_in(limits.head_seconds)
        self._answers_late = True
        while True:
            refuse_unfinished(self.buffer, limits)
            searched = max(0, len(self.buffer) - 5)  # 3 of the mark sought, 2 of a line skipped
            data = await self.read()
            if not data:
                return -1
            self.buffer += data
            self._skip_blank_line()
            end = self.buffer.find(b"\r\n\r\n", searched)
            if end >= 0:
                return end

    def _skip_blank_line(self) -> None:
        """Skip a blank line, with which some clients end a body (RFC 9112 §2.2)."""
        if self.buffer.startswith(b"\r\n"):
            self.buffer = self.buffer[2:]

    async def _refuse(self, refusal: RequestRefused) -> None:
        self.serving.counters.refused += 1
        self.serving.log.debug(
            "http.refused", status=refusal.status, reason=refusal.reason, ip=self.client and self.client[0]
        )
        self.due_in(self.serving.limits.linger_seconds)
        try:
            await self.write(response.refusal(refusal.status, refusal.reason))
        except Disconnected:
            return
        if not self._vital:
            await self._linger()

    async def _linger(self) -> None:
        """Say that no more will come, then read on until the peer has had its answer (RFC 9112 §9.6). Closing at once would reset
        the connection, and the reset would overtake the answer."""
        limits = self.serving.limits
        self.due_in(limits.linger_seconds)
        self.buffer = b""
        await self._wire.send_eof()
        left = limits.linger_bytes
        while left > 0:
            try:
                data = await self._wire.receive_some(READ_BYTES)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                break
            left -= len(data)
        self.gone = True

    def _crashed(self, error: BaseException | None = None) -> None:
        self.serving.counters.crashed += 1
        self.serving.log.error("http.connection_failed", exc_info=error or True)
