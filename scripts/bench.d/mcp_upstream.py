"""An MCP server of the stateless era for the bench: it answers every call with the same result, at once or after the seconds that it is asked to
wait, on connections that stay open.

It runs on the load's core and must never be what is measured, so it understands only what our own server sends: requests
with a Content-Length. It prints `Listening on URL` as a server does. Its port may be given.
"""

from __future__ import annotations

import asyncio
import re
import sys

RESULTS = {
    b"server/discover": b'"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}',
    b"tools/list": b'"tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}},'
    b'{"name":"slow","inputSchema":{"type":"object","properties":{"seconds":{"type":"number"}}}}]',
    b"tools/call": b'"content":[{"type":"text","text":"hello"}],"structuredContent":{"text":"hello"},"isError":false',
}
METHOD = re.compile(rb'"method":"([^"]*)"')
ID = re.compile(rb'"id":(\d+)')
SECONDS = re.compile(rb'"seconds":([0-9.]+)')
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


def answer(body: bytes) -> bytes:
    number, method = ID.search(body), METHOD.search(body)
    assert number
    assert method
    reply = b'{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}' % (
        number[1],
        RESULTS[method[1]],
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(reply)
    return head + reply


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
            body, self._data = self._data[end + 4 : whole], self._data[whole:]
            if (seconds := SECONDS.search(body)) is not None:  # of `slow`
                asyncio.get_running_loop().call_later(float(seconds[1]), self._say, answer(body))
            else:
                self._transport.write(answer(body))

    def _say(self, said: bytes) -> None:
        assert self._transport
        if not self._transport.is_closing():
            self._transport.write(said)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(
        Canned, "127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0
    )
    print(f"Listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
