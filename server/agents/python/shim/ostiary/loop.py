"""The loop: reads what the server wants, runs the calls, and stops cleanly. It is asyncio's, and the author's async
functions run on it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from .call import Call
from .caller import States
from .failures import event_of, log
from .lifespans import Lifespans
from .pipe import Incoming, LineTooLong, Outgoing, decoded, encoded
from .registry import Registry, current
from .workers import Workers

Json = dict[str, Any]

# For `finally` blocks of what is cancelled at the end. The server waits longer before it kills.
GRACE_SECONDS = 2.0
FLUSH_SECONDS = 1.0
# From the same moment, for what the file has open (`@lifespan`): before the process is ended by whoever waits for it.
CLOSED_SECONDS = 3.0


class Loop:
    def __init__(self, registry: Registry, threads: int, files: Callable[[], list[str]]) -> None:
        self.registry = registry
        self.workers = Workers(threads)
        self.states = States()
        self.lifespans = Lifespans(registry.lifespans)
        self.thread = threading.get_ident()
        self._files = files
        self._calls: dict[int, Call] = {}
        self._ending = threading.Lock()
        self._catalog_is_due = False
        # What other threads want told. It is taken off once that is done: until then, no answer overtakes it.
        self._due: deque[Callable[[], None]] = deque()

    async def run(
        self,
        receive: int,
        send: int,
        started: Callable[[Callable[[], None]], None],
        stopping: Callable[[], None],
        ready: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        """Until the server says stop or goes away. `started` is lent a function that stops it, from any thread;
        `stopping` is called before those who still run are cancelled. `ready` is told when what the file opens is open, or why it
        is not, and may raise."""
        current.set(self.registry)
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._incoming = Incoming(receive)
        self._outgoing = Outgoing(self.loop, send, partial(self.soon, self._stopping.set))
        self.registry.changed = lambda: self._now(self._changed)
        self.registry.updated = lambda uri: self._now(partial(self._updated, str(uri)))
        started(partial(self.soon, self._stopping.set))
        if ready is not None:
            await self._open(ready)
        self.loop.add_reader(receive, self._read)
        try:
            await self._stopping.wait()
        finally:
            stopping()
            ends_at = self.loop.time() + CLOSED_SECONDS
            self.loop.remove_reader(receive)
            await self._end()
            if ready is not None:
                await self.lifespans.close(ends_at - self.loop.time())
            self.registry.changed = self.registry.updated = None
            self._outgoing.close(FLUSH_SECONDS)

    async def _open(self, ready: Callable[[BaseException | None], None]) -> None:
        try:
            await self.lifespans.open()
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            ready(error)
        else:
            ready(None)

    def send(self, event: Json) -> None:
        """Raises `ValueError` at an event that cannot be sent."""
        self._outgoing.write(encoded(event))

    async def drain(self) -> None:
        await self._outgoing.drain()

    async def _end(self) -> None:
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        tasks = [call.task for call in calls if call.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)

    def _now(self, action: Callable[[], None]) -> None:
        """In the loop's thread: at once if this is it, so that what an async function does is told before its answer."""
        if threading.get_ident() == self.thread:
            action()
        else:
            self._due.append(action)
            self.soon(self._catch_up)

    def _catch_up(self) -> None:
        while self._due:
            try:
                self._due[0]()
            finally:
                self._due.popleft()

    def soon(self, action: Callable[[], None]) -> None:
        """From any thread or signal handler. Nothing, once the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(action)

    def _read(self) -> None:
        try:
            lines = self._incoming.read()
            if lines is None:
                self._stopping.set()
                return
            for line in lines:
                self._handle(decoded(line))
        except (ValueError, KeyError, LineTooLong) as error:
            # Not a fault of any call: the two sides do not speak the same language.
            log(error)
            self._stopping.set()

    def _handle(self, message: Json) -> None:
        do = message["do"]
        if do == "call":
            call = Call(message, self)
            self._calls[call.id] = call
            # What it sets there is its own.
            contextvars.copy_context().run(call.start)
        elif do == "ping":
            stuck, seconds = self.workers.stuck()
            self.send({"event": "pong", "stuck": stuck, "stuck_seconds": seconds})
        elif do == "stop":
            self._stopping.set()
        else:
            running = self._calls.get(message["id"])
            if running is None:  # it has ended in the meantime
                return
            if do == "cancel":
                running.cancel()
            else:
                running.reply(message)

    def finish(self, call: Call, event: Json) -> None:
        if call.over:
            return
        if threading.get_ident() == self.thread:
            if self._catalog_is_due:
                self._send_catalog()  # whoever has this answer will list again
        else:
            self._outgoing.wait_for_room()  # before it is encoded; meanwhile this thread makes no other answer
            if self._due or self._catalog_is_due:
                # What its function has done to the lists is told first, and the loop tells it.
                self.soon(partial(self.finish, call, event))
                return
        try:
            line = encoded({**event, "id": call.id})
        except (ValueError, TypeError, RecursionError) as error:
            line = encoded({**event_of(error, call.kind, call_id=call.call_id), "id": call.id})
        with self._ending:
            if call.over:
                return
            call.over = True
        self._outgoing.write(line)
        self._calls.pop(call.id, None)

    def _updated(self, uri: str) -> None:
        self.send({"event": "updated", "uri": uri})

    def _changed(self) -> None:
        if not self._catalog_is_due:
            self._catalog_is_due = True
            self.loop.call_soon(self._send_catalog)

    def _send_catalog(self) -> None:
        if not self._catalog_is_due:
            return
        try:
            self.send({"event": "catalog", "catalog": self.registry.catalog(), "files": self._files()})
        except ValueError as error:
            log(error)
        finally:
            self._catalog_is_due = False  # now, so that no thread's answer overtakes it
