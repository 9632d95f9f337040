"""FastMCP over pipes, with tools by whose calls a hop shows: arguments that are coerced, much progress, an answer that is too large.

Run with the `fastmcp` environment.
"""

import os

from fastmcp import Context, FastMCP

server = FastMCP("calls")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def count(to: int, ctx: Context) -> str:
    """Count, as fast as can be told."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to)
    return "counted"


@server.tool
def talk(kib: int) -> str:
    """Say so much."""
    return "x" * kib * 1024


@server.tool
def fall() -> str:
    """End at once."""
    os._exit(3)


if __name__ == "__main__":
    server.run(show_banner=False)
