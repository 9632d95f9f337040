"""A server that asks whoever calls, in the way of the documentation of the library that is installed: FastMCP, or the official Python SDK in its
second or first line. `ask` asks a form, `many` twelve of them, `think` a model; `keep` and `show` use the state of a FastMCP session.

usage: python asking_server.py http|stdio        http: prints `Listening on URL`, as our own server does
"""

import socket
import sys
from typing import Any

import uvicorn
from pydantic import BaseModel

try:
    from fastmcp import Context, FastMCP
    from mcp_types import SamplingMessage, TextContent

    KIND = "fastmcp"
except ImportError:
    KIND = "sdk"
    try:
        from mcp.server import MCPServer as FastMCP
        from mcp.server.mcpserver import Context
        from mcp_types import SamplingMessage, TextContent
    except ImportError:
        from mcp.server.fastmcp import Context, FastMCP
        from mcp.types import SamplingMessage, TextContent

server: Any = FastMCP("asking")
PLAIN: dict[str, Any] = {"output_schema": None} if KIND == "fastmcp" else {"structured_output": False}
begun: list[str] = []


class Guest(BaseModel):
    name: str


@server.tool(**PLAIN)
async def ask(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("for whom?", Guest)
    return f"for {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool(**PLAIN)
async def many(ctx: Context) -> str:
    """Ask twelve times, and say how often this was begun."""
    begun.append("once")
    names = [(await ctx.elicit(f"who is number {number}?", Guest)).data.name for number in range(12)]
    return f"{len(names)} answers, begun {len(begun)} time(s)"


@server.tool(**PLAIN)
async def think(ctx: Context) -> str:
    """Ask the caller's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="hello"))
    answer = await ctx.session.create_message(
        messages=[message], max_tokens=10, related_request_id=ctx.request_id
    )
    return str(answer.content.text)


if KIND == "fastmcp":

    @server.tool(**PLAIN)
    async def keep(word: str, ctx: Context) -> str:
        """Keep a word in the session."""
        await ctx.set_state("word", word)
        return "kept"

    @server.tool(**PLAIN)
    async def show(ctx: Context) -> str:
        """Show the word that the session keeps."""
        return await ctx.get_state("word") or "nothing"


def main(transport: str) -> None:
    if transport == "stdio":
        server.run(transport="stdio")
        return
    app = server.http_app() if KIND == "fastmcp" else server.streamable_http_app()
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
