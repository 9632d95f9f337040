"""An answer over HTTP: one message, or a stream of them with the answer among them; and the rest of a stream that broke off where
its server said how to come back for it (2025-11-25). Whose messages they are is for who asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import trio
from msgspec import Raw

from server.client.mcp_session.http_wire import (
    ERROR_BYTES,
    EVENTS,
    UpstreamSessionLost,
    refusal_in,
    status_problem,
)
from server.client.mcp_session.upstream_messages import (
    MESSAGE_BYTES,
    Answered,
    HeardMessage,
    NotAnUpstream,
    PaymentAsked,
    UpstreamGone,
    read_message,
)
from server.lib.http_client.fetch import UpstreamAnswer
from server.lib.server_sent_events import EventDecoder, EventTooLarge

# The end of a stream comes right behind its answer; whoever lets us wait longer gets another connection the next time.
STREAM_END_SECONDS: Final = 0.02
RESUMED_AT_MOST: Final = 100
PAYMENT_REQUIRED: Final = 402
SHORTEST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 30.0

# A message and its size → the result, if it is the answer. Raises the refusal, if it is that.
TakeMessage: TypeAlias = Callable[[HeardMessage, int], Awaitable[Raw | None]]
# The stream that goes on behind the event of this id.
GoOn: TypeAlias = Callable[[str], AbstractAsyncContextManager[UpstreamAnswer]]


async def answer_of(
    answer: UpstreamAnswer, take: TakeMessage, go_on: GoOn | None = None, *, in_session: bool = False
) -> Raw:
    """Return the result. Raises `UpstreamRefusal`, `UpstreamFailure`, and `UpstreamSessionLost` where it was `in_session`."""
    status = answer.status
    if status < 300:
        return await answer_in(answer, take, go_on)
    if status == PAYMENT_REQUIRED:
        raise PaymentAsked(answer.header, await answer.beginning(ERROR_BYTES))
    refusal = await refusal_in(answer)
    if status == 404 and in_session:
        raise UpstreamSessionLost
    if refusal is not None:
        raise refusal
    raise status_problem(status)


async def answer_in(answer: UpstreamAnswer, take: TakeMessage, go_on: GoOn | None = None) -> Raw:
    """Return the result of an answer with a good status. Raises as `answer_of`."""
    if answer.media_type != EVENTS:
        body = await answer.read(MESSAGE_BYTES)
        message = read_message(body)
        found = await take(message, len(body)) if isinstance(message, Answered) else None
        if found is None:
            raise NotAnUpstream("answered with something that is no answer in MCP")
        return found
    decoder = EventDecoder(limit=MESSAGE_BYTES)
    found = await heard(answer, decoder, take)
    if found is not None:
        await answer.finish(STREAM_END_SECONDS)
        return found
    return await _rest(decoder, take, go_on)


async def heard(answer: UpstreamAnswer, decoder: EventDecoder, take: TakeMessage) -> Raw | None:
    """Read until the answer has come; None: the stream ended before."""
    try:
        while chunk := await answer.part():
            for data in decoder.feed(chunk):
                found = await take(read_message(data), len(data))
                if found is not None:
                    return found
    except EventTooLarge as error:
        raise UpstreamGone(f"said more than {MESSAGE_BYTES // 1024} KiB in one message") from error
    return None


async def _rest(decoder: EventDecoder, take: TakeMessage, go_on: GoOn | None) -> Raw:
    for _ in range(RESUMED_AT_MOST):
        last_id = decoder.last_id
        if go_on is None or last_id is None or not last_id.isascii() or not last_id.isprintable():
            break
        wished = (decoder.retry_millis or 0) / 1000
        await trio.sleep(min(max(wished, SHORTEST_WAIT_SECONDS), LONGEST_WAIT_SECONDS))
        async with go_on(last_id) as answer:
            if answer.status >= 300 or answer.media_type != EVENTS:
                break
            found = await heard(answer, decoder, take)
            if found is not None:
                return found
    raise UpstreamGone("ended its answer before the result")
