"""Addresses of pages (`ui://…`), which hosts draw beside the answer of a tool: where they are named, and how they are changed there.

MCP Apps names a tool's page in `_meta.ui.resourceUri`, older hosts in `_meta["ui/resourceUri"]` or `_meta["openai/outputTemplate"]`. So every
text in `_meta` that is such an address is taken for one. Spec: ext-apps, "UI Resource Format", "Resource Discovery".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, cast

SCHEME: Final = "ui://"
# Deeper in `_meta` no host looks for one.
_LEVELS: Final = 4

Change = Callable[[str], str]


def is_page(address: str) -> bool:
    return address[: len(SCHEME)].lower() == SCHEME


def authority_of(address: str) -> str:
    """Return whose page it is, in small letters: `clock` of `ui://clock/app.html`. Empty where it is no page."""
    if not is_page(address):
        return ""
    rest = address[len(SCHEME) :]
    for end in "/?#\\":
        rest = rest.partition(end)[0]
    return rest.rpartition("@")[2].partition(":")[0].lower()


def pages_in(meta: object, level: int = 0) -> Iterator[str]:
    """Yield each address of a page that `_meta` names."""
    if isinstance(meta, str):
        if is_page(meta):
            yield meta
    elif level < _LEVELS and isinstance(meta, Mapping | list):
        given = cast("Any", meta)
        for each in given.values() if isinstance(meta, Mapping) else given:
            yield from pages_in(each, level + 1)


def is_for(tool_meta: object, who: Literal["model", "app"]) -> bool:
    """Return whether a tool is for the model, or for pages, as its `_meta.ui.visibility` has it: for both where it does not say."""
    ui = cast("Mapping[str, Any]", tool_meta).get("ui") if isinstance(tool_meta, Mapping) else None
    wanted = cast("Mapping[str, Any]", ui).get("visibility") if isinstance(ui, Mapping) else None
    return not wanted or not isinstance(wanted, list) or who in cast("list[Any]", wanted)


def without_pages(meta: Any, gone: Callable[[str], bool], level: int = 0) -> Any:
    """Return the same `_meta` without the addresses of pages that are `gone`."""
    if level >= _LEVELS:
        return meta
    if isinstance(meta, Mapping):
        given = cast("Mapping[str, Any]", meta)
        return {
            key: without_pages(value, gone, level + 1)
            for key, value in given.items()
            if not _is_gone(value, gone)
        }
    if isinstance(meta, list):
        items = cast("list[Any]", meta)
        return [without_pages(each, gone, level + 1) for each in items if not _is_gone(each, gone)]
    return meta


def _is_gone(value: Any, gone: Callable[[str], bool]) -> bool:
    return isinstance(value, str) and is_page(value) and gone(value)


def with_pages(meta: Any, change: Change, level: int = 0) -> Any:
    """Return the same `_meta` with the addresses of pages changed."""
    if isinstance(meta, str):
        return change(meta) if is_page(meta) else meta
    if level >= _LEVELS:
        return meta
    if isinstance(meta, Mapping):
        given = cast("Mapping[str, Any]", meta)
        return {key: with_pages(value, change, level + 1) for key, value in given.items()}
    if isinstance(meta, list):
        return [with_pages(each, change, level + 1) for each in cast("list[Any]", meta)]
    return meta
