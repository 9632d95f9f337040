"""The agent of the first day: three small tools that show an answer, a structured answer, and a stream.

Nothing is configured and nothing leaves the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, tzinfo
from types import MappingProxyType
from typing import Final

import msgspec

from server.agents.base.backend import ToolCall
from server.agents.base.short_schema import read_schema
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Outlet, Progress
from server.mcp.messages import TextContent, Tool, ToolAnnotations
from server.mcp.result_encoding import ToolResult, failed_result, text_result
from server.mcp.terms import CallTerms

_LOCAL: Final = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

ECHO: Final = Tool(
    name="echo",
    title="Echo",
    description="Returns the given text unchanged. Use it to check that the connection and the login work.",
    input_schema=read_schema({"text": "string: What to return"}),
    annotations=_LOCAL,
)
CLOCK: Final = Tool(
    name="clock",
    title="Clock",
    description="Tells the current date and time in a time zone. Use it whenever an answer depends on what time it is.",
    input_schema=read_schema(
        {
            "zone": {
                "type": "string",
                "description": "A name of the IANA time zone database, such as Europe/Berlin; UTC when left out",
                "pattern": "^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$",
                "maxLength": 64,
                "default": "UTC",
            }
        }
    ),
    output_schema=read_schema(
        {
            "time": "string: ISO 8601, with the zone's offset",
            "zone": "string",
            "utc_offset_minutes": "integer",
        }
    ),
    annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
)
COUNTDOWN: Final = Tool(
    name="countdown",
    title="Countdown",
    description="Counts down to zero and reports every step as progress. Use it to see streaming and cancelling at work.",
    input_schema=read_schema(
        {
            "from": {"type": "integer", "description": "Where to start", "minimum": 1, "maximum": 30},
            "seconds": {
                "type": "number",
                "description": "How long each step takes",
                "minimum": 0,
                "maximum": 10,
                "default": 1,
            },
        }
    ),
    annotations=_LOCAL,
)

# For the catalogue: `echo` and `clock` answer out of their arguments alone.
DEMO_TERMS: Final[Mapping[str, CallTerms]] = MappingProxyType(
    {"echo": CallTerms(quick=True), "clock": CallTerms(quick=True)}
)


class DemoConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[[server.agent]]` with `kind = "demo"`: nothing to set."""


class Demo:
    """A `Backend`. `now` takes a zone and tells the time there."""

    def __init__(self, *, now: Callable[[tzinfo], datetime] = datetime.now) -> None:
        self._now = now

    def tools(self) -> Sequence[Tool]:
        return (ECHO, CLOCK, COUNTDOWN)

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        match call.tool:
            case "echo":
                return text_result(call.arguments["text"])
            case "clock":
                return self._clock(call.arguments.get("zone", "UTC"))
            case "countdown":
                return await _countdown(int(call.arguments["from"]), call.arguments.get("seconds", 1), outlet)
            case _:
                raise BackendError(f"the demo agent has no tool {call.tool}")

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""

    def _clock(self, name: str) -> ToolResult:
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

        try:
            zone = ZoneInfo(name)
        # A folder of the database ("Europe") is an OSError in some Python versions.
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return failed_result(
                f"{name} is not a time zone that this machine knows; try one like Europe/Berlin, or UTC"
            )
        time = self._now(zone).replace(microsecond=0)
        offset = (time.utcoffset() or timedelta()) // timedelta(minutes=1)
        return ToolResult(
            content=(
                TextContent(text=f"It is {time:%A, %d %B %Y, %H:%M:%S} in {name} ({time.isoformat()})."),
            ),
            structured={"time": time.isoformat(), "zone": name, "utc_offset_minutes": offset},
        )


async def _countdown(start: int, seconds: float, outlet: Outlet) -> ToolResult:
    import trio  # every command reads settings, and this is what there is without any

    for done in range(start):
        await outlet.emit(Progress(progress=done, total=start, message=f"{start - done} to go"))
        await trio.sleep(seconds)
    await outlet.emit(Progress(progress=start, total=start, message="done"))
    return text_result(f"Counted down from {start}.")
