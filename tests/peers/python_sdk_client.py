"""The official Python SDK as a client: lists the tools and calls `echo`, with a Bearer header from the environment.

usage: MCP_TOKEN=… python python_sdk_client.py URL MODE       MODE: auto, legacy, or a revision such as 2026-07-28
Prints one JSON object: the revision agreed on, the tools' names, the text that came back.
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, mode: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['MCP_TOKEN']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        tools = await client.list_tools()
        result = await client.call_tool("echo", {"text": "hello from the SDK"})
        answer = {
            "revision": client.protocol_version,
            "tools": [tool.name for tool in tools.tools],
            "text": [block.text for block in result.content if block.type == "text"],
            "is_error": result.is_error,
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
