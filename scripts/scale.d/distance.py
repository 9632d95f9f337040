"""A network between a server and its database: each way takes so long, and the times somebody waited for an answer are counted."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from typing import Final

PIECE: Final = 256 * 1024


class Distance:
    """In a process of its own, as the network is. Connections to `port` go on to the database. A trip is a question and its answer: a
    client that sends something after it was sent something."""

    def __init__(self, target: tuple[str, int], seconds: float) -> None:
        context = get_context("fork")
        self._trips = context.Value("q", 0)
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: Final = int(listener.getsockname()[1])
        self._process = context.Process(target=self._serve, args=(listener, target, seconds), daemon=True)
        self._process.start()
        listener.close()

    @property
    def trips(self) -> int:
        return self._trips.value

    def close(self) -> None:
        self._process.terminate()
        self._process.join()

    def _serve(self, listener: socket.socket, target: tuple[str, int], seconds: float) -> None:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        while True:
            client, _ = listener.accept()
            server = socket.create_connection(target)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asked = _Asked()
            for source, other, forth in ((client, server, True), (server, client, False)):
                carrying = (source, other, asked, forth, seconds / 2)
                threading.Thread(target=self._carry, args=carrying, daemon=True).start()

    def _carry(
        self, source: socket.socket, target: socket.socket, asked: _Asked, forth: bool, seconds: float
    ) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE):
                if forth and asked.answered:
                    asked.answered = False
                    with self._trips.get_lock():
                        self._trips.value += 1
                elif not forth:
                    asked.answered = True
                if seconds:
                    time.sleep(seconds)
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
