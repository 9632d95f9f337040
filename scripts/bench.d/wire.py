"""Plain HTTP/1.1 over a socket, for the loads that wrk cannot make. It reads what our own servers send: bodies with a
length, or chunked ones; nothing more general is meant.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from targets import Broken

WAIT_SECONDS = 10.0


def open_connection(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port), WAIT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def request(
    host: str, port: int, method: str, path: str, headers: dict[str, str], body: bytes = b""
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}:{port}", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])).encode() + body


def form_request(host: str, port: int, path: str, form: dict[str, str]) -> bytes:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    return request(host, port, "POST", path, headers, urlencode(form).encode())


def call_request(
    host: str, port: int, method: str, params: dict[str, Any], *, name: str = "", token: str = ""
) -> bytes:
    """A 2026-07-28 request to /mcp."""
    headers, body = call_parts(method, params, name=name, token=token)
    return request(host, port, "POST", "/mcp", headers, body)


def call_parts(
    method: str,
    params: Mapping[str, Any],
    *,
    name: str = "",
    token: str = "",
    capabilities: Mapping[str, Any] | None = None,
) -> tuple[dict[str, str], bytes]:
    """Its headers and its body."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": dict(capabilities or {}),
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    }
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        **({"Mcp-Name": name} if name else {}),
        **({"Authorization": f"Bearer {token}"} if token else {}),
    }
    meta |= params.get("_meta", {})
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return headers, json.dumps(body, separators=(",", ":")).encode()


class Incoming:
    """What has arrived on one connection so far."""

    def __init__(self) -> None:
        self.data = b""

    def whole(self) -> tuple[int, bytes, int] | None:
        """Status, body and size on the wire of the first response, or None until all of it is there."""
        head, separator, rest = self.data.partition(b"\r\n\r\n")
        if not separator:
            return None
        lines = head.split(b"\r\n")
        fields = dict(line.lower().split(b":", 1) for line in lines[1:])
        if fields.get(b"transfer-encoding", b"").strip() == b"chunked":
            body, used = _unchunk(rest)
        else:
            used = int(fields.get(b"content-length", b"0"))
            body = rest[:used] if len(rest) >= used else None
        if body is None:
            return None
        size = len(head) + 4 + used
        self.data = self.data[size:]
        return int(lines[0].split(b" ", 2)[1]), body, size


def _unchunk(rest: bytes) -> tuple[bytes | None, int]:
    body, at = b"", 0
    while True:
        end = rest.find(b"\r\n", at)
        if end < 0:
            return None, 0
        length = int(rest[at:end], 16)
        if len(rest) < end + 2 + length + 2:
            return None, 0
        body += rest[end + 2 : end + 2 + length]
        at = end + 2 + length + 2
        if length == 0:
            return body, at


def exchange(connection: socket.socket, message: bytes) -> tuple[int, bytes, int]:
    """Send one request and read its whole answer."""
    connection.sendall(message)
    incoming = Incoming()
    while (answer := incoming.whole()) is None:
        more = connection.recv(65536)
        if not more:
            raise Broken("the server closed a connection in the middle of an answer")
        incoming.data += more
    return answer


def fetch(host: str, port: int, message: bytes) -> tuple[int, Any]:
    """One request on a connection of its own; the answer's status and JSON."""
    with open_connection(host, port) as connection:
        status, body, _ = exchange(connection, message)
    return status, json.loads(body)


def fetch_status(host: str, port: int, path: str) -> int | None:
    """The status of a GET, or None while nobody listens."""
    try:
        with open_connection(host, port) as connection:
            return exchange(connection, request(host, port, "GET", path, {}))[0]
    except OSError:
        return None
