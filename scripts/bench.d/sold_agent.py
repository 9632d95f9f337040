"""Another agent of scripts/chaos: what is paid for, and what asks. What it does is noted in a file, where a kill does not reach."""

from __future__ import annotations

import os

from ostiary import Context, tool

FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


def write(text: str) -> None:
    """One line, in one piece, whoever else writes."""
    file = os.open(os.environ["OSTIARY_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{text}\n".encode())
    finally:
        os.close(file)


@tool(price="$0.01")
async def sold(name: str) -> str:
    """It is delivered once."""
    write(f"{name} sold")
    return f"{name} is sold"


@tool
async def posted(name: str) -> str:
    """Costs nothing, and must not be done twice either."""
    write(f"{name} posted")
    return f"{name} is posted"


@tool(task="required")
async def curious(name: str, ctx: Context) -> str:
    """Asks, and says what it was told."""
    write(f"{name} asks")
    answer = await ctx.elicit("Which colour?", FORM, key="colour")
    return f"{name} was told {answer.content['colour'] if answer.content else answer.action}"
