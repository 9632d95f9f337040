"""The differences between two mocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from server.agents.mock.mock_document import MockDocument, offered

# Of a mock alone: a server that runs says nothing of these.
ANSWERS: Final = frozenset({"scenarios", "enabled", "text", "json", "blob", "messages", "default", "size"})
# How a kind is called, the key that names one of it, and where a document has them.
_KINDS: Final = (
    ("resource", "uri", "resources"),
    ("template", "uriTemplate", "resource_templates"),
    ("prompt", "name", "prompts"),
)


class MockDifference(msgspec.Struct, frozen=True):
    kind: str
    name: str
    change: Literal["added", "removed", "changed"]
    keys: Sequence[str] = ()  # of what changed


def differences(one: MockDocument, other: MockDocument, *, answers: bool = True) -> Sequence[MockDifference]:
    """List what changes from `one` to `other`. `answers`: also in what they answer, not only in what they offer."""
    found = [*_between("tool", _tools(one), _tools(other), answers)]
    for kind, key, entries in _KINDS:
        before, after = (_by(key, getattr(document, entries)) for document in (one, other))
        found += _between(kind, before, after, answers)
    return found


def _between(
    kind: str, before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]], answers: bool
) -> Iterator[MockDifference]:
    for name, entry in before.items():
        now = after.get(name)
        if now is None:
            yield MockDifference(kind, name, "removed")
            continue
        keys = [
            key
            for key in sorted(entry.keys() | now.keys())
            if (answers or key not in ANSWERS)
            and _shown(entry.get(key), answers) != _shown(now.get(key), answers)
        ]
        if keys:
            yield MockDifference(kind, name, "changed", keys)
    for name in after:
        if name not in before:
            yield MockDifference(kind, name, "added")


def _tools(document: MockDocument) -> Mapping[str, Mapping[str, Any]]:
    """Return the tools with whole schemas, however they are written."""
    return {tool.name: {**_plain(tool), "input": None, **_plain(offered(tool))} for tool in document.tools}


def _by(key: str, entries: Sequence[msgspec.Struct]) -> Mapping[str, Mapping[str, Any]]:
    return {entry[key]: entry for entry in map(_plain, entries)}


def _plain(entry: msgspec.Struct) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(entry))


def _shown(value: Any, answers: bool) -> Any:
    """Return a value for a comparison: without what is a mock's alone, such as the defaults of a prompt's arguments."""
    if not answers and isinstance(value, list):
        return [
            {key: part for key, part in item.items() if key != "default"} if isinstance(item, dict) else item  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            for item in value  # pyright: ignore[reportUnknownVariableType]
        ]
    return value
