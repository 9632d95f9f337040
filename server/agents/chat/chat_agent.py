"""An agent behind an HTTP chat endpoint: `POST {agent, messages, session_id, stream}`, one reply in JSON, or in pieces (chat_stream.py).

The agent keeps the conversation; a session has no lock here, so parallel calls never wait for each other. Endpoints that speak
`/v1/chat/completions` are for `openai_agent.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from server.agents.base.backend import ToolCall
from server.agents.chat.chat_completions import ChatCompletion, json_object
from server.agents.chat.chat_endpoint import (
    PROGRESS_SECONDS,
    AgentEndpoint,
    EndpointConfig,
    endpoint_problems,
)
from server.agents.chat.chat_stream import ChatPieces
from server.agents.chat.conversation_agent import ConversationAgent
from server.agents.chat.conversation_tool import (
    AGENT_CHARACTERS,
    ConversationTurn,
    SessionNames,
    conversation_tool,
)
from server.lib.secret import Secret
from server.mcp.call_outlet import Outlet
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.settings.header_settings import address_problem

if TYPE_CHECKING:
    from server.payments.buyer.payer import Payer

DESCRIPTION = (
    "Send one message to an AI agent and get its reply. The agent remembers the conversation: to continue it, pass the "
    "session_id of the previous result; leave session_id out to start a new one. Say everything that the agent needs, "
    "because it does not see your own conversation. A reply may take a minute or more; do not repeat a call that is still running."
)


class ChatConfig(EndpointConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[server.agent]]` with `kind = "chat"`."""

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
    # "shared" passes a session_id on as it is: whoever knows one takes part in that conversation.
    sessions: Annotated[
        Literal["bound", "shared"], Meta(description='"bound" (each caller its own) or "shared"')
    ] = "bound"


def problems(config: ChatConfig) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write) for each rule that types cannot hold."""
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


def reply_in(body: bytes) -> ChatCompletion:
    """Read `message.content`, else `content`, else `text`: the first that says anything. Raises `BadCompletion`."""
    document = json_object(body)
    message = document.get("message")
    said: list[object] = [document.get("content"), document.get("text")]
    if isinstance(message, dict):
        said.insert(0, message.get("content"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]  # JSON
    for each in said:
        if isinstance(each, str) and (text := each.strip()):
            return ChatCompletion(text=text)
    return ChatCompletion(text="")


class ChatBackend(ConversationAgent):
    """A `Backend` of an agent that keeps its conversations."""

    _whole = staticmethod(reply_in)
    _pieces = ChatPieces

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
        """Make the back-end. `headers` are the configured ones with their references read.

        Raises `ValueError` and `SecretUnreadable` for settings that turn out not to work."""
        self._agents = (config.agent,) if config.agent else config.agents or None
        self._bound = config.sessions == "bound"
        super().__init__(
            config,
            AgentEndpoint(config.url, config, headers, payer=payer),
            conversation_tool(config, DESCRIPTION, agents=self._agents, result={}),
            names=SessionNames(session_key, agent=config.url),
            random=random,
            progress_seconds=progress_seconds,
        )

    async def _answer(
        self, turn: ConversationTurn, call: ToolCall, outlet: Outlet, *, begins: bool
    ) -> ToolResult:
        # Whoever begins a conversation again, because its first answer was lost after it was paid for, begins the same one.
        paid = await self._endpoint.paid_call(
            call.subject,
            [turn.agent_id, turn.message, None if begins else turn.session_id],
            turn.session_id if begins else "",
        )
        session_id = paid.note if paid is not None and begins else turn.session_id
        document = {
            "agent": turn.agent_id,
            "messages": [{"role": "user", "content": turn.message}],
            "session_id": self._names.for_agent(call.subject, session_id) if self._bound else session_id,
            "stream": self._streams,
        }
        reply = (await self._complete(document, call, outlet, self._endpoint.deadline(), paid)).text
        return ToolResult(
            content=[TextContent(text=reply)], structured={"reply": reply, "session_id": session_id}
        )
