"""FastMCP with a state for each session, over Streamable HTTP, or with `stdio` over its pipes. Run with the `fastmcp` environment;
over HTTP it prints `Listening on URL`.
"""

import socket
import sys

import uvicorn
from fastmcp import Context, FastMCP

server = FastMCP("memory")


@server.tool(output_schema=None)
async def keep(word: str, ctx: Context) -> str:
    """Keep a word in the session."""
    await ctx.set_state("word", word)
    return "kept"


@server.tool(output_schema=None)
async def show(ctx: Context) -> str:
    """Show the word that the session keeps."""
    return await ctx.get_state("word") or "nothing"


def main() -> None:
    if sys.argv[1:] == ["stdio"]:
        server.run("stdio", show_banner=False)
        return
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(f"Listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(server.http_app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
