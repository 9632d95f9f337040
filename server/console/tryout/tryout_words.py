"""Words and parts of the pages of trying out, for their templates (auth/templates/tryout_form.html and the others).

Everything that a tool, its server or a caller has said is text to a template, which escapes it. A file of an answer is a link with its bytes
in it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from auth.values.requester import shown
from server.console.tryout.tool_form import TryField, as_json
from server.lib.json_objects import mapping

# Of one block of an answer: text is cut there, and of a file that is larger only its size is told.
MAX_SHOWN: Final = 100_000
MAX_FILE: Final = 4 * 1024 * 1024
MAX_BLOCKS: Final = 100
PRICE: Final = "io.ostiary/price"
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})


# ── what a tool says of itself ───────────────────────────────────────────────────────────────────────────────────────


def description(tool: Mapping[str, Any]) -> str:
    words = tool.get("description")
    return shown(words, 2000) if isinstance(words, str) else ""


def first_line(tool: Mapping[str, Any]) -> str:
    words = tool.get("description") or tool.get("title")
    return shown(words.strip().partition("\n")[0], 200) if isinstance(words, str) else ""


def badges_of(tool: Mapping[str, Any], changes: bool) -> list[tuple[str, str]]:
    """Say in a word each what a call does, and what it costs; before each stand its classes."""
    found = [("tag warn", "changes things") if changes else ("tag", "only reads")]
    if destructive(tool):
        found.append(("tag bad", "cannot be undone"))
    if price := price_of(tool):
        found.append(("tag warn", price))
    return found


def destructive(tool: Mapping[str, Any]) -> bool:
    return mapping(tool.get("annotations")).get("destructiveHint") is True


def price_of(tool: Mapping[str, Any], *, whole: bool = False) -> str:
    words = mapping(mapping(tool.get("_meta")).get(PRICE)).get("words")
    if not isinstance(words, str):
        return ""
    return shown(words, 200) if whole else shown(words.partition("; ")[0], 60)


# ── fields and questions ─────────────────────────────────────────────────────────────────────────────────────────────


def options_of(field: TryField) -> list[tuple[str, str]]:
    pairs = (
        [("true", "yes"), ("false", "no")]
        if field.kind == "boolean"
        else [(str(at), title) for at, title in enumerate(field.titles)]
    )
    if not field.required or not field.value:
        pairs = [("", "choose" if field.required else "not given"), *pairs]
    return pairs


def hint_of(field: TryField) -> str:
    how = {"list": "One per line.", "json": "As JSON."}.get(field.kind, "")
    return " ".join(part for part in (shown(field.hint, 400), how) if part)


def message_of(params: Mapping[str, Any]) -> str:
    message = params.get("message")
    return shown(message, 4000) if isinstance(message, str) else ""


class AskedPage(NamedTuple):
    hostname: str  # "": it cannot be opened from here


def page_asked(params: Mapping[str, Any]) -> AskedPage | None:
    """Return the page that somebody is to open; None where fields are asked for."""
    url = params.get("url")
    if params.get("mode") != "url" or not isinstance(url, str):
        return None
    parts = urlsplit(url)
    return AskedPage(parts.hostname or "" if parts.scheme in ("https", "http") else "")


# ── an answer ────────────────────────────────────────────────────────────────────────────────────────────────────────


class AnswerBlock(NamedTuple):
    kind: Literal["text", "link", "picture", "file", "large", "unreadable"]
    text: str = ""
    uri: str = ""
    mime: str = ""
    data: str = ""


def blocks_of(result: Mapping[str, Any]) -> Sequence[AnswerBlock]:
    blocks = result.get("content")
    found = cast("list[Any]", blocks) if isinstance(blocks, list) else []
    return [_block(mapping(each)) for each in found[:MAX_BLOCKS]]


def _block(block: Mapping[str, Any]) -> AnswerBlock:
    match block.get("type"):
        case "text":
            return AnswerBlock("text", str(block.get("text", "")))
        case "image" | "audio":
            return _file(str(block.get("data", "")), str(block.get("mimeType", "")), str(block.get("type")))
        case "resource_link":
            return AnswerBlock("link", uri=str(block.get("uri", "")))
        case "resource":
            resource = mapping(block.get("resource"))
            uri = str(resource.get("uri", ""))
            if isinstance(resource.get("text"), str):
                return AnswerBlock("text", str(resource["text"]), uri)
            file = _file(str(resource.get("blob", "")), str(resource.get("mimeType", "")), "file")
            return file._replace(uri=uri)
        case _:
            return AnswerBlock("text", as_json(dict(block)))


def _file(data: str, mime: str, what: str) -> AnswerBlock:
    """Show a picture that browsers know; make any other file a download that is called nothing that a browser would open."""
    try:
        size = len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return AnswerBlock("unreadable", what)
    told = f"{shown(mime, 60) or what}, {max(1, size // 1024)} KiB"
    if len(data) > MAX_FILE:
        return AnswerBlock("large", told)
    return AnswerBlock("picture" if mime in PICTURES else "file", told, mime=mime, data=data)


def visible(text: str) -> str:
    """Cut a text, with marks in place of what steers a screen."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text[:MAX_SHOWN])


def seconds(passed: float) -> str:
    return f"{passed * 1000:.0f} ms" if passed < 1 else f"{passed:.1f} s"


_FUNCTIONS: Final = (
    as_json, badges_of, blocks_of, description, destructive, first_line, hint_of, message_of, options_of, page_asked, price_of, seconds,
    visible,
)  # fmt: skip
# Names that the templates know.
WORDS: Final[Mapping[str, Any]] = MappingProxyType(
    {"most_shown": MAX_SHOWN, **{each.__name__: each for each in _FUNCTIONS}}
)
