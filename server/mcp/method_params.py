"""The parameters of each method, decoded once by the method's row in method_table.py.

Unknown fields are ignored, as the protocol asks. The parameters of tasks/* are in task_params.py. Spec: schema 2026-07-28;
parameters that only the handshake era has, 2025-11-25.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType, field

from server.mcp.messages import ProgressToken
from server.mcp.tool_names import DISCOVERY

Level: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class RequestMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """`params._meta`. The first field makes a request a modern one."""

    protocol_version: str | UnsetType = field(default=UNSET, name="io.modelcontextprotocol/protocolVersion")
    client_capabilities: dict[str, Any] | UnsetType = field(
        default=UNSET, name="io.modelcontextprotocol/clientCapabilities"
    )
    client_info: Any = field(default=UNSET, name="io.modelcontextprotocol/clientInfo")
    # Checked where it counts, on a modern request: the handshake era has no such key, so anything may stand there.
    log_level: Any = field(default=UNSET, name="io.modelcontextprotocol/logLevel")
    progress_token: ProgressToken | UnsetType = UNSET
    # Looked at where something costs money: an object or a text, and a text.
    payment: Any = field(default=UNSET, name="x402/payment")
    idempotency_key: Any = field(default=UNSET, name="x402/idempotency-key")
    # Of a list of tools where others get two that search: "list" for the whole of it.
    discovery: Any = field(default=UNSET, name=DISCOVERY)


NO_META = RequestMeta()


class Params(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    meta: RequestMeta = field(default=NO_META, name="_meta")


class InitializeParams(Params, frozen=True, kw_only=True, rename="camel"):
    protocol_version: str
    # Objects, or whatever a client put there: it must not be kept from its handshake by what nobody may use anyway.
    capabilities: Any
    client_info: Any


NOTHING_SAID = InitializeParams(protocol_version="", capabilities={}, client_info={})


class ListParams(Params, frozen=True, kw_only=True, rename="camel"):
    cursor: str | None = None


class Resumable(Params, frozen=True, kw_only=True, rename="camel"):
    """A request that may come again, with answers to what was asked meanwhile (2026-07-28)."""

    input_responses: Any = UNSET  # looked at one by one: a malformed one is asked for again
    request_state: str | UnsetType = UNSET


class CallToolParams(Resumable, frozen=True, kw_only=True, rename="camel"):
    name: str
    arguments: dict[str, Any] | None = None
    task: Any = UNSET  # a wish for a task, `{ttl?}` (2025-11-25); elsewhere, nothing


class ReadResourceParams(Resumable, frozen=True, kw_only=True, rename="camel"):
    uri: str


class GetPromptParams(Resumable, frozen=True, kw_only=True, rename="camel"):
    name: str
    arguments: dict[str, str] | None = None


class UriParams(Params, frozen=True, kw_only=True, rename="camel"):
    """`resources/subscribe` and `resources/unsubscribe`."""

    uri: str


class LevelParams(Params, frozen=True, kw_only=True, rename="camel"):
    level: Level


class PromptReference(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ref/prompt"):
    name: str


class ResourceReference(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ref/resource"):
    uri: str


class CompletedArgument(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str


class CompletionContext(msgspec.Struct, frozen=True, kw_only=True):
    arguments: dict[str, str] | None = None


class CompleteParams(Params, frozen=True, kw_only=True, rename="camel"):
    ref: PromptReference | ResourceReference
    argument: CompletedArgument
    context: CompletionContext | None = None


class ListenFilter(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] | UnsetType = UNSET
    task_ids: list[str] | UnsetType = UNSET


class ListenParams(Params, frozen=True, kw_only=True, rename="camel"):
    notifications: ListenFilter
