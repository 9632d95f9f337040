"""The agreement with a server: which revision is spoken, what it has, and what a request to it looks like. Pure.

Spec: basic/versioning (2026-07-28), basic/lifecycle (2025-11-25 and before).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from server import __version__
from server.client.mcp_session.session_messages import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    NOTHING,
    UNSUPPORTED_VERSION,
    NoMcpServer,
    ServerRefusal,
    members,
    said,
)
from server.client.mcp_session.session_request import SessionRequest
from server.mcp.carried_extensions import QUESTION_KEYS, declared_by, is_extension
from server.mcp.versions import LATEST, LATEST_LEGACY, REVISIONS, TASKS_EXTENSION

PREFIX: Final = "io.modelcontextprotocol"
PROTOCOL_VERSION: Final = f"{PREFIX}/protocolVersion"
CLIENT_INFO: Final = {"name": "ostiary", "version": __version__}
# Of this one can be sure that the other side is of the stateless era, even though it refuses.
MODERN_REFUSALS: Final = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
NOBODY: Final = frozenset[str]()
_SHOWN: Final = 200
# Every client has them before its model, in every conversation.
INSTRUCTIONS: Final = 8_000
METAS_KEPT: Final = 256  # that are put together once


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    modern: bool
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any] = NOTHING  # what it says of itself
    instructions: str = ""  # for whoever uses it: as much as is passed on

    @property
    def server(self) -> str:
        """The name of the program, for the log."""
        name = self.info.get("name")
        return name[:_SHOWN] if isinstance(name, str) and name.isprintable() else ""

    def has(self, *path: str) -> bool:
        """Return whether it declared this; `has("tools", "listChanged")` wants it to be true or an object."""
        found: Any = self.capabilities
        for name in path:
            found = cast("Mapping[str, Any]", found).get(name) if isinstance(found, Mapping) else None
        return found is True or isinstance(found, Mapping)

    @property
    def has_tasks(self) -> bool:
        if self.modern:
            return self.has("extensions", TASKS_EXTENSION)
        return self.has("tasks", "requests", "tools", "call")


# ── the stateless era ────────────────────────────────────────────────────────────────────────────────────────────────


def discover_params(passed: frozenset[str] = NOBODY) -> dict[str, Any]:
    """Return the params of `server/discover`. `passed`: as `questions` of `modern_params`."""
    return {"_meta": _meta_for(None, passed, False, None)}


def read_discovered(answer: Raw | ServerRefusal, *, not_found: bool = False) -> Agreement | None:
    """Read what `server/discover` came to; None: speak by handshake. `not_found`: over HTTP, with status 404."""
    if isinstance(answer, ServerRefusal):
        supported = None if answer.data is None else answer.data.get("supported")
        if answer.code == UNSUPPORTED_VERSION:
            known = isinstance(supported, list) and LATEST.version in supported
            return _modern({}) if known else None
        if answer.code in MODERN_REFUSALS:
            raise NoMcpServer(f"refuses to say what it has: {answer}")
        # The method is one that every server of this era has; but the era it is.
        return _modern({}) if answer.code == METHOD_NOT_FOUND and not_found else None
    found = members(answer)
    versions = found.get("supportedVersions")
    if not isinstance(versions, list) or LATEST.version not in versions:
        return None
    meta = found.get("_meta")
    info = cast("Mapping[str, Any]", meta).get(f"{PREFIX}/serverInfo") if isinstance(meta, Mapping) else None
    return _modern(
        _mapping(found.get("capabilities")), _mapping(info), said(found.get("instructions"), INSTRUCTIONS)
    )


def modern_params(
    params: Mapping[str, Any],
    call: SessionRequest | None,
    *,
    questions: frozenset[str],
    tasks: bool,
    token: int | None,
) -> dict[str, Any]:
    """Add `_meta`. `questions`: the kinds that may be passed on to callers, and the names of extensions that go through. `token` None: no progress
    is wanted. Entries of `_meta` in `params` go along, below ours."""
    if call is None:
        meta = _meta_for(None, questions, False, None)
    else:
        meta = _meta_for(call.can, questions, tasks, call.log_level)
    carried: Mapping[str, Any] | None = params.get("_meta")
    if carried is not None:
        meta = {**carried, **meta}
    if token is not None:
        meta = {**meta, "progressToken": token}
    return {**params, "_meta": meta}


@lru_cache(maxsize=METAS_KEPT)
def _meta_for(
    can: frozenset[str] | None, questions: frozenset[str], tasks: bool, level: str | None
) -> Mapping[str, Any]:
    """Return the `_meta` of a caller. Callers differ in little, so one is put together once for many. Nobody changes it. `can` None: ours, when
    we find out what there is for all callers, some of whom have each extension."""
    if can is None:
        can = frozenset(filter(is_extension, questions))
    meta = {
        PROTOCOL_VERSION: LATEST.version,
        f"{PREFIX}/clientInfo": CLIENT_INFO,
        f"{PREFIX}/clientCapabilities": capabilities_of(can, questions, tasks=tasks),
    }
    if level is not None:
        meta[f"{PREFIX}/logLevel"] = level
    return meta


def capabilities_of(can: frozenset[str], questions: frozenset[str], *, tasks: bool) -> dict[str, Any]:
    """Return the `ClientCapabilities`: what this caller can be asked and has of extensions, as far as that is passed on."""
    declared: dict[str, Any] = {}
    if "elicitation" in questions:
        modes = {name: dict[str, Any]() for name, word in _MODES if word in can}
        if modes:
            declared["elicitation"] = modes
    if "sampling" in questions and "sampling" in can:
        declared["sampling"] = {"tools": {}} if "sampling.tools" in can else {}
    if "roots" in questions and "roots" in can:
        declared["roots"] = {}
    extensions = declared_by(can, questions)
    if tasks:
        extensions[TASKS_EXTENSION] = {}
    if extensions:
        declared["extensions"] = extensions
    return declared


_MODES: Final = (("form", "elicitation"), ("url", "elicitation.url"))
QUESTION_KINDS: Final = frozenset({"elicitation", "sampling", "roots"})


def _modern(
    capabilities: Mapping[str, Any], info: Mapping[str, Any] = NOTHING, instructions: str = ""
) -> Agreement:
    return Agreement(
        version=LATEST.version,
        modern=True,
        capabilities=capabilities,
        info=info,
        instructions=instructions,
    )


# ── the handshake era ────────────────────────────────────────────────────────────────────────────────────────────────


def initialize_params(
    can: frozenset[str],
    version: str = LATEST_LEGACY.version,
    *,
    of: frozenset[str] | None = None,
    able: frozenset[str] | None = None,
) -> dict[str, Any]:
    """Return the params of `initialize`. They declare what any caller may be able to do: `can`, in the words of `ABILITIES` and of extensions.
    `of`: the words of the one whose session it is; of the extensions, it has the caller's. `able`: the abilities of that one; None: not known."""
    abilities = frozenset(word for word in can if not is_extension(word) and (able is None or word in able))
    words = abilities.union(filter(is_extension, can if of is None else of))
    declared = capabilities_of(words, can, tasks=False)
    if version == LATEST_LEGACY.version and not declared.keys().isdisjoint(QUESTION_KINDS):
        declared["extensions"] = {**declared.get("extensions", {}), QUESTION_KEYS: {}}
    return {"protocolVersion": version, "capabilities": declared, "clientInfo": CLIENT_INFO}


def read_initialized(result: Raw) -> Agreement:
    """Read the answer to `initialize`. Raises `NoMcpServer`."""
    found = members(result)
    version = found.get("protocolVersion")
    revision = REVISIONS.get(version) if isinstance(version, str) else None
    if revision is None or revision.modern:
        raise NoMcpServer("speaks no version of MCP that is known here")
    return Agreement(
        version=revision.version,
        modern=False,
        capabilities=_mapping(found.get("capabilities")),
        info=_mapping(found.get("serverInfo")),
        instructions=said(found.get("instructions"), INSTRUCTIONS),
    )


def handshake_params(params: Mapping[str, Any], token: int | None) -> Mapping[str, Any]:
    return (
        params if token is None else {**params, "_meta": {**params.get("_meta", {}), "progressToken": token}}
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
