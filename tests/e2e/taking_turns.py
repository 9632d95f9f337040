"""A load balancer at its simplest: every request, whoever sends it, goes to the next of several servers."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

_END = b"\r\n\r\n"


class TakingTurns:
    """Each request has a connection of its own, because both ends are told that it will be closed. Threads of its own; `close` ends them."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.port = 0
        self.turns = [0 for _ in ports]  # requests that each was given
        self._next = itertools.cycle(enumerate(ports))
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        self._ends: set[socket.socket] = set()

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            head = b""
            while _END not in head:
                data = client.recv(65536)
                if not data:
                    return
                head += data
            with self._lock:
                place, port = next(self._next)
                self.turns[place] += 1
            with socket.create_connection(("127.0.0.1", port)) as server:
                self._ends |= {client, server}
                try:
                    server.sendall(_closing(head))
                    back = threading.Thread(target=_pass_on, args=(client, server), daemon=True)
                    back.start()
                    _pass_on(server, client)
                finally:
                    self._ends -= {client, server}


def _closing(head: bytes) -> bytes:
    first, _, rest = head.partition(b"\r\n")
    fields, _, body = rest.partition(_END)
    kept = [line for line in fields.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([first, *kept, b"connection: close"]) + _END + body


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    """Until either end has had enough, which the other is told."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
