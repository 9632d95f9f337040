"""Every method on one page: its parameters, the eras that have it, the header that repeats its name. Who does it: calls/method_handlers.py.

Spec: schema 2026-07-28 and 2025-11-25 (`ClientRequest`). A method without a row is not offered; a row of one era only
is unknown in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Raw

from server.mcp.method_params import (
    NOTHING_SAID,
    CallToolParams,
    CompleteParams,
    GetPromptParams,
    InitializeParams,
    LevelParams,
    ListenParams,
    ListParams,
    Params,
    ReadResourceParams,
    UriParams,
)
from server.mcp.skills_extension import SkillListParams
from server.mcp.task_params import (
    TaskCreateParams,
    TaskListParams,
    TaskParams,
    TaskRespondParams,
    TaskUpdateParams,
)
from server.mcp.versions import Era

LEGACY: Final = frozenset({Era.LEGACY})
MODERN: Final = frozenset({Era.MODERN})
BOTH: Final = LEGACY | MODERN


class Method(msgspec.Struct, frozen=True):
    name: str
    params: type[Params]
    decode: Callable[[Raw], Params]
    eras: frozenset[Era]
    legacy: bool  # the same, each by itself
    modern: bool
    feature: str | None  # the field of `Offers` without which the server does not have it
    session: bool  # only within a session
    named_by: str | None  # the parameter that `Mcp-Name` repeats
    streams: bool  # answers with a stream, always
    waits: bool  # may run long: the caller's going away is watched for
    wire: bytes  # what `Mcp-Method` must say


def _row(
    name: str,
    params: type[Params],
    eras: frozenset[Era],
    *,
    feature: str | None = None,
    session: bool = False,
    named_by: str | None = None,
    streams: bool = False,
    waits: bool = False,
    decode: Callable[[Raw], Params] | None = None,
) -> Method:
    decode = decode or msgspec.json.Decoder(params).decode
    legacy, modern = Era.LEGACY in eras, Era.MODERN in eras
    return Method(
        name, params, decode, eras, legacy, modern, feature, session, named_by, streams, waits, name.encode()
    )


_decode_hello: Final = msgspec.json.Decoder(InitializeParams).decode


def _read_hello(raw: Raw) -> Params:
    """Read the params of `initialize`: whoever types it by hand says nothing at all; a client that leaves a part out is told which."""
    try:
        return _decode_hello(raw)
    except msgspec.ValidationError:
        if bytes(raw).translate(None, b" \t\r\n") != b"{}":
            raise
        return NOTHING_SAID


# fmt: off
_TABLE: Final = (
    _row("initialize",               InitializeParams,   LEGACY, decode=_read_hello),
    _row("ping",                     Params,             LEGACY),
    _row("server/discover",          Params,             MODERN),
    _row("tools/list",               ListParams,         BOTH),
    _row("tools/call",               CallToolParams,     BOTH,   named_by="name", waits=True),
    # Clients of the handshake era list whatever was declared, and show people the error; so lists are without a feature there.
    _row("resources/list",           ListParams,         BOTH,   feature="resources"),
    _row("resources/templates/list", ListParams,         BOTH,   feature="resources"),
    _row("resources/read",           ReadResourceParams, BOTH,   feature="resources", named_by="uri", waits=True),
    _row("resources/subscribe",      UriParams,          LEGACY, feature="subscribe", session=True),
    _row("resources/unsubscribe",    UriParams,          LEGACY, feature="subscribe", session=True),
    _row("prompts/list",             ListParams,         BOTH,   feature="prompts"),
    _row("prompts/get",              GetPromptParams,    BOTH,   feature="prompts", named_by="name", waits=True),
    _row("skills/list",              SkillListParams,    BOTH,   feature="skills"),
    _row("skills/get",               UriParams,          BOTH,   feature="skills"),
    _row("completion/complete",      CompleteParams,     BOTH,   feature="completions", waits=True),
    _row("logging/setLevel",         LevelParams,        LEGACY, feature="logging", session=True),
    _row("subscriptions/listen",     ListenParams,       MODERN, streams=True, waits=True),
    _row("tasks/get",                TaskParams,         BOTH,   feature="tasks", named_by="task_id"),
    _row("tasks/update",             TaskUpdateParams,   MODERN, feature="tasks", named_by="task_id"),
    _row("tasks/cancel",             TaskParams,         BOTH,   feature="tasks", named_by="task_id"),
    _row("tasks/result",             TaskParams,         LEGACY, feature="tasks", waits=True),
    _row("tasks/list",               TaskListParams,     LEGACY, feature="tasks"),
    _row("tasks/create",             TaskCreateParams,   LEGACY, feature="tasks"),
    _row("tasks/respond",            TaskRespondParams,  LEGACY, feature="tasks"),
)
# fmt: on

METHODS: Final[Mapping[str, Method]] = MappingProxyType({row.name: row for row in _TABLE})
