"""FastMCP serving one `echo` tool over Streamable HTTP, stateless, as its documentation shows.

Run with the `fastmcp` environment; prints `Listening on URL` as our own server does, so the bench can start either.
"""

import socket

import uvicorn
from fastmcp import FastMCP

server = FastMCP("echo")


# Without an output schema it does what the others do: one text block.
@server.tool(output_schema=None)
def echo(text: str) -> str:
    """Say the same again."""
    return text


def main() -> None:
    app = server.http_app(json_response=True, stateless_http=True)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
