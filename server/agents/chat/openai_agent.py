"""A model behind an OpenAI-compatible API: `POST <base_url>/v1/chat/completions`.

The API remembers nothing, so the conversation of each (subject, session_id) is kept in `conversation_memory.py` and sent along. Calls
of one conversation run one after the other, because each needs the answer of the one before; calls without a session_id
have a conversation each. A streamed answer becomes one result, with progress on the way; progress says how much has
come, never what: a result may have to be paid for before it is seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import trio
from msgspec import Meta

from server.agents.base.backend import ToolCall, Trouble
from server.agents.chat.chat_completions import (
    BadCompletion,
    ChatCompletion,
    Pieces,
    UpstreamSaid,
    failure_text,
    whole,
)
from server.agents.chat.chat_endpoint import (
    ANSWER_BYTES,
    PROGRESS_SECONDS,
    STREAM_BYTES,
    AgentEndpoint,
    EndpointConfig,
    empty_response,
    endpoint_problems,
)
from server.agents.chat.conversation_memory import ChatHistory, MakeCommonMemory, Memory, MemoryLimits
from server.agents.chat.conversation_tool import (
    ENTROPY_BYTES,
    ConversationTurn,
    SessionNames,
    conversation_tool,
    read_turn,
)
from server.lib.http_client.failures import DeadlinePassed
from server.lib.secret import Secret
from server.lib.shortened import short_name
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.messages import TextContent, Tool
from server.mcp.result_encoding import ToolResult
from server.settings.header_settings import REFERENCE, address_problem

if TYPE_CHECKING:
    from server.payments.buyer.payer import PaidCall, Payer

DESCRIPTION = (
    "Send one message to an AI model and get its reply. To continue a conversation, pass the session_id of the previous "
    "result; leave session_id out to start a new one. Say everything that the model needs, because it does not see your "
    "own conversation. A reply may take a minute or more; do not repeat a call that is still running."
)
CUT_OFF = "[The answer was cut off at the model's length limit.]"
VERSION_SEGMENT = re.compile(r"v\d+\w*")
# Decided by other settings, or not of use with one reply in text.
OWN_FIELDS = frozenset({"messages", "model", "n", "stream", "temperature", "max_tokens"})


class OpenAIConfig(EndpointConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[server.agent]]` with `kind = "openai"`."""

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
    stream: Annotated[bool, Meta(description="true or false")] = False
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
    """(key, what is wrong and what to write) for each rule that types cannot hold."""
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
    """Where it lists what it has."""
    path = urlsplit(completions_url(base_url)).path
    return path.removesuffix("/chat/completions") + "/models"


