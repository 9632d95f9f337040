"""Calls that run on without their client, in memory: what is kept of them, and for how long. Which these are is server/calls/abandoned_calls.py's."""

from __future__ import annotations

from typing import Final

import msgspec
import trio

from server.mcp.result_encoding import ToolResult

# Whoever lost an answer asks again soon, or never.
KEPT_SECONDS: Final = 60.0
# Of all callers of a server, and of one: what is kept of a large answer is nothing.
MOST: Final = 64
MOST_OF_CALLER: Final = 8
MOST_BYTES: Final = 1024 * 1024


class AbandonedCall:
    """One call, from when its client was missed. `answer` None once `over`: there is nothing to give."""

    __slots__ = ("answer", "caller", "over", "taken", "until")

    def __init__(self, caller: str) -> None:
        self.caller: Final = caller
        self.over: Final = trio.Event()
        self.answer: ToolResult | None = None
        self.taken = False  # somebody waits for it
        self.until = trio.current_time() + KEPT_SECONDS  # once it is over

    def end(self, answer: object) -> None:
        if isinstance(answer, ToolResult) and len(msgspec.json.encode(answer)) <= MOST_BYTES:
            self.answer = answer
        self.until = trio.current_time() + KEPT_SECONDS
        self.over.set()

    @property
    def gone(self) -> bool:
        if not self.over.is_set():
            return False
        return self.answer is None or self.taken or trio.current_time() >= self.until


def forget(adrift: dict[bytes, AbandonedCall]) -> None:
    """Those of which there is nothing to give any more."""
    for name in [name for name, call in adrift.items() if call.gone]:
        del adrift[name]
