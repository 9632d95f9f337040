"""server/run/pages_ahead.py: an application that is made with its first request."""

from __future__ import annotations

from typing import Any

import trio
from loopback_server import GOOD, Echo, running

from server.lib.log.logger import UNLOGGED
from server.run.pages_ahead import LazyPages


async def test_it_is_made_once_however_many_ask_for_it_first() -> None:
    made: list[Echo] = []

    def make() -> Echo:
        made.append(Echo())
        return made[-1]

    async with running(LazyPages(make, UNLOGGED)) as server, trio.open_nursery() as nursery:

        async def ask() -> None:
            async with await server.connect() as peer:
                assert (await peer.ask(GOOD)).status == 200

        assert not made
        for _ in range(5):
            nursery.start_soon(ask)
    assert len(made) == 1


async def test_one_that_cannot_be_made_fails_its_request_and_is_tried_again() -> None:
    tries: list[int] = []

    def make() -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ImportError("not there")
        return Echo()

    async with running(LazyPages(make, UNLOGGED)) as server:
        async with await server.connect() as peer:
            assert (await peer.ask(GOOD)).status == 500
        async with await server.connect() as peer:
            assert (await peer.ask(GOOD)).status == 200
