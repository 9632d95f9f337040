"""The chat back-end in front of a fake agent, set up as a test wants both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from server.agents.chat.chat_agent import ChatBackend, ChatConfig, problems
from server.lib.secret import Secret
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from server.payments.buyer.payer import Payer
from tests.agents.python.fake_agent import KEY, Bytes, Ear, FakeAgent, Handler, fake_agent, tool_call


def backend(
    url: str,
    *,
    headers: Mapping[str, Secret] | None = None,
    payer: Payer | None = None,
    **settings: Any,
) -> ChatBackend:
    config = msgspec.convert({"url": url, **settings}, ChatConfig)
    assert problems(config) == []
    return ChatBackend(config, headers=headers or {}, session_key=KEY, random=Bytes(), payer=payer)


@asynccontextmanager
async def against(handler: Handler, **settings: Any) -> AsyncGenerator[tuple[FakeAgent, ChatBackend]]:
    async with fake_agent(handler) as agent:
        under_test = backend(agent.url, **settings)
        try:
            yield agent, under_test
        finally:
            await under_test.aclose()


async def ask(under_test: ChatBackend, *, subject: str = "user-1", **arguments: Any) -> ToolResult:
    return await under_test.call(
        tool_call(subject=subject, **{"agent_id": "kaya", "message": "hi", **arguments}), Ear()
    )


def text(result: ToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text