def completions_url(base_url: str) -> str:
    """The address to post to: `base_url` may be the host, its /v1, or already the whole address."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        versioned = VERSION_SEGMENT.fullmatch(path.rpartition("/")[2])
        path += "/chat/completions" if versioned else "/v1/chat/completions"
    return parts._replace(path=path).geturl()


class OpenAIBackend:
    """One tool, in front of one model."""

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
        shared: MakeCommonMemory | None = None,
    ) -> None:
        """`api_key` and `headers` are the configured ones with their references read; `shared`: where conversations are that other
        processes go on with.

        Raises `ValueError` and `SecretUnreadable` for settings that turn out not to work."""
        bearer = {"Authorization": Secret(f"Bearer {api_key.reveal()}")} if api_key else {}
        self._models_path = models_path(config.base_url)
        self._endpoint = AgentEndpoint(
            completions_url(config.base_url), config, {**headers, **bearer}, explain=failure_text, payer=payer
        )
        self._system = ({"role": "system", "content": config.system_prompt},) if config.system_prompt else ()
        chosen = {"temperature": config.temperature, "max_tokens": config.max_tokens}
        self._settled = {
            **config.parameters,
            **{name: value for name, value in chosen.items() if value is not None},
            "model": config.model,
        }
        self._streams = config.stream
        self._names = SessionNames(session_key, agent=config.base_url)
        self._random = random
        self._progress_seconds = progress_seconds
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
        self._tool = conversation_tool(
            name=config.tool_name,
            title=config.tool_title,
            description=config.tool_description or DESCRIPTION,
            result={
                "remembered_turns": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "How many earlier exchanges the model was shown; 0 means that it knows of none.",
                },
                "finish_reason": {
                    "type": "string",
                    "description": "Why the model stopped, in its own terms.",
                },
            },
        )

    def tools(self) -> Sequence[Tool]:
        return (self._tool,)

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        """One message, one reply. Raises `BackendError` where the model could not be asked or did not answer well;
        then, and when it is cancelled, the conversation is what it was before."""
        if call.tool != self._tool.name:
            raise BackendError(f"unknown tool: {short_name(call.tool)}")
        fresh = self._names.make(call.subject, self._random(ENTROPY_BYTES))
        turn = read_turn(call, names=self._names, fresh=fresh)
        if isinstance(turn, ToolResult):
            return turn
        deadline = self._endpoint.deadline()
        try:
            async with self._memory.turn(call.subject, turn.session_id, deadline=deadline) as conversation:
                if self._shared is not None and turn.session_id != fresh:
                    await self._shared.recall(conversation)
                known = conversation.exchanges
                completion = await self._complete(self._request(turn, conversation), call, outlet, deadline)
                if self._shared is None:
                    self._memory.add(conversation, turn.message, completion.text)
                else:
                    await self._shared.add(conversation, turn.message, completion.text)
        except DeadlinePassed:
            return self._endpoint.too_slow()
        except UpstreamSaid as error:
            raise BackendError(f"agent endpoint reported: {self._endpoint.clean(str(error))}") from None
        except BadCompletion as error:
            raise BackendError(f"agent endpoint {error}") from error
        return _result(turn, completion, remembered=len(known))

    def trouble(self) -> Trouble | None:
        return self._endpoint.trouble.found

    async def reach(self) -> None:
        await self._endpoint.reach(self._models_path)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    def _request(self, turn: ConversationTurn, conversation: ChatHistory) -> dict[str, Any]:
        messages = [*self._system]
        for exchange in conversation.exchanges:
            messages.append({"role": "user", "content": exchange.said})
            messages.append({"role": "assistant", "content": exchange.answered})
        messages.append({"role": "user", "content": turn.message})
        return {**self._settled, "messages": messages, "stream": self._streams}

    async def _complete(
        self, request: dict[str, Any], call: ToolCall, outlet: Outlet, deadline: float
    ) -> ChatCompletion:
        paid = await self._endpoint.paid_call(call.subject, request)
        deadline = await self._endpoint.take_turn(call, deadline)
        try:
            if self._streams:
                completion = await self._streamed(request, call, outlet, deadline, paid)
            else:
                completion = whole(
                    await self._endpoint.ask(request, call_id=call.call_id, deadline=deadline, paid=paid)
                )
        finally:
            self._endpoint.end_turn(call)
        if not completion.text:
            raise empty_response()
        return completion

    async def _streamed(
        self,
        request: dict[str, Any],
        call: ToolCall,
        outlet: Outlet,
        deadline: float,
        paid: PaidCall | None,
    ) -> ChatCompletion:
        pieces, told, next_at = Pieces(), 0, 0.0
        async with self._endpoint.stream(
            request, call_id=call.call_id, deadline=deadline, limit=STREAM_BYTES, paid=paid
        ) as answer:
            if answer.media_type == "application/json":  # it does not stream, whatever it was asked
                return whole(await answer.read(ANSWER_BYTES))
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    pieces.feed(chunk)
                    if pieces.ended:
                        break
                    if pieces.characters > told and trio.current_time() >= next_at:
                        told, next_at = pieces.characters, trio.current_time() + self._progress_seconds
                        await outlet.emit(Progress(progress=told, message=f"{told} characters so far"))
        return pieces.completion()


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
