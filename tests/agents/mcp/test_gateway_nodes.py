"""A call that waits at one node's connection with an upstream, whose caller comes back to another node."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
import trio
from upstreams import (
    CAN_ALL,
    PATIENCE,
    Caller,
    Double,
    Refused,
    Turn,
    gate,
    over_tcp,
    soon,
    text,
    tool,
    words,
)

from server.agents.mcp.remote_suspended import RemoteSuspended
from server.client.mcp_session.message_channel import ChannelLink
from server.mcp.call_failures import BackendError, CannotAsk, Paused
from server.mcp.call_outlet import Progress
from server.store.node_messages.node_messages import MAX_BODY
from tests.store.node_messages.neighbours import Street, street

FORM: dict[str, Any] = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
A, B = "a" * 16, "b" * 16


def pause(_: object) -> Any:
    raise Paused


def accept(asked: Any) -> Any:
    return {key: {"action": "accept", "content": {}} for key in asked}


@dataclass
class Doors:
    of: Street
    a: Any
    b: Any
    double: Double

    async def parked(self, name: str = "ask", **how: Any) -> Any:
        """A call that waits at `a`; what its caller brings along when it comes back."""
        caller = Caller(pause)
        with pytest.raises(Paused):
            await self.a.call(name, caller, can=CAN_ALL, **how)
        return caller.kept[-1]


@asynccontextmanager
async def doors(**handlers: Any) -> AsyncGenerator[Doors]:
    double = Double(handlers=handlers, lists={"tools": [tool(name) for name in handlers]})
    async with street() as of, trio.open_nursery() as nursery:
        parked: list[RemoteSuspended] = []
        for name in (A, B):
            letters = of.letters(name)
            parked.append(RemoteSuspended(letters, structlog.get_logger()))
            for task in (letters.run, parked[-1].run):
                nursery.start_soon(task)
            nursery.start_soon(of.deliver, letters)
        async with (
            over_tcp(double) as tcp,
            gate(tcp=tcp, parked=parked[0]) as a,
            gate(tcp=tcp, parked=parked[1]) as b,
        ):
            yield Doors(of, a, b, double)
        nursery.cancel_scope.cancel()


async def asks(turn: Turn) -> Any:
    return text(str((await turn.ask("elicitation/create", **FORM))["result"]["action"]))


async def test_the_answer_goes_over_and_the_result_comes_back_of_a_call_that_runs_once() -> None:
    runs = 0

    async def ask(turn: Turn) -> Any:
        nonlocal runs
        runs += 1
        return await asks(turn)

    async with doors(ask=ask) as made:
        kept = await made.parked()
        with trio.fail_after(PATIENCE):
            result = await made.b.call("ask", Caller(accept), can=CAN_ALL, resumed=kept)
        assert words(result) == "accept" and runs == 1 and made.double.cancelled == []


async def test_one_that_asks_again_is_parked_again_and_either_node_goes_on_with_it() -> None:
    async def ask(turn: Turn) -> Any:
        said = [(await turn.ask("elicitation/create", **FORM))["result"]["action"] for _ in range(3)]
        return text(" ".join(said))

    class Answering:
        """A caller's client that knows one answer more each time."""

        def __init__(self) -> None:
            self.known: dict[str, Any] = {}

        def __call__(self, asked: Any) -> Any:
            new = [key for key in asked if key not in self.known]
            if new:
                self.known |= accept(new)
                raise Paused
            return {key: self.known[key] for key in asked}

    async with doors(ask=ask) as made:
        client, kept, result = Answering(), None, None
        with trio.fail_after(PATIENCE):
            for door in (made.a, made.b, made.a, made.b):
                caller = Caller(client)
                try:
                    result = await door.call("ask", caller, can=CAN_ALL, resumed=kept)
                except Paused:
                    kept = caller.kept[-1]
        assert result is not None and words(result) == "accept accept accept"


async def test_nobody_elses_opens_there_and_what_is_gone_is_said_to_be() -> None:
    async with doors(ask=asks) as made:
        kept = await made.parked()
        with trio.fail_after(PATIENCE):
            for _ in range(2):
                with pytest.raises(BackendError, match="make it again"):
                    await made.b.call("ask", Caller(accept), can=CAN_ALL, resumed=kept, subject="bob")


