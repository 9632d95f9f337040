"""Why a call failed, in one line of words for the server's owner: for the log, and for the record of the call.

They are the agent's own words, as its caller was told them, so they are bounded, nothing in them steers a terminal, and what looks like
a credential is left out.
"""

from __future__ import annotations

from typing import Final

from server.lib.log.structured_log import scrubbed
from server.lib.log.visible_text import clean
from server.mcp.messages import TextContent
from server.mcp.result_encoding import ToolResult

LONGEST: Final = 300


def reason_of(said: object) -> str:
    """`said`: what the caller was answered, a result or an error; None: nothing."""
    if isinstance(said, ToolResult):
        texts = [block.text for block in said.content if isinstance(block, TextContent)]
        # What asks for payment says so for programs first (payment_stage.py).
        words = texts[-1 if said.asks_payment else 0] if texts else ""
    elif isinstance(said, Exception):
        words = str(said)
    else:
        words = ""
    # As much as could fit: what is cut off afterwards need not be looked through.
    words = " ".join(clean(scrubbed(words[: 4 * LONGEST])).split())
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"
