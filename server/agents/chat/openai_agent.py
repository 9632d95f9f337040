"""A model behind an OpenAI-compatible API: `POST <base_url>/v1/chat/completions`.

The API remembers nothing, so the conversation of each (subject, session_id) is kept in `conversation_memory.py` and sent along. Calls
of one conversation run one after the other, because each needs the answer of the one before; calls without a session_id have a
conversation each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta

from server.agents.base.backend import ToolCall
from server.agents.chat.chat_completions import ChatCompletion, failure_text
from server.agents.chat.chat_endpoint import (
    PROGRESS_SECONDS,
    AgentEndpoint,
    EndpointConfig,
    endpoint_problems,
)
from server.agents.chat.conversation_agent import ConversationAgent
from server.agents.chat.conversation_memory import ChatHistory, Memory, MemoryLimits
from server.agents.chat.conversation_tool import ConversationTurn, SessionNames, conversation_tool
from server.lib.secret import Secret
from server.mcp.call_outlet import Outlet
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.settings.header_settings import REFERENCE, address_problem

if TYPE_CHECKING:
    from server.agents.chat.shared_memory import AgentMemory
    from server.payments.buyer.payer import Payer

DESCRIPTION = (
    "Send one message to an AI model and get its reply. To continue a conversation, pass the session_id of the previous "
    "result; leave session_id out to start a new one. Say everything that the model needs, because it does not see your "
    "own conversation. A reply may take a minute or more; do not repeat a call that is still running."
)
CUT_OFF = "[The answer was cut off at the model's length limit.]"
_RESULT = MappingProxyType(
    {
        "remembered_turns": {
            "type": "integer",
            "minimum": 0,
            "description": "How many earlier exchanges the model was shown; 0 means that it knows of none.",
        },
        "finish_reason": {"type": "string", "description": "Why the model stopped, in its own terms."},
    }
)
VERSION_SEGMENT = re.compile(r"v\d+\w*")
# Decided by other settings, or not of use with one reply in text.
OWN_FIELDS = frozenset({"messages", "model", "n", "stream", "temperature", "max_tokens"})


class OpenAIConfig(EndpointConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[server.agent]]` with `kind = "openai"`."""

    base_url: Annotated[
        str, Meta(max_length=2048, description='the address of the API, e.g. "http://127.0.0.1:11434/v1"')
    ]
    model: Annotated[str, Meta(min_length=1, max_length=200, description="the name of the model")]
    api_key: Annotated[str, Meta(max_length=4096, description="env:NAME or file:/path")] = ""
    system_prompt: Annotated[
        str, Meta(max_length=100_000, description="what the model is told before each conversation")
    ] = ""
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None, Meta(description="a number from 0 to 2")
    ] = None
    max_tokens: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="a whole number from 1")] = None
    # For what this API knows beyond that: top_p, seed, reasoning_effort, max_completion_tokens …
    parameters: Annotated[Mapping[str, Any], Meta(description="a table of further request fields")] = (
        MappingProxyType({})
    )
    max_sessions: Annotated[int, Meta(ge=1, le=100_000, description="a number from 1 to 100000")] = 1000
    max_sessions_per_caller: Annotated[
        int, Meta(ge=1, le=100_000, description="a number from 1 to 100000")
    ] = 100
    max_turns: Annotated[
        int, Meta(ge=0, le=1000, description="a number from 0 (nothing is remembered) to 1000")
    ] = 40
    max_conversation_kib: Annotated[int, Meta(ge=1, le=16_384, description="KiB from 1 to 16384")] = 256
    session_idle_minutes: Annotated[int, Meta(ge=1, le=10_080, description="minutes from 1 to 10080")] = 60


def problems(config: OpenAIConfig) -> list[tuple[str, str]]:
    """Return (key, what is wrong and what to write) for each rule that types cannot hold."""
    found = address_problem("base_url", config.base_url) + endpoint_problems(config)
    if config.api_key and not REFERENCE.fullmatch(config.api_key):
        found.append(("api_key", "must not be written here in clear; write env:NAME or file:/path"))
    if config.api_key and "authorization" in {name.lower() for name in config.headers}:
        found.append(
            ("api_key", "is sent as the authorization header, which headers has too; write one of the two")
        )
    found += [
        (f"parameters.{name}", "is decided by another setting; leave it out")
        for name in sorted(OWN_FIELDS.intersection(config.parameters))
    ]
    return found


