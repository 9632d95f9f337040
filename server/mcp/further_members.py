"""Members of a tool, a block of content or a result that are not known here: somebody else's server said them, and clients are told them.

They are found where they come in, and put between the known ones where they go out. Names of the protocol's own machinery, of
payments and of ours are none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET

from server.mcp.messages import Annotations, Block, EmbeddedResource, ResourceContents, Tool, ToolAnnotations

Furthered: TypeAlias = Tool | Block | ResourceContents

# About the exchange between it and us, or words by which our own settings, prices and payments are read.
OURS: Final = ("io.modelcontextprotocol/", "io.ostiary/", "x402/", "org.x402/", "agents-x402/")
# Of a result: by these a client tells what kind of answer it is, or what to do next.
RESULT_NAMES: Final = frozenset(
    {
        "_meta", "accepts", "cacheScope", "content", "error", "inputRequests", "isError", "pollIntervalMs", "requestState", "resultType",
        "status", "structuredContent", "task", "taskId", "ttlMs", "x402Version",
    }
)  # fmt: skip


def further_members(given: object, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the members of `given`, as it came, that `kind` does not have; those within `annotations` below that name."""
    if not isinstance(given, Mapping):
        return {}
    members = cast("Mapping[str, Any]", given)
    found = _without(members, _names_of(kind))
    inner = _ANNOTATIONS.get(kind, Annotations)
    if further := further_members(members.get("annotations"), inner):
        found["annotations"] = further
    return found


def further_in_result(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a tool's result that are not the protocol's."""
    return _without(given, RESULT_NAMES)


def flat(item: Furthered) -> Any:
    """Return what goes out: the item itself, or plain JSON with its further members among the others."""
    resource = item.resource if isinstance(item, EmbeddedResource) else None
    inner = UNSET if resource is None else resource.further
    if item.further is UNSET and inner is UNSET:
        return item
    further = {} if item.further is UNSET else dict(item.further)
    annotations = further.pop("annotations", {})
    plain = msgspec.to_builtins(msgspec.structs.replace(item, further=UNSET))
    if annotations:
        plain["annotations"] = {**annotations, **plain.get("annotations", {})}
    if resource is not None:
        plain["resource"] = msgspec.to_builtins(flat(resource))
    return {**further, **plain}


_ANNOTATIONS: Final[Mapping[type[msgspec.Struct], type[msgspec.Struct]]] = {Tool: ToolAnnotations}


@cache
def _names_of(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset({*kind.__struct_encode_fields__, kind.__struct_config__.tag_field or ""})


def _without(members: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if key not in known and not key.startswith(OURS)}
