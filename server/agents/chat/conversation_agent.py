"""A back-end that passes a message on to a chat endpoint, and the reply back. Both kinds are based on it: chat_agent.py and openai_agent.py.

A call is sent once: what the agent did before an answer was lost cannot be undone, so nothing is repeated. A streamed answer becomes one
result, with progress on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import trio

from server.agents.base.backend import ToolCall, Trouble
from server.agents.chat.chat_completions import BadCompletion, ChatCompletion, Pieces, UpstreamSaid, whole
from server.agents.chat.chat_endpoint import (
    ANSWER_BYTES,
    STREAM_BYTES,
    AgentEndpoint,
    EndpointConfig,
    empty_response,
)
from server.agents.chat.conversation_tool import ENTROPY_BYTES, ConversationTurn, SessionNames, read_turn
from server.lib.http_client.failures import DeadlinePassed
from server.lib.shortened import short_name
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.messages import Tool
from server.mcp.result_encoding import ToolResult

if TYPE_CHECKING:
    from server.payments.buyer.payer import PaidCall


class ConversationAgent:
    """A `Backend` of one tool. `call` may run any number of times at once, as far as `max_connections` go."""

    _whole: Callable[[bytes], ChatCompletion] = staticmethod(whole)
    _pieces: type[Pieces] = Pieces
    _listed_at = ""  # the path that lists what there is
    _agents: Sequence[str] | None = ()  # as `read_turn` takes them
    _bound = True  # each caller has conversations of its own

    def __init__(
        self,
        config: EndpointConfig,
        endpoint: AgentEndpoint,
        tool: Tool,
        *,
        names: SessionNames,
        random: Callable[[int], bytes],
        progress_seconds: float,
    ) -> None:
        self._endpoint = endpoint
        self._tool = tool
        self._names = names
        self._random = random
        self._streams = config.stream
        self._progress_seconds = progress_seconds

    def tools(self) -> Sequence[Tool]:
        return (self._tool,)

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        """Pass one message on. Raises `BackendError` where the agent could not be asked or did not answer well."""
        if call.tool != self._tool.name:
            raise BackendError(f"unknown tool: {short_name(call.tool)}")
        fresh = self._names.make(call.subject, self._random(ENTROPY_BYTES))
        turn = read_turn(call, names=self._names if self._bound else None, fresh=fresh, agents=self._agents)
        if isinstance(turn, ToolResult):
            return turn
        try:
            return await self._answer(turn, call, outlet, begins=turn.session_id == fresh)
        except DeadlinePassed:
            return self._endpoint.too_slow()
        except UpstreamSaid as error:
            raise BackendError(f"agent endpoint reported: {self._endpoint.clean(str(error))}") from None
        except BadCompletion as error:
            raise BackendError(f"agent endpoint {error}") from error

    def trouble(self) -> Trouble | None:
        return self._endpoint.trouble.found

    async def reach(self) -> None:
        await self._endpoint.reach(self._listed_at)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def _answer(
        self, turn: ConversationTurn, call: ToolCall, outlet: Outlet, *, begins: bool
    ) -> ToolResult:
        """Answer a call. `begins`: the conversation has no session id of an earlier result."""
        raise NotImplementedError

    async def _complete(
        self, document: object, call: ToolCall, outlet: Outlet, deadline: float, paid: PaidCall | None
    ) -> ChatCompletion:
        """Send a document, and return the reply, which says something."""
        deadline = await self._endpoint.take_turn(call, deadline)
        try:
            if self._streams:
                completion = await self._streamed(document, call, outlet, deadline, paid)
            else:
                completion = self._whole(
                    await self._endpoint.ask(document, call_id=call.call_id, deadline=deadline, paid=paid)
                )
        finally:
            self._endpoint.turns.give_back(call.sharer)
        if not completion.text:
            raise empty_response()
        return completion

    async def _streamed(
        self, document: object, call: ToolCall, outlet: Outlet, deadline: float, paid: PaidCall | None
    ) -> ChatCompletion:
        """Tell callers how much has come, never what: it may have to be paid for before it is seen."""
        pieces, told, next_at = self._pieces(), 0, 0.0
        async with self._endpoint.stream(
            document, call_id=call.call_id, deadline=deadline, limit=STREAM_BYTES, paid=paid
        ) as answer:
            if answer.media_type == "application/json":  # it does not stream, whatever it was asked
                return self._whole(await answer.read(ANSWER_BYTES))
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    pieces.feed(chunk)
                    if pieces.ended:
                        break
                    if pieces.characters > told and trio.current_time() >= next_at:
                        told, next_at = pieces.characters, trio.current_time() + self._progress_seconds
                        await outlet.emit(Progress(progress=told, message=f"{told} characters so far"))
        return pieces.completion()
