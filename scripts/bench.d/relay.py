"""python -m relay FROM TO: what connects to FROM (HOST:PORT) is carried on to TO, until this is killed."""

from __future__ import annotations

import sys
from functools import partial

import trio

PIECE_BYTES = 65_536


async def carry(source: trio.SocketStream, target: trio.SocketStream) -> None:
    async for piece in source:
        await target.send_all(piece)
    await target.send_eof()


async def relay(near: trio.SocketStream, host: str, port: int) -> None:
    try:
        async with near, await trio.open_tcp_stream(host, port) as far, trio.open_nursery() as both:
            both.start_soon(carry, near, far)
            both.start_soon(carry, far, near)
    except* (OSError, trio.BrokenResourceError):
        pass  # whoever waits at the other end is told by the connection


async def main(source: str, target: str) -> None:
    (host, _, port), (to_host, _, to_port) = source.rpartition(":"), target.rpartition(":")
    await trio.serve_tcp(partial(relay, host=to_host, port=int(to_port)), int(port), host=host)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2])
