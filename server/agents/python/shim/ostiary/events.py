"""Events that an async generator yields, as a program would write them in lines: `{"event": "ask", "id": …, "prompt": …}`.

What comes of one is what the `yield` returns: an answer, or whether the call is a task now. Those of wasmagent's agents have their content in
`data`. One whose name is not known means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from .context import Context
from .errors import ToolFailure

Json = Mapping[str, Any]

# Of wasmagent's: the event that it resembles, and which of its data is which of our fields.
_THEIRS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "thinking_delta": ("progress", {"delta": "message"}),
    "planning": ("progress", {"plan": "message"}),
    "tool_call": ("progress", {"toolName": "message"}),
    "await_human_input": ("ask", {"promptId": "id", "prompt": "prompt"}),
    "final_answer": ("final", {"answer": "result"}),
    "error": ("error", {"error": "message"}),
    "guardrail_tripwire": ("error", {"reason": "message"}),
}


def is_event(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(cast("Json", value).get("event"), str)


class Final:
    """What came of an event is the answer of the whole call."""

    def __init__(self, result: Any) -> None:
        self.result = result


async def come_of(value: Json, context: Context, shown: float) -> Any:
    """`shown` is the last progress. Raises `ToolFailure` for an error, and what the context does."""
    name, event = _named(value)
    if name == "progress":
        progress = event.get("progress")
        await context.progress(
            shown + 1 if progress is None else progress, event.get("total"), event.get("message")
        )
    elif name == "message":
        await context.log(event.get("level", "info"), event.get("data"), event.get("logger"))
    elif name == "ask":
        schema = event.get("schema")
        return await context.elicit(
            str(event["prompt"]), str if schema is None else schema, key=event.get("id")
        )
    elif name == "checkpoint":
        await context.checkpoint(event.get("data"))
    elif name == "become_task":
        return await context.become_task()
    elif name == "final":
        return Final(event.get("result"))
    elif name == "error":
        raise ToolFailure(str(event.get("message") or "the agent failed"))
    return None


def _named(value: Json) -> tuple[str, Json]:
    name: str = value["event"]
    data: Any = value.get("data")
    if name in _THEIRS and isinstance(data, Mapping):
        ours, fields = _THEIRS[name]
        return ours, {field: cast("Json", data).get(theirs) for theirs, field in fields.items()}
    return name, value
