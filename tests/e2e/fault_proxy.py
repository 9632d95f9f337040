"""Stands between a client and a server and breaks what a network breaks: before the server, a facilitator or a shop hears of a request, or
after it did what was asked.

Each connection carries one exchange. What becomes of it is decided when its request has arrived, by the faults that wait (`next`), then by
`always`. Runs in a thread of its own, so that tests may wait for what it sees.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from urllib.parse import urlsplit

import trio
from programs import WAIT_SECONDS

GARBAGE = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{"succes:'
SECRET_WORDS = "connect ECONNREFUSED internal-node-7.example:8545"


class Fault(Enum):
    # The other side never hears of it.
    REFUSE = auto()  # the connection is closed
    HANG = auto()  # nothing is ever said
    FAIL = auto()  # 500, with words that are for nobody else
    # The other side has done it and said so.
    LOSE = auto()  # the connection is closed instead
    CUT = auto()  # its head comes and half of its body, then the end
    GATEWAY = auto()  # 504 comes instead
    GARBLE = auto()  # 200 comes, with half a JSON object
    HOLD = auto()  # the answer waits for `let_go`
    # Both connections end, while the other side is at it: when `hang_up` says so.
    DROP = auto()
    # Nothing is broken.
    PASS = auto()


BEFORE = (Fault.REFUSE, Fault.HANG, Fault.FAIL)


@dataclass(kw_only=True)
class Exchange:
    method: str
    path: str
    head: bytes
    body: bytes
    fault: Fault
    answer: bytes = b""  # of the other side, whole

    @property
    def status(self) -> int:
        return int(self.answer.split(b" ", 2)[1]) if self.answer else 0


Which = Callable[[Exchange], bool]


def to(path: str) -> Which:
    """Requests for this path."""
    return lambda exchange: exchange.path == path


def paying(exchange: Exchange) -> bool:
    """Requests that bring a payment, in a header or in what they say."""
    return bool(re.search(rb"(?im)^(x-payment|payment-signature):", exchange.head)) or (
        b'"x402/payment"' in exchange.body
    )


@dataclass(kw_only=True)
class FaultProxy:
    url: str
    target: str
    keeps_host: bool = False  # as a tunnel does, which changes nothing of what a request says
    _next: list[tuple[Which, Fault]] = field(default_factory=list[tuple[Which, Fault]])
    _always: list[tuple[Which, Fault]] = field(default_factory=list[tuple[Which, Fault]])
    _seen: list[Exchange] = field(default_factory=list[Exchange])
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _held: trio.Event = field(default_factory=trio.Event)
    _dropped: trio.Event = field(default_factory=trio.Event)
    token: trio.lowlevel.TrioToken

    def next(self, which: Which, *faults: Fault) -> None:
        """These happen to the next requests of the kind, one to each."""
        with self._changed:
            self._next += [(which, fault) for fault in faults]

    def always(self, which: Which, fault: Fault) -> None:
        with self._changed:
            self._always.append((which, fault))

    def heal(self) -> None:
        """From now on nothing is broken; what was held comes."""
        with self._changed:
            self._next.clear()
            self._always.clear()
        self.let_go()

    def let_go(self) -> None:
        """Answers that are held come now. Those of later requests are held again."""
        self.token.run_sync_soon(self._open)

    def hang_up(self) -> None:
        """Requests that are to be dropped are dropped now, whether or not the other side has done with them."""
        self.token.run_sync_soon(self._drop)

    def _open(self) -> None:
        self._held.set()
        self._held = trio.Event()

    def _drop(self) -> None:
        self._dropped.set()
        self._dropped = trio.Event()

    def seen(self, which: Which) -> list[Exchange]:
        with self._changed:
            return [exchange for exchange in self._seen if which(exchange)]

    def await_seen(self, which: Which, number: int = 1, *, answered: bool = False) -> list[Exchange]:
        """Waits for that many requests of the kind; with `answered`, until the other side has answered each."""
        found: list[Exchange] = []

        def enough() -> bool:
            found[:] = [one for one in self._seen if which(one) and (one.answer or not answered)]
            return len(found) >= number

        with self._changed:
            assert self._changed.wait_for(enough, WAIT_SECONDS), f"{len(found)} of {number} requests came"
        return found

    def _arrived(self, exchange: Exchange) -> None:
        with self._changed:
            exchange.fault = self._choose(exchange)
            self._seen.append(exchange)
            self._changed.notify_all()

    def _choose(self, exchange: Exchange) -> Fault:
        for waiting in self._next:
            if waiting[0](exchange):
                self._next.remove(waiting)
                return waiting[1]
        return next((fault for which, fault in self._always if which(exchange)), Fault.PASS)

    def _answered(self, exchange: Exchange, answer: bytes) -> None:
        with self._changed:
            exchange.answer = answer
            self._changed.notify_all()

    async def serve(self, client: trio.SocketStream) -> None:
        try:
            async with client:
                exchange = await read_request(client, self.target, keeps_host=self.keeps_host)
                if exchange is not None:
                    self._arrived(exchange)
                    await self._carry_out(exchange, client)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass  # either side may go as it likes

    async def _carry_out(self, exchange: Exchange, client: trio.SocketStream) -> None:
        held = self._held  # let go even before the other side has answered
        match exchange.fault:
            case Fault.REFUSE:
                return
            case Fault.HANG:
                await trio.sleep_forever()
            case Fault.FAIL:
                await client.send_all(plain(500, SECRET_WORDS))
                return
            case _:
                pass
        host, _, port = self.target.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as server:
            await server.send_all(exchange.head + exchange.body)
            if exchange.fault is Fault.DROP:
                await self._dropped.wait()
                return
            if exchange.fault is Fault.PASS:
                await self._relay(exchange, server, client)
                return
            answer = b"".join([bytes(data) async for data in server])
        self._answered(exchange, answer)
        match exchange.fault:
            case Fault.CUT:
                head, _, body = answer.partition(b"\r\n\r\n")
                await client.send_all(head + b"\r\n\r\n" + body[: len(body) // 2])
            case Fault.GATEWAY:
                await client.send_all(plain(504, f"<html>upstream timed out: {SECRET_WORDS}</html>"))
            case Fault.GARBLE:
                await client.send_all(GARBAGE)
            case Fault.HOLD:
                await held.wait()
                await client.send_all(answer)
            case _:
                pass

    async def _relay(self, exchange: Exchange, server: trio.SocketStream, client: trio.SocketStream) -> None:
        """Piece by piece, because an answer may be a stream."""
        pieces: list[bytes] = []

        async def watch() -> None:
            """A client that leaves takes its request with it."""
            while await client.receive_some(65536):
                pass
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            async for data in server:
                pieces.append(bytes(data))
                await client.send_all(data)
            nursery.cancel_scope.cancel()
        self._answered(exchange, b"".join(pieces))


def plain(status: int, words: str) -> bytes:
    body = words.encode()
    return b"HTTP/1.1 %d So\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
        status, len(body), body,
    )  # fmt: skip


async def read_request(client: trio.SocketStream, target: str, *, keeps_host: bool) -> Exchange | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = await client.receive_some(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    while len(body) < (int(length[1]) if length else 0):
        piece = await client.receive_some(65536)
        if not piece:
            return None
        body += piece
    method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    # The other side closes when it has answered, which is how the end of an answer is known here.
    kept = re.sub(rb"(?im)^(connection|keep-alive|host):.*\r\n", b"", head + b"\r\n")
    host = (
        found[1].decode() if keeps_host and (found := re.search(rb"(?im)^host: *([^\r]+)", head)) else target
    )
    head = kept + f"Host: {host}\r\nConnection: close\r\n\r\n".encode()
    return Exchange(method=method, path=path, head=head, body=body, fault=Fault.PASS)


@contextmanager
def fault_proxy(url: str, *, keeps_host: bool = False, port: int = 0) -> Generator[FaultProxy]:
    """One in front of the server at `url`, which is without a path. `port` 0: any that is free."""
    started: list[tuple[FaultProxy, trio.CancelScope]] = []
    ready = threading.Event()

    async def run() -> None:
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        proxy = FaultProxy(
            url=f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}",
            target=urlsplit(url).netloc,
            keeps_host=keeps_host,
            token=trio.lowlevel.current_trio_token(),
        )
        with trio.CancelScope() as scope:
            started.append((proxy, scope))
            ready.set()
            await trio.serve_listeners(proxy.serve, listeners)

    thread = threading.Thread(target=trio.run, args=(run,), name="fault proxy")
    thread.start()
    assert ready.wait(WAIT_SECONDS)
    ((proxy, scope),) = started
    try:
        yield proxy
    finally:
        proxy.token.run_sync_soon(scope.cancel)
        thread.join(WAIT_SECONDS)
