"""The official Python SDK (2.x) offering something of everything that it has, over stdio or Streamable HTTP. Run with the `peers`
environment.

usage: python python_sdk_menu.py stdio | http     http prints `Listening on URL`
"""

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp_types import (
    CallToolResult,
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    Icon,
    InputRequiredResult,
    ListRootsRequest,
    ResourceLink,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

server = MCPServer(
    "menu",
    title="The menu",
    version="3.2.1",
    instructions="Everything that the SDK has.",
    website_url="https://menu.example/",
    icons=[Icon(src="https://menu.example/icon.png", mime_type="image/png", sizes=["48x48"])],
)
stopped = asyncio.Event()


class Guest(BaseModel):
    name: str
    seats: int = 2


class Sum(BaseModel):
    sum: int


@server.tool()
def add(a: int, b: int = 2) -> Sum:
    """Add two numbers."""
    return Sum(sum=a + b)


@server.tool(title="A picture", meta={"menu.example/kind": "art"})
def picture() -> Image:
    """Show a picture."""
    return Image(data=b"\x89PNG", format="png")


@server.tool()
def link() -> CallToolResult:
    """Give a link to something that no list has."""
    found = ResourceLink(uri="unlisted://42", name="the answer", mime_type="text/plain")
    return CallToolResult(content=[found, TextContent(text="see there", _meta={"menu.example/x": 1})])


@server.resource("unlisted://{number}")
def unlisted(number: int) -> str:
    """Tell one of many, by its number."""
    return f"number {number}"


@server.tool()
def fail() -> str:
    """Fail."""
    raise RuntimeError("this is a fault")


@server.tool(structured_output=False)
async def steps(ctx: Context) -> str:
    """Tell how far it has come, and log."""
    for done in (1, 2, 3):
        await ctx.report_progress(done, 3, f"step {done}")
    await ctx.info({"said": "three steps"}, logger_name="menu")
    return "done"


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str:
    """Ask a form, as a server of the handshake era does."""
    answer = await ctx.elicit("For whom?", Guest)
    return repr(answer.data) if answer.action == "accept" else answer.action


@server.tool(structured_output=False)
async def open_page(ctx: Context) -> str:
    """Have a page opened."""
    answer = await ctx.elicit_url("Open it.", "https://menu.example/open", "1")
    return answer.action


@server.tool(structured_output=False)
async def sample(ctx: Context) -> str:
    """Have a model say something."""
    asked = [SamplingMessage(role="user", content=TextContent(text="Say something."))]
    answer = await ctx.session.create_message(asked, max_tokens=10, system_prompt="Be brief.")
    return answer.content.text if isinstance(answer.content, TextContent) else "?"


@server.tool(structured_output=False)
async def where(ctx: Context) -> str:
    """Ask for the roots."""
    return ", ".join(f"{each.name} {each.uri}" for each in (await ctx.session.list_roots()).roots)


@server.tool(structured_output=False)
async def rounds(ctx: Context) -> Any:
    """Ask a form, a model and for the roots, as a server of the stateless era does."""
    if ctx.input_responses:
        return "; ".join(f"{name}: {each!r}" for name, each in sorted(ctx.input_responses.items()))
    form = ElicitRequestFormParams(message="For whom?", requested_schema=Guest.model_json_schema())
    said = SamplingMessage(role="user", content=TextContent(text="Say something."))
    return InputRequiredResult(
        input_requests={
            "guest": ElicitRequest(params=form),
            "said": CreateMessageRequest(params=CreateMessageRequestParams(messages=[said], max_tokens=10)),
            "roots": ListRootsRequest(),
        },
        request_state="the first round",
    )


@server.tool(structured_output=False)
async def wait(ctx: Context) -> str:
    """Wait until it is cancelled."""
    try:
        await ctx.report_progress(0, 1)
        await asyncio.Event().wait()
    finally:
        stopped.set()
    return "never"


@server.tool(structured_output=False)
async def was_stopped() -> str:
    """Wait until a call was cancelled."""
    await stopped.wait()
    stopped.clear()
    return "a call was cancelled"


def new() -> str:
    """Be new."""
    return "new"


async def tell(ctx: Context) -> None:
    await ctx.notify_resource_updated("menu://text")
    await ctx.notify_tools_changed()
    if ctx.protocol_version and ctx.protocol_version < "2026":
        await ctx.session.send_tool_list_changed()


@server.tool(structured_output=False)
async def touch(ctx: Context) -> str:
    """Change a resource and the list of tools."""
    server.add_tool(new, structured_output=False)
    await tell(ctx)
    return "touched"


@server.tool(structured_output=False)
async def untouch(ctx: Context) -> str:
    """Take back what `touch` did."""
    server.remove_tool("new")
    await tell(ctx)
    return "as before"


@server.tool(name="name/with slash", structured_output=False)
def odd() -> str:
    """Have a name that some hosts refuse."""
    return "odd"


@server.resource("menu://text", title="A text", mime_type="text/plain")
def text() -> str:
    """Be a text."""
    return "a text"


@server.resource("menu://bytes", mime_type="application/octet-stream")
def octets() -> bytes:
    """Be bytes."""
    return b"\x00\xff"


@server.prompt(title="Greeting")
def greet(name: str, times: str = "1") -> str:
    """Greet somebody."""
    return f"Hello {name}, {times} times"


@server.completion()
async def complete(ref: Any, argument: Any, _context: Any) -> Completion:
    """Complete anything with two words."""
    return Completion(values=[f"{argument.value}da", f"{argument.value}nna"], total=2, has_more=False)


def main(transport: str) -> None:
    if transport == "stdio":
        server.run("stdio")
        return
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
