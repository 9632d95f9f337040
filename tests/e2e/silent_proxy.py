"""Stands between a server and its database as a network does: it can fall silent, and speak again. Nothing is closed meanwhile, and nobody
is told.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

_NAME = ".s.PGSQL.5432"


class SilentProxy:
    """Between a folder of its own with a socket, and PostgreSQL's. Threads of its own; `close` ends them."""

    def __init__(self, folder: Path, database_folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._target = str(database_folder / _NAME)
        self._flows = threading.Event()
        self._flows.set()
        self._closed = False
        self._ends: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _NAME))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._flows.clear()

    def mend(self) -> None:
        self._flows.set()

    def close(self) -> None:
        self._closed = True
        self._flows.set()
        for end in (self._listener, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._flows.wait()
            far = socket.socket(socket.AF_UNIX)
            self._ends += (near, far)
            try:
                far.connect(self._target)
            except OSError:
                near.close()
                continue
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while piece := one.recv(65_536):
                self._flows.wait()
                other.sendall(piece)
        self._flows.wait()
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
