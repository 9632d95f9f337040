"""A network between a server and its database: each way takes so long, and the times somebody waited for an answer are counted."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

PIECE: Final = 256 * 1024


class Distance:
    """Connections to `port` go on to the database. A trip is a question and its answer: a client that sends something after it was
    sent something."""

    def __init__(self, target: tuple[str, int], seconds: float) -> None:
        self._target = target
        self.seconds = seconds  # there and back
        self.trips = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: Final = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                asked = _Asked()
                for source, target, forth in ((client, server, True), (server, client, False)):
                    threading.Thread(
                        target=self._carry, args=(source, target, asked, forth), daemon=True
                    ).start()

    def _carry(self, source: socket.socket, target: socket.socket, asked: _Asked, forth: bool) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE):
                if forth and asked.answered:
                    asked.answered = False
                    self.trips += 1
                elif not forth:
                    asked.answered = True
                if self.seconds:
                    time.sleep(self.seconds / 2)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


class _Asked:
    """Of one connection: whether the last that was carried came from the database."""

    answered = True


@contextmanager
def distance(target: tuple[str, int], seconds: float = 0.0) -> Generator[Distance]:
    found = Distance(target, seconds)
    try:
        yield found
    finally:
        found.close()
