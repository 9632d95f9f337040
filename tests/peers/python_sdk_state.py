"""The official Python SDK with a word for each session: over its pipes, or with `http` over Streamable HTTP. Run with the `peers`
environment; over HTTP it prints `Listening on URL`.
"""

import socket
import sys

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("words")
words: dict[str, str] = {}


def session(context: Context) -> str:  # type: ignore[type-arg]
    """Name the session: over pipes there is one."""
    request = context.request_context.request
    return "" if request is None else request.headers.get("mcp-session-id", "")


@server.tool(structured_output=False)
async def keep(word: str, context: Context) -> str:  # type: ignore[type-arg]
    """Keep a word in the session."""
    words[session(context)] = word
    return "kept"


@server.tool(structured_output=False)
async def show(context: Context) -> str:  # type: ignore[type-arg]
    """Show the word that the session keeps."""
    return words.get(session(context), "nothing")


def main() -> None:
    if sys.argv[1:] != ["http"]:
        server.run("stdio")
        return
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
