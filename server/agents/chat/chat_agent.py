"""An agent behind an HTTP chat endpoint: `POST {agent, messages, session_id, stream}`, one reply in JSON, or in pieces
(chat_stream.py).

The agent keeps the conversation; a session has no lock here, so parallel calls never wait for each other. A call is sent
once: what the agent did before an answer was lost cannot be undone, so nothing is repeated. Endpoints that speak
`/v1/chat/completions` are for `openai_agent.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import trio
from msgspec import Meta

from server.agents.base.backend import ToolCall, Trouble
from server.agents.chat.chat_completions import BadCompletion, UpstreamSaid
from server.agents.chat.chat_endpoint import (
    ANSWER_BYTES,
    PROGRESS_SECONDS,
    STREAM_BYTES,
    AgentEndpoint,
    EndpointConfig,
    empty_response,
    endpoint_problems,
)
from server.agents.chat.chat_stream import ChatPieces
from server.agents.chat.conversation_tool import (
    AGENT_CHARACTERS,
    ENTROPY_BYTES,
    SessionNames,
    conversation_tool,
    read_turn,
)
from server.lib.http_client.failures import DeadlinePassed
from server.lib.secret import Secret
from server.lib.shortened import short_name
from server.lib.surrogates import decode_mended
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.messages import TextContent, Tool
from server.mcp.result_encoding import ToolResult
from server.settings.header_settings import address_problem

if TYPE_CHECKING:
    from server.payments.buyer.payer import PaidCall, Payer

DESCRIPTION = (
    "Send one message to an AI agent and get its reply. The agent remembers the conversation: to continue it, pass the "
    "session_id of the previous result; leave session_id out to start a new one. Say everything that the agent needs, "
    "because it does not see your own conversation. A reply may take a minute or more; do not repeat a call that is still running."
)


class ChatConfig(EndpointConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[server.agent]]` with `kind = "chat"`."""

    url: Annotated[
        str,
        Meta(
            max_length=2048, description='the address to post to, e.g. "https://agent.example.org/api/chat"'
        ),
    ]
    # Fixed, or chosen by the caller from `agents`, or, with neither, any that the endpoint knows.
    agent: Annotated[
        str, Meta(max_length=AGENT_CHARACTERS, description="the id of the one agent that may be asked")
    ] = ""
    agents: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=AGENT_CHARACTERS)], ...],
        Meta(max_length=100, description="a list of the agent ids that may be asked"),
    ] = ()
    stream: Annotated[bool, Meta(description="true or false")] = False
    # "shared" passes a session_id on as it is: whoever knows one takes part in that conversation.
    sessions: Annotated[
        Literal["bound", "shared"], Meta(description='"bound" (each caller its own) or "shared"')
    ] = "bound"


def problems(config: ChatConfig) -> list[tuple[str, str]]:
    """(key, what is wrong and what to write) for each rule that types cannot hold."""
    found = address_problem("url", config.url) + endpoint_problems(config)
    if config.agent and config.agents:
        found.append(("agents", "contradicts agent; write one of the two"))
    if any(agent != agent.strip() or not agent.isprintable() for agent in (config.agent, *config.agents)):
        found.append(
            ("agents" if config.agents else "agent", "must be printable, without spaces at its ends")
        )
    if len(set(config.agents)) < len(config.agents):
        found.append(("agents", "names an agent twice"))
    return found


