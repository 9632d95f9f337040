"""The way from what an API answered to what a caller gets: structured where the document says what it is, else text, always
bounded.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from server.agents.openapi.operations import ApiOperation
from server.lib.counted import counted
from server.lib.surrogates import decode_mended
from server.mcp.messages import (
    AudioContent,
    Content,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    TextContent,
)
from server.mcp.result_encoding import ToolResult, failed_result, text_result

ERROR_CHARACTERS: Final = 2_000  # of a body that explains a failure: enough for a list of what was wrong
MAX_STEPS: Final = 20

FieldPaths = Sequence[Sequence[str]]


def result_of(
    operation: ApiOperation,
    status: int,
    media_type: str,
    body: bytes,
    *,
    kept: FieldPaths,
    as_text: bool,
    most: int,
    call_id: str,
) -> ToolResult:
    """Return the result of a status from 200 to 299. `kept`: of JSON, the fields that are wanted; all where none is named.
    `most` bytes, afterwards."""
    if not body:
        return text_result(f"Done ({status}); there is nothing more to say.")
    is_json = media_type in ("application/json", "text/json") or media_type.endswith("+json")
    if not is_json:
        return _sized(ToolResult(content=(_content(media_type, body, call_id),)), len(body), most)
    try:
        value: Any = decode_mended(msgspec.json.decode, body)
        if kept:
            value = _only(value, kept)
        encoded = msgspec.json.encode(value)
    # Broken, or too deep or too large a number to be passed on as JSON.
    except (ValueError, OverflowError, RecursionError):
        return _sized(text_result(body.decode("utf-8", "replace")), len(body), most)
    said = operation.answer(status)
    described = said is not None and said.schema is not None
    result = ToolResult(
        content=(TextContent(text=encoded.decode()),),
        structured=value if described and not as_text else UNSET,
    )
    return _sized(result, len(encoded), most)


def failure_of(status: int, retry_after: str, masked: str) -> ToolResult:
    """Return a failure. `masked` is the body as text, without credentials."""
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in masked).strip()[:ERROR_CHARACTERS]
    first = f"The API answered {status}"
    if 300 <= status < 400:
        first += " and sends callers elsewhere, which is not followed"
    elif retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 7:
        first += f"; try again in {counted(int(retry_after), 'second')}"
    return failed_result(f"{first}: {text}" if text else f"{first}.")


def field_paths(written: Sequence[str]) -> FieldPaths:
    return [path.split(".")[:MAX_STEPS] for path in written]


def _only(value: Any, kept: FieldPaths) -> Any:
    """Keep the fields of an object that are named; of a list, of each of its items. A path that leads nowhere keeps nothing."""
    if isinstance(value, list):
        return [_only(each, kept) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    table = cast("dict[str, Any]", value)
    deeper: dict[str, list[Sequence[str]]] = {}
    for path in kept:
        deeper.setdefault(path[0], []).append(path[1:])
    found: dict[str, Any] = {}
    for name, rests in deeper.items():
        for key in table if name == "*" else [name]:
            if key in table:
                found[key] = table[key] if not all(rests) else _only(table[key], rests)
    return found


def _sized(result: ToolResult, size: int, most: int) -> ToolResult:
    if size <= most:
        return result
    return failed_result(
        f"The call was made, and its answer has {size // 1024 + 1} KiB: more than {most // 1024} are not passed on."
        " Ask for less at once: for one page, a shorter time, fewer things."
    )


def _content(media_type: str, body: bytes, call_id: str) -> Content:
    if media_type.startswith("text/") or media_type.endswith(("xml", "javascript", "yaml")):
        return TextContent(text=body.decode("utf-8", "replace"))
    blob = b64encode(body).decode("ascii")
    if media_type.startswith("image/"):
        return ImageContent(data=blob, mime_type=media_type)
    if media_type.startswith("audio/"):
        return AudioContent(data=blob, mime_type=media_type)
    if not media_type:
        try:
            return TextContent(text=body.decode())
        except UnicodeDecodeError:
            media_type = "application/octet-stream"
    contents = ResourceContents(uri=f"answer:{call_id}", mime_type=media_type[:100], blob=blob)
    return EmbeddedResource(resource=contents)
