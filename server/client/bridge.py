"""The bridge: JSON-RPC lines from a client on one side, streamable HTTP to a server on the other, message by message.

Each message goes the way of its own era (bridge_modern.py, bridge_session.py), so a client may probe with one and go on with the other.
Nothing is changed on the way that need not be. Here is what both share: reading, writing, payment, who waits for an answer,
and the end. Descriptors are in stdio_lines.py, HTTP in carrier.py, logging in in login_on_demand.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
import trio

from server.client.bridge_messages import (
    INVALID_REQUEST,
    PARSE_ERROR,
    BridgedNotice,
    BridgedRequest,
    BridgeRefusal,
    Id,
    error_answer,
    failures,
    is_id,
    read_message,
    with_hint,
)
from server.client.bridge_modern import ModernSide
from server.client.bridge_relay import BridgeWire, Patience
from server.client.bridge_session import SessionSide
from server.client.carrier import Carrier
from server.client.client_errors import BadAnswer, ClientError, NotLoggedIn
from server.client.login_on_demand import Door
from server.client.stdio_lines import MAX_LINE, Read, TooLong, Write, read_lines

if TYPE_CHECKING:
    from server.client.bridge_paying import Purse

# Requests at the server at once, subscriptions among them: fewer than the HTTP client's hundred connections, because
# notifications, the GET stream and logins need some too.
MAX_RUNNING = 64
# Further ones wait here. Beyond them a request is refused, and reading goes on: an answer that a running call waits for
# may be the next line.
MAX_WAITING = 256
MAX_HELD_BYTES = 64 * 1024 * 1024
# Notifications and answers on their way to the server, in order. When they are stuck, reading stops.
OUTBOX = 64

Key = tuple[bool, Id]
_Told = tuple[BridgedNotice, trio.Event | None]  # and the handshake that must be over before it


class _Held(msgspec.Struct, eq=False):
    """A request that has no answer yet."""

    asking: BridgedRequest
    after: int  # how many notifications and answers the server must have seen before it
    opening: trio.Event | None  # the handshake that must be over before it
    scope: trio.CancelScope = msgspec.field(default_factory=trio.CancelScope)
    sent: bool = False
    opened: trio.Event | None = None  # of a handshake: it is over


class Bridge:
    """The bridge between one client and one server."""

    def __init__(
        self,
        carrier: Carrier,
        door: Door,
        *,
        say: Callable[[str], None],
        spelled: Callable[[str], str] = str,
        patience: Patience | None = None,
        max_line: int = MAX_LINE,
        sleep: Callable[[float], Awaitable[object]] = trio.sleep,
        purse: Purse | None = None,
    ) -> None:
        """Keep the parts. Without `purse` a price goes to the client as it came. `spelled`: a text with our commands as they have to be typed here."""
        self._door = door
        self._say_line = say
        self._spelled = spelled
        self._said = ""
        self._patience = patience or Patience()
        self._max_line = max_line
        self._lines, self._written = trio.open_memory_channel[bytes](0)
        self._carrier = carrier
        self._purse = purse
        wire = BridgeWire(carrier, self._patience)
        self._modern = ModernSide(wire, self._lines.send)
        self._session = SessionSide(wire, self._lines.send, say=self._say, sleep=sleep)
        self._held: dict[Key, _Held] = {}
        self._held_bytes = 0
        self._slots = trio.Semaphore(MAX_RUNNING)
        self._quiet = trio.Event()  # after the end of stdin: nobody waits any more
        self._outbox, self._outgoing = trio.open_memory_channel[_Told](OUTBOX)
        self._opening: trio.Event | None = None  # the last handshake that the client began
        self._told = 0  # put into the outbox
        self._delivered = 0  # taken out of it and dealt with
        self._delivery = trio.lowlevel.ParkingLot()

    async def run(self, read: Read, write: Write) -> None:
        """Run until the end of what `read` gives. Raises what `read` and `write` raise; may be cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_out, write)
                nursery.start_soon(self._door.run)
                nursery.start_soon(self._deliver)
                nursery.start_soon(self._session.run)
                async with trio.open_nursery() as requests:
                    await self._read_in(read, requests)
                    await self._drain()
                    requests.cancel_scope.cancel()
                # The writer takes a line only when the one before is out.
                with trio.move_on_after(self._patience.farewell_seconds):
                    await self._lines.send(b"")
                nursery.cancel_scope.cancel()
        finally:
            await self._session.end()

    # ---- lines in ----------------------------------------------------------------------------------------------------

    async def _read_in(self, read: Read, nursery: trio.Nursery) -> None:
        """Read lines. `nursery` holds the requests, which go on while the next line is read."""
        async with aclosing(read_lines(read, limit=self._max_line)) as lines:
            async for line in lines:
                if isinstance(line, TooLong):
                    text = f"this line is longer than {self._max_line} bytes and was not read"
                    await self._lines.send(error_answer(None, PARSE_ERROR, text))
                elif line.strip():
                    await self._take(line, nursery)

    async def _take(self, line: bytes, nursery: trio.Nursery) -> None:
        message = read_message(line)
        if isinstance(message, BridgeRefusal):
            await self._lines.send(message.answer)
        elif isinstance(message, BridgedRequest):
            problem = self._hold(message, nursery)
            if problem is not None:
                for request_id in message.ids:
                    await self._lines.send(error_answer(request_id, INVALID_REQUEST, problem))
        elif message.method == "notifications/cancelled":
            await self._cancel(message)
        else:
            await self._tell(message)

    def _hold(self, asking: BridgedRequest, nursery: trio.Nursery) -> str | None:
        keys = [_key(request_id) for request_id in asking.ids]
        if any(key in self._held for key in keys) or len(set(keys)) != len(keys):
            return "a request with this id is still running"
        full = len(self._held) >= MAX_RUNNING + MAX_WAITING
        if full or self._held_bytes + len(asking.line) > MAX_HELD_BYTES:
            return "too many requests at once; wait for answers first"
        held = _Held(asking, self._told, self._opening)
        if asking.method == "initialize" and not asking.modern:
            self._opening = held.opened = trio.Event()
        self._held |= dict.fromkeys(keys, held)
        self._held_bytes += len(asking.line)
        nursery.start_soon(self._serve, held)
        return None

    async def _cancel(self, telling: BridgedNotice) -> None:
        """End a request here and now. An older server must be told; a newer one sees its stream close."""
        request_id = telling.params.get("requestId")
        held = self._held.get(_key(request_id)) if is_id(request_id) else None
        if held is not None and not held.asking.batch:
            held.scope.cancel()
            if held.asking.modern or not held.sent:
                return
        elif telling.modern or not self._session.begun:
            return  # answered already, or never asked
        await self._tell(telling)

    async def _tell(self, telling: BridgedNotice) -> None:
        self._told += 1
        # An answer may be to a question that came before the handshake was over.
        await self._outbox.send((telling, self._opening if telling.method else None))

    # ---- to the server -----------------------------------------------------------------------------------------------

    async def _serve(self, held: _Held) -> None:
        asking = held.asking
        try:
            with held.scope:
                try:
                    await self._ask(held)
                except ClientError as error:
                    if isinstance(error, NotLoggedIn):
                        self._say(
                            with_hint(error)
                        )  # not every client shows what it is answered to its first request
                    await self._fail(asking, error)
                except (
                    Exception
                ) as error:  # a bug of ours must not leave the client waiting, nor end other calls
                    self._say(f"internal error: {type(error).__name__}; this is a bug")
                    bug = BadAnswer("internal error of the bridge", hint="its stderr says more")
                    await self._fail(asking, bug)
        finally:
            for request_id in asking.ids:
                self._held.pop(_key(request_id), None)
            self._held_bytes -= len(asking.line)
            if held.opened is not None:
                held.opened.set()
            if not self._held:
                self._quiet.set()

    async def _ask(self, held: _Held) -> None:
        async with self._slots:
            side = self._modern if held.asking.modern else self._session
            if side is self._session:
                while self._delivered < held.after:
                    await self._delivery.park()
                if held.opening is not None:
                    await held.opening.wait()
            held.sent = True
            with self._carrier.told():
                purchase = None if self._purse is None else await self._purse.purchase(held.asking)
                if purchase is None:
                    await side.ask(held.asking)
                    return
                await side.ask(purchase.turn(), purchase.revise)
                while purchase.again:
                    await side.ask(purchase.turn(), purchase.revise)

    async def _deliver(self) -> None:
        """Send notifications and answers to the server, one after the other."""
        async for telling, opening in self._outgoing:
            try:
                if opening is not None:
                    await opening.wait()
                with self._carrier.told():
                    await (self._modern if telling.modern else self._session).tell(telling)
            except ClientError as error:
                self._say(f"{telling.method or 'an answer'} did not reach the server: {with_hint(error)}")
            finally:
                self._delivered += 1
                self._delivery.unpark_all()

    # ---- lines out, and the end --------------------------------------------------------------------------------------

    async def _write_out(self, write: Write) -> None:
        """Write lines, as nobody else does. Meanwhile everybody who has something to write waits."""
        async for line in self._written:
            if line:
                await write(line)

    async def _drain(self) -> None:
        """Wait until the requests that run are answered. Subscriptions have no end of their own."""
        for held in list(self._held.values()):
            if held.asking.listening:
                held.scope.cancel()
        with trio.move_on_after(self._patience.drain_seconds):
            while self._delivered < self._told:
                await self._delivery.park()
            while self._held:
                self._quiet = trio.Event()
                await self._quiet.wait()
        ended = BadAnswer("the bridge ended before the answer came", hint="leave its stdin open until then")
        with trio.move_on_after(self._patience.farewell_seconds):
            for held in set(self._held.values()):
                held.scope.cancel()
                if not held.asking.listening:
                    await self._fail(held.asking, ended)

    async def _fail(self, asking: BridgedRequest, error: ClientError) -> None:
        if asking.left:
            await self._lines.send(failures(asking, error, self._spelled))

    def _say(self, text: str) -> None:
        """Tell a person, who may not be reading; a line that repeats the last one is left out."""
        if text != self._said:
            self._said = text
            self._say_line(text)


def _key(request_id: Id) -> Key:
    return isinstance(request_id, str), request_id
