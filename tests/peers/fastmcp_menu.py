"""FastMCP offering something of everything that it has, over stdio or Streamable HTTP. Run with the `fastmcp` environment.

usage: python fastmcp_menu.py stdio | http     http prints `Listening on URL`
"""

import asyncio
import socket
import sys
from dataclasses import dataclass

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult
from fastmcp.utilities.types import Image
from mcp_types import ResourceLink

server = FastMCP(
    "menu", instructions="Everything that FastMCP has.", version="3.2.1", website_url="https://menu.example/"
)
stopped = asyncio.Event()


@dataclass
class Guest:
    name: str
    seats: int = 2


@server.tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@server.tool(
    title="A picture", tags={"art"}, annotations={"readOnlyHint": True}, meta={"menu.example/kind": "art"}
)
def picture() -> Image:
    """Show a picture."""
    return Image(data=b"\x89PNG", format="png")


@server.tool
def whole() -> ToolResult:
    """Answer with content, structure and metadata of its own."""
    return ToolResult(content="as it is", structured_content={"as": ["it", "is"]}, meta={"menu.example/x": 1})


@server.tool
def link() -> ToolResult:
    """Give a link to something that no list has."""
    return ToolResult(content=[ResourceLink(uri="unlisted://42", name="the answer", mime_type="text/plain")])


@server.resource("unlisted://{number}")
def unlisted(number: int) -> str:
    """Tell one of many, by its number."""
    return f"number {number}"


@server.tool
def fail(how: str) -> str:
    """Fail."""
    if how == "told":
        raise ToolError("this is told to whoever calls")
    raise RuntimeError("this is a fault")


@server.tool
async def steps(ctx: Context) -> str:
    """Tell how far it has come, and log."""
    for done in (1, 2, 3):
        await ctx.report_progress(done, 3, f"step {done}")
    await ctx.info("three steps", logger_name="menu")
    return "done"


@server.tool
async def ask(ctx: Context) -> str:
    """Ask a form."""
    answer = await ctx.elicit("For whom?", Guest)
    return repr(answer.data) if answer.action == "accept" else answer.action


@server.tool
async def wait(ctx: Context) -> str:
    """Wait until it is cancelled."""
    try:
        await ctx.report_progress(0, 1)
        await asyncio.Event().wait()
    finally:
        stopped.set()
    return "never"


@server.tool
async def was_stopped() -> str:
    """Wait until a call was cancelled."""
    await stopped.wait()
    stopped.clear()
    return "a call was cancelled"


@server.tool
async def keep(word: str, ctx: Context) -> str:
    """Keep a word in the session."""
    await ctx.set_state("word", word)
    return "kept"


@server.tool
async def show(ctx: Context) -> str:
    """Show the word that the session keeps."""
    return await ctx.get_state("word") or "nothing"


@server.tool(name="name/with slash")
def odd() -> str:
    """Have a name that some hosts refuse."""
    return "odd"


@server.resource("menu://text", title="A text", mime_type="text/plain", tags={"short"})
def text() -> str:
    """Be a text."""
    return "a text"


@server.resource("menu://bytes", mime_type="application/octet-stream")
def octets() -> bytes:
    """Be bytes."""
    return b"\x00\xff"


@server.resource("path://{filepath*}")
def path(filepath: str) -> str:
    """Take a path of any depth."""
    return f"at {filepath}"


@server.resource("docs://{section}/{page*}")
def docs(section: str, page: str) -> str:
    """Take a section and a path."""
    return f"{section}: {page}"


@server.prompt(title="Greeting")
def greet(name: str, times: int = 1) -> str:
    """Greet somebody."""
    return f"Hello {name}, {times} times"


def main(transport: str) -> None:
    if transport == "stdio":
        server.run("stdio", show_banner=False)
        return
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.http_app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
