"""A proxy of a company: it wants a login, allows CONNECT and nothing else, and alone knows the names of the outside."""

from __future__ import annotations

import base64
import socket
import threading
from contextlib import suppress

LOGIN = "staff:p@ss/word"


class ConnectProxy:
    """The proxy, with threads of its own; `close` ends them."""

    def __init__(self, places: dict[str, int]) -> None:
        """Take the ports of this machine that names of the outside stand for."""
        self.asked: list[str] = []  # the first line of each request
        self._places = places
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._ends: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://staff:p%40ss%2Fword@127.0.0.1:{self.port}"

    def close(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._ends.append(near)
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                if not (more := near.recv(65_536)):
                    return
                head += more
            line, _, fields = head.decode("latin-1").partition("\r\n")
            self.asked.append(line)
            login = base64.b64encode(LOGIN.encode()).decode()
            method, target, _ = line.split(" ")
            port = self._places.get(target)
            if f"proxy-authorization: basic {login}".lower() not in fields.lower():
                status = "407 Proxy Authentication Required"
            elif method != "CONNECT" or port is None:
                status = "403 Forbidden"
            else:
                near.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                self._carry_both(near, port)
                return
            near.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            near.close()

    def _carry_both(self, near: socket.socket, port: int) -> None:
        far = socket.create_connection(("127.0.0.1", port))
        self._ends.append(far)
        back = threading.Thread(target=_carry, args=(far, near), daemon=True)
        back.start()
        _carry(near, far)
        back.join()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while piece := one.recv(65_536):
            other.sendall(piece)
    for end in (one, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
