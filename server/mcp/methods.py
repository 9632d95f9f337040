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

from server.mcp import handlers
from server.mcp.handlers import Call
from server.mcp.params import CallToolParams, InitializeParams, ListenParams, ListParams, Params
from server.mcp.results import Result
from server.mcp.versions import Era

LEGACY: Final = frozenset({Era.LEGACY})
MODERN: Final = frozenset({Era.MODERN})
BOTH: Final = LEGACY | MODERN


class Method(msgspec.Struct, frozen=True):
    name: str
    params: type[Params]
    decode: Callable[[Raw], Params]
    handler: Callable[[Any, Call], Awaitable[Result]]
    eras: frozenset[Era]
    named_by: str | None  # the parameter that `Mcp-Name` repeats
    streams: bool  # answers with a stream, always
    waits: bool  # may run long: the caller's going away is watched for
    wire: bytes  # what `Mcp-Method` must say


def _row(
    name: str,
    params: type[Params],
    handler: Callable[[Any, Call], Awaitable[Result]],
    eras: frozenset[Era],
    *,
    named_by: str | None = None,
    streams: bool = False,
    waits: bool = False,
) -> Method:
    decode = msgspec.json.Decoder(params).decode
    return Method(name, params, decode, handler, eras, named_by, streams, waits, name.encode())


# fmt: off
_TABLE: Final = (
    _row("initialize",               InitializeParams, handlers.initialize,              LEGACY),
    _row("ping",                     Params,           handlers.ping,                    LEGACY),
    _row("server/discover",          Params,           handlers.discover,                MODERN),
    _row("tools/list",               ListParams,       handlers.list_tools,              BOTH),
    _row("tools/call",               CallToolParams,   handlers.call_tool,               BOTH, named_by="name", waits=True),
    _row("subscriptions/listen",     ListenParams,     handlers.listen,                  MODERN, streams=True, waits=True),
    # Clients of the handshake era ask for these whatever was declared; an error there is shown to people.
    _row("resources/list",           ListParams,       handlers.list_resources,          LEGACY),
    _row("resources/templates/list", ListParams,       handlers.list_resource_templates, LEGACY),
    _row("prompts/list",             ListParams,       handlers.list_prompts,            LEGACY),
)
# fmt: on

METHODS: Final[Mapping[str, Method]] = MappingProxyType({row.name: row for row in _TABLE})