async def test_what_the_upstream_tells_and_refuses_comes_over() -> None:
    async def tells(turn: Turn) -> Any:
        await turn.ask("elicitation/create", **FORM)
        await turn.progress(2, "half")
        return text("done")

    async def refuses(turn: Turn) -> Any:
        await turn.ask("elicitation/create", **FORM)
        raise Refused(-32000, "not today")

    async with doors(tells=tells, refuses=refuses) as made:
        with trio.fail_after(PATIENCE):
            caller = Caller(accept)
            kept = await made.parked("tells", wants_progress=True)
            assert words(await made.b.call("tells", caller, can=CAN_ALL, resumed=kept)) == "done"
            assert [each.progress for each in caller.events if isinstance(each, Progress)] == [2]
            kept = await made.parked("refuses")
            try:
                refused = words(await made.b.call("refuses", Caller(accept), can=CAN_ALL, resumed=kept))
            except Exception as error:
                refused = str(error)
            assert "not today" in refused


async def test_a_caller_who_cannot_be_asked_there_is_no_end_of_the_call() -> None:
    async def ask(turn: Turn) -> Any:
        return text("without" if "error" in await turn.ask("elicitation/create", **FORM) else "with")

    def refuse(_: object) -> Any:
        raise CannotAsk("nobody is there")

    async with doors(ask=ask) as made:
        kept = await made.parked()
        with trio.fail_after(PATIENCE):
            assert words(await made.b.call("ask", Caller(refuse), can=CAN_ALL, resumed=kept)) == "without"


async def test_what_goes_wrong_there_ends_one_call_and_others_are_followed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with doors(ask=asks) as made:
        kept = await made.parked()
        with trio.fail_after(PATIENCE):
            with monkeypatch.context() as broken:
                broken.setattr(ChannelLink, "follow", lambda *_: 1 / 0)
                with pytest.raises(BackendError, match="make it again"):
                    await made.b.call("ask", Caller(accept), can=CAN_ALL, resumed=kept)
            kept = await made.parked()
            assert words(await made.b.call("ask", Caller(accept), can=CAN_ALL, resumed=kept)) == "accept"


async def test_that_the_upstream_is_lost_there_is_said_to_the_caller_here() -> None:
    async def ask(turn: Turn) -> Any:
        await turn.ask("elicitation/create", **FORM)
        made.double.hang_up[2]()  # the connection of the caller, of the node where the call waits

    async with doors(ask=ask) as made:
        kept = await made.parked()
        with trio.fail_after(PATIENCE), pytest.raises(BackendError, match="connection"):
            await made.b.call("ask", Caller(accept), can=CAN_ALL, resumed=kept)


async def test_what_is_too_large_to_come_over_is_said_in_words() -> None:
    async def ask(turn: Turn) -> Any:
        await turn.ask("elicitation/create", **FORM)
        return text("x" * (MAX_BODY + 1))

    async with doors(ask=ask) as made:
        kept = await made.parked()
        with trio.fail_after(PATIENCE), pytest.raises(BackendError, match="1,024 KiB"):
            await made.b.call("ask", Caller(accept), can=CAN_ALL, resumed=kept)


async def test_a_caller_that_leaves_there_ends_it_here() -> None:
    begun = trio.Event()

    async def ask(turn: Turn) -> Any:
        await turn.ask("elicitation/create", **FORM)
        begun.set()
        await trio.sleep_forever()

    async with doors(ask=ask) as made:
        kept = await made.parked()
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    await made.b.call("ask", Caller(accept), can=CAN_ALL, resumed=kept)

                nursery.start_soon(call)
                await begun.wait()
                nursery.cancel_scope.cancel()
            await soon(lambda: made.double.cancelled)


async def test_where_the_node_that_has_it_dies_the_caller_is_told_to_make_it_again() -> None:
    async with doors(ask=asks) as made:
        kept = await made.parked()
        made.of.alive.remove(A)
        with trio.fail_after(PATIENCE), pytest.raises(BackendError, match="make it again"):
            await made.b.call("ask", Caller(accept), can=CAN_ALL, resumed=kept)
