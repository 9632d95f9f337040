"""An API on a real socket, and the back-end that was made from its description.

The three documents are written for these tests, each in the manner of a kind that is published: JSON of 3.0 with components, YAML of 3.1 with
anchors and every style of parameter, and YAML without identifiers, as generators write it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import structlog
import trio

from server.agents.base.backend import Announce
from server.agents.openapi.api_credentials import AskToken, ask_token
from server.agents.openapi.openapi_agent import OpenApiBackend
from server.agents.openapi.openapi_settings import OpenApiConfig, problems
from server.lib.secret import Secret
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult
from tests.agents.python.fake_agent import Ear, FakeAgent, Handler, fake_agent, tool_call

DOCUMENTS = Path(__file__).parent
NOBODY = Announce(lists=lambda: None, resource=lambda _: None)


def document(name: str) -> bytes:
    return next(DOCUMENTS.glob(f"{name}.*")).read_bytes()


def api(paths: Mapping[str, Any], *, version: str = "3.1.0", **more: Any) -> bytes:
    return json.dumps({"openapi": version, "info": {}, "paths": paths, **more}).encode()


def config(**settings: Any) -> OpenApiConfig:
    made = msgspec.convert({"document": "api.yaml", **settings}, OpenApiConfig)
    assert problems(made) == []
    return made


@asynccontextmanager
async def opened(
    data: bytes,
    base_url: str = "http://localhost:1/api",
    *,
    given: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    ask: AskToken = ask_token,
    sink: StringIO | None = None,
    **settings: Any,
) -> AsyncGenerator[OpenApiBackend]:
    """`given` are credentials by the names of their schemes."""
    log = structlog.wrap_logger(
        structlog.PrintLogger(sink or StringIO()), processors=[structlog.processors.JSONRenderer()]
    )
    with TemporaryDirectory() as folder:
        file = Path(folder) / "api"
        file.write_bytes(data)
        under_test = OpenApiBackend(
            config(document=str(file), base_url=base_url, **settings),
            headers={name: Secret(value) for name, value in (headers or {}).items()},
            given={name: Secret(value) for name, value in (given or {}).items()},
            name="main[1]",
            log=log,
            ask=ask,
        )
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(under_test.run, NOBODY)
        except* Exception as group:
            raise group.exceptions[0] from None
        try:
            yield under_test
        finally:
            await under_test.aclose()


@asynccontextmanager
async def against(
    data: bytes, handler: Handler, **settings: Any
) -> AsyncGenerator[tuple[FakeAgent, OpenApiBackend]]:
    async with (
        fake_agent(handler) as agent,
        opened(data, f"http://localhost:{agent.port}/api", **settings) as under_test,
    ):
        yield agent, under_test


async def ask_for(under_test: OpenApiBackend, tool: str, **arguments: Any) -> ToolResult:
    return await under_test.call(tool_call(tool, **arguments), Ear())


def text(result: ToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text
