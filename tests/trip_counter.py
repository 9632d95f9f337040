"""Between a client and PostgreSQL: what is asked in each trip. On a socket of its own, beside which nothing is changed.

A trip is all that goes to the server before the client wants an answer: in the protocol, up to a Sync or a Query.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

SYNC, QUERY, PARSE, BIND = b"SQPB"
READY = ord("Z")
ENDS = ("ROLLBACK",)


class TripCounter:
    def __init__(self, folder: Path, server: Path) -> None:
        self.connections: list[Asked] = []
        self.parameters: Mapping[str, str] = {"host": str(folder)}
        self._server = str(server / ".s.PGSQL.5432")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / ".s.PGSQL.5432"))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def of(self, role: str) -> Asked:
        """The connection that says of itself that it is this one."""
        (found,) = (asked for asked in self.connections if asked.says(f"'ostiary {role}'"))
        return found

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                asked = Asked()
                self.connections.append(asked)
                threading.Thread(target=asked.carry_forth, args=(client, server), daemon=True).start()
                threading.Thread(target=asked.carry_back, args=(server, client), daemon=True).start()


class Asked:
    """Of one connection. What only ends a transaction gets its answer when something more is asked: whoever waited for it would wait for
    ever."""

    def __init__(self) -> None:
        self._trips: list[tuple[str, ...]] = []
        self._ended = False
        self._statements: list[str] = []
        self._names: dict[bytes, str] = {}
        self._all: set[str] = set()
        self._news = threading.Condition()

    @contextmanager
    def counting(self) -> Generator[list[tuple[str, ...]]]:
        """Filled at the end with the trips that somebody waited for meanwhile; each as what was asked in it."""
        found: list[tuple[str, ...]] = []
        with self._news:
            before = len(self._trips)
        yield found
        with self._news:
            found += [trip for trip in self._trips[before:] if trip != ENDS]

    def says(self, text: str) -> bool:
        return any(text in statement for statement in tuple(self._all))

    def carry_forth(self, client: socket.socket, server: socket.socket) -> None:
        data, begun = b"", False
        with suppress(OSError), client, server:
            while piece := client.recv(65536):
                data += piece
                # The first message has no kind.
                while len(data) >= 5 and len(data) >= (end := _length(data, begun) + begun):
                    if begun:
                        self._note(data[0], data[5:end])
                    data, begun = data[end:], True
                server.sendall(piece)
        with self._news:
            self._ended = True
            self._news.notify_all()

    def carry_back(self, server: socket.socket, client: socket.socket) -> None:
        data, answered = b"", -1  # the first is to who the client is
        with suppress(OSError), client, server:
            while piece := server.recv(65536):
                data += piece
                while len(data) >= 5 and len(data) >= (end := _length(data, True) + 1):
                    message, data = data[:end], data[end:]
                    if message[0] == READY:
                        self._hold(answered)
                        answered += 1
                    client.sendall(message)

    def _hold(self, trip: int) -> None:
        with self._news:
            if trip >= 0 and self._trips[trip] == ENDS:
                self._news.wait_for(lambda: self._ended or len(self._trips) > trip + 1)

    def _note(self, kind: int, body: bytes) -> None:
        if kind == PARSE:
            name, sql, _ = body.split(b"\0", 2)
            self._names[name] = sql.decode()
            self._all.add(sql.decode())
        elif kind == BIND:
            _, name, _ = body.split(b"\0", 2)
            self._statements.append(self._names[name])
        elif kind == QUERY:
            self._statements.append(body.rstrip(b"\0").decode())
        if kind in (SYNC, QUERY):
            with self._news:
                self._trips.append(tuple(self._statements))
                self._news.notify_all()
            self._statements.clear()


def _length(data: bytes, begun: bool) -> int:
    return int.from_bytes(data[begun : begun + 4], "big")


@contextmanager
def counted(folder: Path, server: Path) -> Generator[TripCounter]:
    """`folder`: for its socket; `server`: that of the other's."""
    with closing(TripCounter(folder, server)) as found:
        yield found
