"""Examples of calls: which a tool has, whether they may be made, and whether the answer is what the tool promised.

An answer is judged by its form alone. Schemas and answers are somebody else's: nothing in them is fetched, and no value of them is repeated
in what is said about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import jsonschema_rs
import msgspec

from server.client.samples.sample_arguments import declared
from server.lib.json_objects import mapping

TIER: Final = "io.ostiary/tier"
PRICE: Final = "io.ostiary/price"
# As much of a failure's own words as fits a line.
MAX_SAID: Final = 200


class DeclaredExample(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool is called with. `safe`: its owner says that the call changes nothing, or nothing that matters."""

    arguments: Mapping[str, Any]
    safe: bool = False


class ToolVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the examples of one tool."""

    tool: str
    state: Literal["ok", "failed", "skipped"]
    words: str
    ms: int | None = None


def examples_of(tool: Mapping[str, Any], own: DeclaredExample | None) -> list[DeclaredExample]:
    """The owner's, else what the schema has."""
    if own is not None:
        return [own]
    return [DeclaredExample(arguments=arguments) for arguments in declared(mapping(tool.get("inputSchema")))]


def reason_to_skip(tool: Mapping[str, Any], example: DeclaredExample, *, tries_all: bool) -> str | None:
    """Why it had better not be called; None if it may. What moves money is called only where its owner says that this is safe."""
    if example.safe:
        return None
    meta = mapping(tool.get("_meta"))
    if meta.get(TIER) == "financial":
        return "not called: it may move money (example_safe = true calls it)"
    if tries_all:
        return None
    if PRICE in meta:
        return "not called: it costs something (--all calls it)"
    hints = mapping(tool.get("annotations"))
    if meta.get(TIER) == "read" or (TIER not in meta and hints.get("readOnlyHint") is True):
        return None
    return "not called: it may change something (--all or example_safe = true calls it)"


def misfit(tool: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Why a tool's own schema would not take these arguments."""
    problem = _problem(tool.get("inputSchema"), arguments)
    return None if problem is None else f"the example is not what its inputSchema takes: {problem}"


def broken_promise(tool: Mapping[str, Any], result: Mapping[str, Any]) -> str | None:
    """What is wrong with an answer; None if nothing is."""
    if result.get("isError") is True:
        return f"it failed: {_said(result)}"
    if tool.get("outputSchema") is None:
        return None if isinstance(result.get("content"), list) else "its answer has no content"
    if "structuredContent" not in result:
        return "its answer has no structuredContent, which its outputSchema promises"
    problem = _problem(tool["outputSchema"], result["structuredContent"])
    return None if problem is None else f"its answer is not what its outputSchema promises: {problem}"


def _problem(schema: Any, value: Any) -> str | None:
    try:
        validator = jsonschema_rs.validator_for(dict(schema), offline=True, mask="the value")
    except (
        ValueError,
        TypeError,
        RecursionError,
    ) as error:  # a wrong schema is a `ValidationError`, which is the first
        return f"it is no usable JSON Schema: {str(error).partition(chr(10))[0]}"[:MAX_SAID]
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        where = "/".join(str(step) for step in error.instance_path)
        return f"{where + ': ' if where else ''}{error.message}"[:MAX_SAID]
    except (ValueError, TypeError, RecursionError):
        return "it is nested too deeply"
    return None


def _said(result: Mapping[str, Any]) -> str:
    content = result.get("content")
    for block in content if isinstance(content, list) else ():  # pyright: ignore[reportUnknownVariableType]
        text = mapping(block).get("text")
        if isinstance(text, str) and text.strip():
            return " ".join(text.split())[:MAX_SAID]
    return "it does not say why"