class ChatBackend:
    """One tool. `call` may run any number of times at once, as far as `max_connections` go."""

    def __init__(
        self,
        config: ChatConfig,
        *,
        headers: Mapping[str, Secret],
        session_key: bytes,
        random: Callable[[int], bytes],
        progress_seconds: float = PROGRESS_SECONDS,
        payer: Payer | None = None,
    ) -> None:
        """`headers` are the configured ones with their references read (`endpoint.read_headers`).

        Raises `ValueError` and `SecretUnreadable` for settings that turn out not to work."""
        self._endpoint = AgentEndpoint(config.url, config, headers, payer=payer)
        self._agents = (config.agent,) if config.agent else config.agents or None
        self._names = SessionNames(session_key, agent=config.url)
        self._bound = config.sessions == "bound"
        self._streams = config.stream
        self._progress_seconds = progress_seconds
        self._random = random
        self._tool = conversation_tool(
            name=config.tool_name,
            title=config.tool_title,
            description=config.tool_description or DESCRIPTION,
            agents=self._agents,
            result={},
        )

    def tools(self) -> Sequence[Tool]:
        return (self._tool,)

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        """One message, one reply. Raises `BackendError` where the agent could not be asked or did not answer well."""
        if call.tool != self._tool.name:
            raise BackendError(f"unknown tool: {short_name(call.tool)}")
        fresh = self._names.make(call.subject, self._random(ENTROPY_BYTES))
        turn = read_turn(call, names=self._names if self._bound else None, fresh=fresh, agents=self._agents)
        if isinstance(turn, ToolResult):
            return turn
        begins = turn.session_id == fresh
        # Whoever begins a conversation again, because its first answer was lost after it was paid for, begins the same one.
        paid = await self._endpoint.paid_call(
            call.subject,
            [turn.agent_id, turn.message, None if begins else turn.session_id],
            fresh if begins else "",
        )
        session_id = paid.note if paid is not None and begins else turn.session_id
        document = {
            "agent": turn.agent_id,
            "messages": [{"role": "user", "content": turn.message}],
            "session_id": self._names.for_agent(call.subject, session_id) if self._bound else session_id,
            "stream": self._streams,
        }
        try:
            deadline = await self._endpoint.take_turn(call, self._endpoint.deadline())
            try:
                if self._streams:
                    reply = await self._streamed(document, call, outlet, deadline, paid)
                else:
                    reply = reply_in(
                        await self._endpoint.ask(document, call_id=call.call_id, deadline=deadline, paid=paid)
                    )
            finally:
                self._endpoint.end_turn(call)
        except DeadlinePassed:
            return self._endpoint.too_slow()
        except UpstreamSaid as error:
            raise BackendError(f"agent endpoint reported: {self._endpoint.clean(str(error))}") from None
        except BadCompletion as error:
            raise BackendError(f"agent endpoint {error}") from error
        return ToolResult(
            content=[TextContent(text=reply)], structured={"reply": reply, "session_id": session_id}
        )

    def trouble(self) -> Trouble | None:
        return self._endpoint.trouble.found

    async def reach(self) -> None:
        await self._endpoint.reach()

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def _streamed(
        self, document: object, call: ToolCall, outlet: Outlet, deadline: float, paid: PaidCall | None
    ) -> str:
        """Callers hear how much has come, never what: it may have to be paid for before it is seen."""
        pieces, told, next_at = ChatPieces(), 0, 0.0
        async with self._endpoint.stream(
            document, call_id=call.call_id, deadline=deadline, limit=STREAM_BYTES, paid=paid
        ) as answer:
            if answer.media_type == "application/json":  # it does not stream, whatever it was asked
                return reply_in(await answer.read(ANSWER_BYTES))
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    pieces.feed(chunk)
                    if pieces.ended:
                        break
                    if pieces.characters > told and trio.current_time() >= next_at:
                        told, next_at = pieces.characters, trio.current_time() + self._progress_seconds
                        await outlet.emit(Progress(progress=told, message=f"{told} characters so far"))
        reply = pieces.completion().text
        if not reply:
            raise empty_response()
        return reply


def reply_in(body: bytes) -> str:
    """`message.content`, else `content`, else `text`: the first that says anything. Raises `BackendError`."""
    try:
        document: Any = decode_mended(msgspec.json.decode, body)
    except (ValueError, RecursionError) as error:  # msgspec's own errors, and a body that is not UTF-8
        raise BackendError("agent endpoint answered with something that is not JSON") from error
    if not isinstance(document, dict):
        raise BackendError("agent endpoint answered with JSON that is not an object")
    message = document.get("message")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    nested = message.get("content") if isinstance(message, dict) else None  # pyright: ignore
    for candidate in (nested, document.get("content"), document.get("text")):  # pyright: ignore
        if isinstance(candidate, str) and (reply := candidate.strip()):
            return reply
    raise empty_response()
