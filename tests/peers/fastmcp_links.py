"""FastMCP with a website and an icon, and a tool that links to what no list has, over Streamable HTTP. Run with the
`fastmcp` environment; prints `Listening on URL`."""

import socket
from typing import Any

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import ToolResult
from mcp.types import Icon, ResourceLink, TextContent

server = FastMCP(
    "links",
    version="7",
    website_url="https://links.example",
    icons=[Icon(src="https://links.example/icon.png")],
)


class Unlisted(Middleware):
    """Leaves out of lists what is only linked to."""

    async def on_list_resources(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        return [each for each in await call_next(context) if "result" not in str(each.uri)]


@server.resource("report://result/42")
def result() -> str:
    return "unlisted but readable"


@server.tool(output_schema=None)
def make() -> ToolResult:
    """Make a result, and link to it."""
    link = ResourceLink(type="resource_link", uri="report://result/42", name="result")
    return ToolResult(content=[TextContent(type="text", text="made"), link])


server.add_middleware(Unlisted())


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(server.http_app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
