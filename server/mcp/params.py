"""What a client may send along with each method. Decoded once, by the method's row in methods.py.

Unknown fields are ignored, as the protocol asks. Spec: schema 2026-07-28; `initialize` and `ping` from 2025-11-25.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, field

from server.mcp.messages import ProgressToken


class RequestMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`params._meta`. The first field makes a request a modern one."""

    protocol_version: str | UnsetType = field(default=UNSET, name="io.modelcontextprotocol/protocolVersion")
    client_capabilities: dict[str, Any] | UnsetType = field(
        default=UNSET, name="io.modelcontextprotocol/clientCapabilities"
    )
    progress_token: ProgressToken | UnsetType = UNSET


NO_META = RequestMeta()


class Params(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    meta: RequestMeta = field(default=NO_META, name="_meta")


class InitializeParams(Params, frozen=True, kw_only=True, rename="camel"):
    protocol_version: str | None = None


class ListParams(Params, frozen=True, kw_only=True, rename="camel"):
    cursor: str | None = None


class CallToolParams(Params, frozen=True, kw_only=True, rename="camel"):
    name: str
    arguments: dict[str, Any] | None = None


class ListenFilter(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] | UnsetType = UNSET


class ListenParams(Params, frozen=True, kw_only=True, rename="camel"):
    notifications: ListenFilter
