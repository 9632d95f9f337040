"""The official Python SDK in front of servers that stand behind ours: what is listed, and what a few calls come to.

usage: MCP_TOKEN=… python python_sdk_gateway.py URL MODE CALLS      CALLS: JSON, [[tool, arguments], …]
Prints one JSON object. Whatever it is asked, it answers: forms with what fits, for samples "a sample".
"""

import asyncio
import json
import os
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CreateMessageResult, ElicitResult, TextContent


async def elicit(_context: Any, params: Any) -> ElicitResult:
    content = {}
    for name, schema in params.requested_schema["properties"].items():
        choices = schema.get("enum") or [each["const"] for each in schema.get("oneOf", [])]
        if choices:
            content[name] = choices[0]
        elif schema.get("type") == "string" and not schema.get("format"):
            content[name] = "Ada"
    return ElicitResult(action="accept", content=content)


async def sample(_context: Any, params: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text="a sample"), model="none")


async def main(url: str, mode: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    headers = {"Authorization": f"Bearer {os.environ['MCP_TOKEN']}"}
    progress: list[float] = []

    async def heard(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
        Client(
            streamable_http_client(url, http_client=http),
            mode=mode,
            elicitation_callback=elicit,
            sampling_callback=sample,
        ) as client,
    ):
        answer: dict[str, Any] = {
            "revision": client.protocol_version,
            "tools": [tool.name for tool in (await client.list_tools()).tools],
            "prompts": [prompt.name for prompt in (await client.list_prompts()).prompts],
            "resources": [str(resource.uri) for resource in (await client.list_resources()).resources],
            "results": [],
        }
        for tool, arguments in calls:
            result = await client.call_tool(tool, arguments, progress_callback=heard)
            answer["results"].append(
                {
                    "text": "".join(block.text for block in result.content if block.type == "text"),
                    "kinds": [block.type for block in result.content],
                    "structured": result.structured_content,
                    "is_error": result.is_error,
                }
            )
        answer["progress"] = progress
        if answer["prompts"]:
            found = await client.get_prompt(answer["prompts"][0])
            answer["prompt"] = found.messages[0].content.text
        if answer["resources"]:
            read = await client.read_resource(answer["resources"][0])
            answer["read"] = len(read.contents)
    print(json.dumps(answer))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
