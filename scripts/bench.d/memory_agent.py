"""The agent whose memory `scripts/leaks` looks at: what a caller says to it can be large, and so can what it answers."""

from __future__ import annotations

import asyncio
from typing import Any

from ostiary import Context, tool


@tool(task="required")
def weigh_as_task(what: str) -> str:
    """How long it is; whoever asks comes back for that."""
    return f"{len(what)} characters"


@tool
def weigh_all(what: list[Any]) -> str:
    """How many there are."""
    return f"{len(what)} things"


@tool
async def keep(what: Any) -> None:
    """Never answers."""
    await asyncio.sleep(3600)


@tool
def fail(what: str) -> str:
    """Breaks, whatever it is given."""
    raise RuntimeError(f"{len(what)} characters are of no use")


@tool
async def ask(what: str, ctx: Context) -> str:
    """Asks whether it is to go on."""
    sure = await ctx.elicit(f"{len(what)} characters. Go on?", bool, key="sure")
    return sure.action


@tool
def talk(characters: int) -> str:
    """Says so much."""
    return "x" * characters
