"""The OpenAI back-end in front of a fake API, set up as a test wants both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from server.agents.chat.conversation_memory import Memory
from server.agents.chat.openai_agent import OpenAIBackend, OpenAIConfig, problems
from server.agents.chat.shared_memory import AgentMemory
from server.lib.secret import Secret
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.payments.buyer.payer import Payer
from tests.agents.python.fake_agent import (
    KEY,
    Bytes,
    Ear,
    Exchange,
    FakeAgent,
    Handler,
    Seen,
    fake_agent,
    tool_call,
)


@asynccontextmanager
async def against(
    handler: Handler,
    *,
    api_key: Secret | None = None,
    headers: Mapping[str, Secret] | None = None,
    payer: Payer | None = None,
    shared: Callable[[Memory], AgentMemory] | None = None,
    **settings: Any,
) -> AsyncGenerator[tuple[FakeAgent, OpenAIBackend]]:
    async with fake_agent(handler) as agent:
        config = msgspec.convert(
            {"base_url": f"http://localhost:{agent.port}", "model": "small-1", **settings}, OpenAIConfig
        )
        assert problems(config) == []
        under_test = OpenAIBackend(
            config,
            api_key=api_key,
            headers=headers or {},
            session_key=KEY,
            random=Bytes(),
            progress_seconds=0,
            payer=payer,
            shared=shared,
        )
        try:
            yield agent, under_test
        finally:
            await under_test.aclose()


async def ask(
    under_test: OpenAIBackend,
    message: str = "hi",
    *,
    subject: str = "user-1",
    ear: Ear | None = None,
    **arguments: Any,
) -> ToolResult:
    return await under_test.call(tool_call(subject=subject, message=message, **arguments), ear or Ear())


def completion(content: Any = "hello", *, reason: str | None = "stop", **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": content, **message}
    return {"choices": [{"index": 0, "message": said, "finish_reason": reason}]}


def delta(content: Any = None, *, reason: str | None = None) -> dict[str, Any]:
    said = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": said, "finish_reason": reason}]}


async def parrot(exchange: Exchange) -> None:
    await exchange.reply(completion("you said " + exchange.request.json["messages"][-1]["content"]))


def contents(request: Seen) -> list[str]:
    return [message["content"] for message in request.json["messages"]]


def texts(result: ToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]
