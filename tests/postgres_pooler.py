"""What stands between a client and PostgreSQL and shares connections out, as far as a client can see that."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from tests.postgres_server import PostgresServer


class Pooler:
    """Stands between, on a socket of its own, and says that it is another process than the one that answers."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self._to = str(server.folder / ".s.PGSQL.5432")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / ".s.PGSQL.5432"))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._to)
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError), one, other:
            while data := one.recv(65536):
                other.sendall(re.sub(rb"(?s)K\0\0\0\x0c....", b"K\0\0\0\x0c\0\0\0\x01", data))


@contextmanager
def pooler(folder: Path, server: PostgresServer) -> Generator[Pooler]:
    with closing(Pooler(folder, server)) as found:
        yield found
