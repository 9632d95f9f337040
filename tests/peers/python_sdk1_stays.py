"""The official Python SDK's first line (1.x) as a client that stays: begins once, and calls `echo` with each line that it reads, to the
end of its input. It knows the handshake era alone.

usage: MCP_TOKEN=… python python_sdk1_stays.py URL
Prints one JSON object for each line: the text that came back, or what the SDK raised.
"""

import asyncio
import json
import os
import sys
from datetime import timedelta

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

PATIENCE = timedelta(seconds=60)


async def main(url: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['MCP_TOKEN']}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        streamable_http_client(url, http_client=http) as (incoming, outgoing, _),
        ClientSession(incoming, outgoing) as session,
    ):
        await session.initialize()
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                result = await session.call_tool(
                    "echo", {"text": line.strip()}, read_timeout_seconds=PATIENCE
                )
                said = {"text": " ".join(block.text for block in result.content if block.type == "text")}
            except Exception as error:
                said = {"error": repr(error)}
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
