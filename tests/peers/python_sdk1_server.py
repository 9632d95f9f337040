"""The official Python SDK's first line (1.x) serving three tools, as its documentation shows: `echo`, `book`, which asks a form of whoever
calls it, and `visit`, which wants a page opened first. It knows the handshake era alone.

usage: python python_sdk1_server.py sse|streamable-http
Prints `Listening on URL` as our own server does.
"""

import socket
import sys

import uvicorn
from mcp.server.fastmcp import Context, FastMCP
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import ElicitRequestURLParams
from pydantic import BaseModel

server = FastMCP("booking")
visited: list[str] = []


class Guest(BaseModel):
    name: str


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Say the same again."""
    return text


@server.tool(structured_output=False)
async def book(context: Context) -> str:  # type: ignore[type-arg]
    """Book a table."""
    answer = await context.elicit("for whom?", Guest)
    return f"booked for {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool(structured_output=False)
async def visit() -> str:
    """Look at a page that has to be opened first."""
    visited.append("now")
    if len(visited) == 1:
        page = ElicitRequestURLParams(
            mode="url", message="open it", url="https://a.example/", elicitationId="1"
        )
        raise UrlElicitationRequiredError([page])
    return "visited"


def main(transport: str) -> None:
    app = server.sse_app() if transport == "sse" else server.streamable_http_app()
    path = "/sse" if transport == "sse" else "/mcp"
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
