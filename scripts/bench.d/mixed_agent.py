"""The agent of scripts/chaos and scripts/soak. What it does is noted in a file, where a kill does not reach."""

from __future__ import annotations

import asyncio
import os

from ostiary import Context, tool

STEPS = 4


def note(text: str) -> None:
    path = os.environ.get("OSTIARY_NOTES")
    if path:
        with open(path, "a", encoding="utf-8") as notes:
            notes.write(f"{text}\n")


@tool
async def again(text: str) -> str:
    """Say the same again."""
    return text


@tool(task="optional")
async def steps(name: str, ctx: Context, seconds: float = 0.05) -> str:
    """Some steps, each kept before the next one begins."""
    first = ctx.resumed["done"] if ctx.resumed else 0
    for step in range(first, STEPS):
        note(f"{name} begins {step}")
        await ctx.progress(step, STEPS, f"step {step}")
        await asyncio.sleep(seconds)
        await ctx.checkpoint({"done": step + 1})
        note(f"{name} kept {step}")
    return f"{name} took {STEPS} steps"
