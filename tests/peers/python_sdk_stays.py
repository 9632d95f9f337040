"""The official Python SDK as a client that stays: begins once, and calls `echo` with each line that it reads, to the end of its input.

usage: MCP_TOKEN=… python python_sdk_stays.py URL MODE       MODE: auto, legacy, or a revision such as 2026-07-28
Prints one JSON object for each line: the text that came back, or what the SDK raised.
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
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                result = await client.call_tool("echo", {"text": line.strip()}, read_timeout_seconds=60)
                said = {"text": " ".join(block.text for block in result.content if block.type == "text")}
            except Exception as error:
                said = {"error": repr(error)}
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
