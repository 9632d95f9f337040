"""The official Python SDK serving one `echo` tool over Streamable HTTP, stateless, as its documentation shows.

Run with the `peers` environment; prints `Listening on URL` as our own server does, so the bench can start either.
"""

import socket

import uvicorn
from mcp.server import MCPServer

server = MCPServer("echo")


# Without structured output it does what the others do: one text block, no output schema.
@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Say the same again."""
    return text


def main() -> None:
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
