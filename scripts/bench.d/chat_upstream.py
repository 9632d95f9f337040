"""A chat endpoint for the bench: it answers every POST with the same reply, at once, on connections that stay open.

It runs on the load's core and must never be what is measured, so it understands only what our own server sends: requests
with a Content-Length. It prints `Listening on URL` as a server does.
"""

from __future__ import annotations

import asyncio
import re

REPLY = b'{"message":{"role":"assistant","content":"hello"}}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(REPLY),
    REPLY,
)
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class Canned(asyncio.Protocol):
    def __init__(self) -> None:
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        assert self._transport
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            length = LENGTH.search(self._data, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._data) < whole:
                return
            self._data = self._data[whole:]
            self._transport.write(ANSWER)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Canned, "127.0.0.1", 0)
    print(f"Listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