def models_path(base_url: str) -> str:
    """Return the path that lists the models."""
    path = urlsplit(completions_url(base_url)).path
    return path.removesuffix("/chat/completions") + "/models"


def completions_url(base_url: str) -> str:
    """Return the address to post to: `base_url` may be the host, its /v1, or already the whole address."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        versioned = VERSION_SEGMENT.fullmatch(path.rpartition("/")[2])
        path += "/chat/completions" if versioned else "/v1/chat/completions"
    return parts._replace(path=path).geturl()


class OpenAIBackend(ConversationAgent):
    """A `Backend` in front of one model. Where a call fails or is cancelled, the conversation is what it was before."""

    def __init__(
        self,
        config: OpenAIConfig,
        *,
        api_key: Secret | None,
        headers: Mapping[str, Secret],
        session_key: bytes,
        random: Callable[[int], bytes],
        progress_seconds: float = PROGRESS_SECONDS,
        payer: Payer | None = None,
        shared: Callable[[Memory], AgentMemory] | None = None,
    ) -> None:
        """Make the back-end. `api_key` and `headers` are the configured ones with their references read; `shared` makes the memory of
        conversations that other processes go on with.

        Raises `ValueError` and `SecretUnreadable` for settings that turn out not to work."""
        bearer = {"Authorization": Secret(f"Bearer {api_key.reveal()}")} if api_key else {}
        super().__init__(
            config,
            AgentEndpoint(
                completions_url(config.base_url),
                config,
                {**headers, **bearer},
                explain=failure_text,
                payer=payer,
            ),
            conversation_tool(config, DESCRIPTION, result=_RESULT),
            names=SessionNames(session_key, agent=config.base_url),
            random=random,
            progress_seconds=progress_seconds,
        )
        self._listed_at = models_path(config.base_url)
        self._system = ({"role": "system", "content": config.system_prompt},) if config.system_prompt else ()
        chosen = {"temperature": config.temperature, "max_tokens": config.max_tokens}
        self._settled = {
            **config.parameters,
            **{name: value for name, value in chosen.items() if value is not None},
            "model": config.model,
        }
        self._memory = Memory(
            MemoryLimits(
                sessions=config.max_sessions,
                sessions_per_subject=config.max_sessions_per_caller,
                turns=config.max_turns,
                conversation_bytes=config.max_conversation_kib * 1024,
                idle_seconds=config.session_idle_minutes * 60,
            )
        )
        self._shared = shared(self._memory) if shared is not None and config.max_turns else None

    async def _answer(
        self, turn: ConversationTurn, call: ToolCall, outlet: Outlet, *, begins: bool
    ) -> ToolResult:
        deadline = self._endpoint.deadline()
        async with self._memory.turn(call.subject, turn.session_id, deadline=deadline) as conversation:
            if self._shared is not None and not begins:
                await self._shared.recall(conversation)
            known = conversation.exchanges
            request = self._request(turn, conversation)
            paid = await self._endpoint.paid_call(call.subject, request)
            completion = await self._complete(request, call, outlet, deadline, paid)
            if self._shared is None:
                self._memory.add(conversation, turn.message, completion.text)
            else:
                await self._shared.add(conversation, turn.message, completion.text)
        return _result(turn, completion, remembered=len(known))

    def _request(self, turn: ConversationTurn, conversation: ChatHistory) -> dict[str, Any]:
        messages = [*self._system]
        for exchange in conversation.exchanges:
            messages.append({"role": "user", "content": exchange.said})
            messages.append({"role": "assistant", "content": exchange.answered})
        messages.append({"role": "user", "content": turn.message})
        return {**self._settled, "messages": messages, "stream": self._streams}


def _result(turn: ConversationTurn, completion: ChatCompletion, *, remembered: int) -> ToolResult:
    structured: dict[str, Any] = {
        "reply": completion.text,
        "session_id": turn.session_id,
        "remembered_turns": remembered,
    }
    content = [TextContent(text=completion.text)]
    if completion.finish_reason is not None:
        structured["finish_reason"] = completion.finish_reason
    if completion.finish_reason == "length":
        content.append(TextContent(text=CUT_OFF))
    return ToolResult(content=content, structured=structured)
