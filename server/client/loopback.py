"""The place on this machine to which a browser brings the answer of a login (RFC 8252 §7.3): one address, one question,
gone when it is answered. What an answer means is decided in browser_login.py.

Everybody on this machine can call here, and any page in a browser can make it be called. So only the path and the name
that we chose are heard, whatever does not belong to the login is turned away, and the wait goes on.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final

import trio

from server.client import callback_page
from server.client.background_task import beside
from server.client.browser_login import StrangeCallback
from server.client.callback_page import ARRIVED, NOT_HERE, NOT_OURS, CallbackPage
from server.client.client_errors import ClientError
from server.lib.secret import Secret

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
# A code of a few kilobytes in the request line, and a browser's cookies for other ports of this machine.
MAX_REQUEST: Final = 64 * 1024
REQUEST_SECONDS: Final = 10.0
MAX_AT_ONCE: Final = 16
FAREWELL_SECONDS: Final = 2.0

# How long a browser waits for what became of its answer, which the terminal still has to redeem.
OUTCOME_SECONDS: Final = 6.0


class Callback:
    """`read` turns the query of a call into the answer, raises `StrangeCallback` to go on waiting, or a `ClientError` to end it."""

    def __init__(self, port: int) -> None:
        self.redirect_uri = f"http://{HOST}:{port}{PATH}"
        self._names = (f"{HOST}:{port}", f"localhost:{port}")
        self._heard = trio.Event()
        self._told = trio.Event()
        self._ended = trio.Event()
        self._outcome = ARRIVED
        self._answer: list[Secret] = []
        self._error: ClientError | None = None
        self._read: Callable[[str], Secret] | None = None
        self._host = ""

    def expect(self, read: Callable[[str], Secret], host: str) -> None:
        """From now on calls are answers, about a login at `host`. Whatever came before belonged to nothing."""
        self._read, self._host = read, host

    async def answer(self) -> Secret:
        await self._heard.wait()
        if self._error is not None:
            raise self._error
        return self._answer[0]

    @contextmanager
    def redeeming(self, name: str) -> Generator[None, None, None]:
        """What is done with the answer: the page says how that ended. `name`: of the server that one is logged in to then."""
        self._outcome = callback_page.refused("", self._host)
        try:
            yield
            self._outcome = callback_page.logged_in(name, self._host)
        except ClientError as error:
            self._outcome = callback_page.refused(str(error), self._host)
            raise
        finally:
            self._ended.set()

    async def farewell(self) -> None:
        """The page that says how it ended may still be on its way to the browser."""
        if self._heard.is_set():
            with trio.move_on_after(FAREWELL_SECONDS):
                await self._told.wait()

    def take_pasted(self, query: str) -> str:
        _, page = self.take(query)
        if self._heard.is_set():
            self._told.set()
        return page.title

    def take(self, query: str) -> tuple[int, CallbackPage]:
        """An answer, from the browser or pasted by a person: what to say to whoever brought it. Only the first counts."""
        if self._read is None or self._heard.is_set():
            return 400, NOT_OURS
        try:
            self._answer.append(self._read(query))
        except StrangeCallback:
            return 400, NOT_OURS
        except ClientError as error:
            self._error = error
        self._heard.set()
        return 200, ARRIVED if self._error is None else callback_page.refused(str(self._error), self._host)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection, one request. Nothing that a caller sends can end the wait but an answer."""
        with trio.move_on_after(REQUEST_SECONDS):
            try:
                async with stream:
                    status, page = self._judge(await _head(stream))
                    if page is ARRIVED:
                        with trio.move_on_after(OUTCOME_SECONDS):
                            await self._ended.wait()
                            page = self._outcome
                    await stream.send_all(_response(status, page))
                    if status == 200:
                        self._told.set()
                    await stream.send_eof()
                    # Until the browser has read it: closing with unread bytes would reset the connection.
                    while await stream.receive_some(4096):
                        continue
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    def _judge(self, head: bytes | None) -> tuple[int, CallbackPage]:
        lines = (head or b"").decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target, _, version = rest.partition(" ")
        fields = [line.partition(":") for line in lines[1:]]
        hosts = [value.strip().lower() for name, _, value in fields if name.strip().lower() == "host"]
        if not version.startswith("HTTP/1."):
            return 400, NOT_HERE
        if len(hosts) != 1 or hosts[0] not in self._names:  # a page that gave its own name our address
            return 403, NOT_HERE
        path, _, query = target.partition("?")
        if path != PATH:
            return 404, NOT_HERE
        if method != "GET":
            return 405, NOT_HERE
        return self.take(query)


@asynccontextmanager
async def listening(listener: trio.SocketListener) -> AsyncGenerator[Callback, None]:
    """Until the block ends; the listener is closed with it."""
    callback = Callback(listener.socket.getsockname()[1])
    room = trio.Semaphore(MAX_AT_ONCE)

    async def bounded(stream: trio.SocketStream) -> None:
        async with room:
            await callback.serve(stream)

    async with listener, beside(partial(trio.serve_listeners, bounded, [listener])):
        try:
            yield callback
        finally:
            await callback.farewell()


async def listen(port: int = 0) -> trio.SocketListener:
    """On a port of our choice, or any. Raises `OSError` where it is taken."""
    sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # The port of the last login, whose connections may still be fading away.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        await sock.bind((HOST, port))
        sock.listen(MAX_AT_ONCE)
    except OSError:
        sock.close()
        raise
    return trio.SocketListener(sock)


async def _head(stream: trio.SocketStream) -> bytes | None:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = await stream.receive_some(8192)
        if not piece or len(received) + len(piece) > MAX_REQUEST:
            return None
        received += piece
    return received.partition(b"\r\n\r\n")[0]


def _response(status: int, page: CallbackPage) -> bytes:
    body = callback_page.html(page)
    reason = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
    fields = [
        f"HTTP/1.1 {status} {reason[status]}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY",
        f"Content-Security-Policy: {callback_page.policy()}",
        "Connection: close",
        *(["Allow: GET"] if status == 405 else []),
    ]
    return "\r\n".join(fields).encode() + b"\r\n\r\n" + body
