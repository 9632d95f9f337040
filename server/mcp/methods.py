"""Every method on one page: its parameters, its handler, the eras that have it, the header that repeats its name.

Spec: schema 2026-07-28 and 2025-11-25 (`ClientRequest`). A method without a row is not offered; a row of one era only
is unknown in the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Raw

from server.mcp import handlers, task_handlers
from server.mcp.params import (
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
from server.mcp.results import Result
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
    handler: Callable[[Any, Any], Awaitable[Result]]
    eras: frozenset[Era]
    feature: str | None  # the field of `Offers` without which the server does not have it
    session: bool  # only within a session
    named_by: str | None  # the parameter that `Mcp-Name` repeats
    streams: bool  # answers with a stream, always
    waits: bool  # may run long: the caller's going away is watched for
    wire: bytes  # what `Mcp-Method` must say


def _row(
    name: str,
    params: type[Params],
    handler: Callable[[Any, Any], Awaitable[Result]],
    eras: frozenset[Era],
    *,
    feature: str | None = None,
    session: bool = False,
    named_by: str | None = None,
    streams: bool = False,
    waits: bool = False,
) -> Method:
    decode = msgspec.json.Decoder(params).decode
    return Method(
        name, params, decode, handler, eras, feature, session, named_by, streams, waits, name.encode()
    )


# fmt: off
_TABLE: Final = (
    _row("initialize",               InitializeParams,   handlers.initialize,              LEGACY),
    _row("ping",                     Params,             handlers.ping,                    LEGACY),
    _row("server/discover",          Params,             handlers.discover,                MODERN),
    _row("tools/list",               ListParams,         handlers.list_tools,              BOTH),
    _row("tools/call",               CallToolParams,     handlers.call_tool,               BOTH,   named_by="name", waits=True),
    # Clients of the handshake era list whatever was declared, and show people the error; so lists are without a feature there.
    _row("resources/list",           ListParams,         handlers.list_resources,          BOTH,   feature="resources"),
    _row("resources/templates/list", ListParams,         handlers.list_resource_templates, BOTH,   feature="resources"),
    _row("resources/read",           ReadResourceParams, handlers.read_resource,           BOTH,   feature="resources", named_by="uri", waits=True),
    _row("resources/subscribe",      UriParams,          handlers.subscribe,               LEGACY, feature="resources", session=True),
    _row("resources/unsubscribe",    UriParams,          handlers.unsubscribe,             LEGACY, feature="resources", session=True),
    _row("prompts/list",             ListParams,         handlers.list_prompts,            BOTH,   feature="prompts"),
    _row("prompts/get",              GetPromptParams,    handlers.get_prompt,              BOTH,   feature="prompts", named_by="name", waits=True),
    _row("completion/complete",      CompleteParams,     handlers.complete,                BOTH,   feature="completions", waits=True),
    _row("logging/setLevel",         LevelParams,        handlers.set_level,               LEGACY, feature="logging", session=True),
    _row("subscriptions/listen",     ListenParams,       handlers.listen,                  MODERN, streams=True, waits=True),
    _row("tasks/get",                TaskParams,         task_handlers.get,                BOTH,   feature="tasks", named_by="task_id"),
    _row("tasks/update",             TaskUpdateParams,   task_handlers.update,             MODERN, feature="tasks", named_by="task_id"),
    _row("tasks/cancel",             TaskParams,         task_handlers.cancel,             BOTH,   feature="tasks", named_by="task_id"),
    _row("tasks/result",             TaskParams,         task_handlers.result,             LEGACY, feature="tasks", waits=True),
    _row("tasks/list",               TaskListParams,     task_handlers.list_tasks,         LEGACY, feature="tasks"),
    _row("tasks/create",             TaskCreateParams,   task_handlers.create,             LEGACY, feature="tasks"),
    _row("tasks/respond",            TaskRespondParams,  task_handlers.respond,            LEGACY, feature="tasks"),
)
# fmt: on

METHODS: Final[Mapping[str, Method]] = MappingProxyType({row.name: row for row in _TABLE})
