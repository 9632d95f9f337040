"""A request that runs at a server, followed to its end: what it tells is passed on, what it asks is put to its caller.

A server of the handshake era waits for an answer. Where its caller's client does not wait (2026-07-28), `Paused` leaves here with
the request still running, and it is followed further when the client comes back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import trio
from msgspec import Raw

from server.client.mcp_session.sent_requests import HandshakeQuestion, SentRequest
from server.client.mcp_session.session_messages import INVALID_PARAMS, refusal_message, reply_message, said
from server.mcp.call_failures import BackendError, CannotAsk
from server.mcp.call_outlet import LogMessage, Outlet, Progress

# What is asked at once arrives within this; a person does not notice it.
TOGETHER_SECONDS: Final = 0.02

Reply: TypeAlias = Callable[[SentRequest, bytes], Awaitable[None]]


async def follow(running: SentRequest, outlet: Outlet, reply: Reply) -> Raw:
    """Return the result. Raises what the request ended with, and whatever comes out of `outlet`. `reply` takes a message to the upstream."""
    while True:
        event = await running.next()
        if isinstance(event, Progress | LogMessage):
            await outlet.emit(event)
        elif isinstance(event, HandshakeQuestion):
            return await _follow_asking(running, await _with_others(running, event), outlet, reply)
        else:
            return running.result(event)


async def _follow_asking(
    running: SentRequest, first: Sequence[HandshakeQuestion], outlet: Outlet, reply: Reply
) -> Raw:
    """Follow from the first question on: each is put beside the request, for the server may end while one is open."""
    raised = list[Exception]()
    found = list[Raw]()
    async with trio.open_nursery() as nursery:

        async def ask(asked: Sequence[HandshakeQuestion]) -> None:
            try:
                await _ask_all(running, asked, outlet, reply)
            except Exception as error:  # `Paused`, for one: what follows ends with it
                raised.append(error)
                nursery.cancel_scope.cancel()

        nursery.start_soon(ask, first)
        try:
            while not found:
                event = await running.next()
                if isinstance(event, Progress | LogMessage):
                    await outlet.emit(event)
                elif isinstance(event, HandshakeQuestion):
                    nursery.start_soon(ask, await _with_others(running, event))
                else:
                    found.append(running.result(event))
        except Exception as error:  # out of the nursery it would be a group
            raised.append(error)
        nursery.cancel_scope.cancel()
    if found:
        return found[0]
    try:
        raise raised[0]
    finally:
        raised.clear()


async def _with_others(running: SentRequest, first: HandshakeQuestion) -> Sequence[HandshakeQuestion]:
    """Collect the questions that come at once, one message behind the other: a client that comes back is asked them in one piece."""
    await trio.sleep(TOGETHER_SECONDS)
    return [first, *running.questions()]


async def _ask_all(
    running: SentRequest, asked: Sequence[HandshakeQuestion], outlet: Outlet, reply: Reply
) -> None:
    if len(asked) > 1:
        try:
            answers = await outlet.ask({each.key: each.question for each in asked})
        except BackendError:
            pass  # of one or the other: each by itself
        else:
            for each in asked:
                await _answer(running, each, reply_message(each.id, answers[each.key]), reply)
            return
    for each in asked:
        await _ask(running, each, outlet, reply)


async def _ask(running: SentRequest, asked: HandshakeQuestion, outlet: Outlet, reply: Reply) -> None:
    try:
        answers = await outlet.ask({asked.key: asked.question})
    except BackendError as error:
        if isinstance(error, CannotAsk) and error.required:
            running.refused = error.with_traceback(None)
        # Nobody can be asked, or who was asked gave no answer: the server may go on without.
        message = refusal_message(asked.id, INVALID_PARAMS, said(str(error)))
    else:
        message = reply_message(asked.id, answers[asked.key])
    await _answer(running, asked, message, reply)


async def _answer(running: SentRequest, asked: HandshakeQuestion, message: bytes, reply: Reply) -> None:
    if asked.id in running.open:  # else the server does not wait for it any more
        running.withdrawn(asked.id)
        await reply(running, message)
