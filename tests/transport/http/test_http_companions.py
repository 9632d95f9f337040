"""What goes with a request that lasts (server/transport/http/disconnect_watch.py, inline_reply.py): signs of life, and a client that has left."""

from __future__ import annotations

from typing import Any

import trio
from loopback_server import GOOD, Echo, expect_service, running, until
from trio.testing import MockClock

from server.calls.caller_outlet import KEEP_ALIVE_SECONDS
from server.transport.http.asgi import hosting
from server.transport.http.connection_limits import HttpLimits
from server.transport.http.disconnect_watch import DisconnectWatch
from server.transport.http.handler import Cycle, Handler, Scope
from server.transport.http.inline_reply import ReplyLine


class Deaf:
    """A reply, and a cycle, whose client is not there any more."""

    now = 0.0

    async def event(self, _message: bytes) -> None:
        raise BrokenPipeError

    async def ping(self) -> None:
        raise BrokenPipeError


class CountingLine(ReplyLine):
    pings = 0

    async def ping(self) -> None:
        self.pings += 1
        assert self.pings < 10, "signs of life for nobody, one after the other"
        await super().ping()


async def test_a_call_that_runs_on_for_nobody_costs_no_more_than_one_that_is_waited_for(
    autojump_clock: MockClock,
) -> None:
    gone: Any = Deaf()
    line = CountingLine(gone, gone, cancels=False)
    companion = DisconnectWatch(line, watches=False, pings=True)
    companion.prepare()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(companion.run)
        await line.send(b"{}")
        await trio.sleep(3.5 * KEEP_ALIVE_SECONDS)
        await companion.dismiss()
    assert line.pings == 3


class Faulty:
    """Lasts longer than a tick, and its companion has a fault."""

    client = None
    spoke_at = 0.0

    def __init__(self, cycle_done: trio.Event) -> None:
        self.left = trio.Event()
        self._done = cycle_done

    async def wait_gone(self) -> None:
        raise ValueError("a fault of ours")

    async def ping(self) -> None:
        raise AssertionError

    def leave(self) -> None:
        self.left.set()

    async def answer(self, cycle: Cycle) -> None:
        companion = DisconnectWatch(self, watches=True, pings=False)
        cycle.attend(companion)
        await self.left.wait()
        await cycle.part(companion)
        self._done.set()
        await cycle.answer(200, (), b"after all")

    def done(self, cycle: Cycle, seconds: float) -> None:
        """Nobody asks."""


async def test_a_fault_of_a_companion_does_not_end_the_server() -> None:
    done = trio.Event()
    others = hosting(Echo())

    def resolve(scope: Scope) -> Handler:
        return Faulty(done) if scope["path"] == "/faulty" else others(scope)

    async with (
        running(resolve=resolve, limits=HttpLimits(tick_seconds=0.05)) as server,
        await server.connect() as peer,
    ):
        assert (await peer.ask(GOOD.replace(b"/good", b"/faulty"))).body == b"after all"
        assert done.is_set()
        assert "http.companion_failed" in server.events()
        await expect_service(server)


async def test_a_head_that_cannot_be_resolved_is_answered_all_the_same() -> None:
    others = hosting(Echo())

    def resolve(scope: Scope) -> Handler:
        if scope["path"] == "/faulty":
            raise ValueError("a fault of ours")
        return others(scope)

    async with running(resolve=resolve) as server, await server.connect() as peer:
        answer = await peer.ask(GOOD.replace(b"/good", b"/faulty"))
        assert answer.status == 500 and b"fault" not in answer.body
        await until(lambda: "http.app_failed" in server.events())
        await expect_service(server)
