"""Endpoints to talk to: any few tools as a back-end, and everything around them lent by hand."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, cast

import structlog
from msgspec.structs import replace

from auth.tokens.presented_credentials import Presentation, PresentedCredential
from auth.values.identity_model import ANONYMOUS, Principal, PrincipalKind
from server.agents.base.backend import ToolCall
from server.agents.base.catalog import Catalog, CatalogPolicy, Source
from server.agents.base.demo_agent import DEMO_TERMS, Demo
from server.calls.rights.standing import Rights
from server.calls.servers.change_news import ChangesElsewhere
from server.calls.servers.endpoint import Endpoint, TaskRules
from server.calls.servers.me_resource import Me
from server.calls.sessions.background_tasks import BackgroundTasks
from server.calls.sessions.sessions import Sessions
from server.calls.sessions.subscriptions import Subscriptions
from server.mcp.call_outlet import Outlet
from server.mcp.cursors import Cursors
from server.mcp.messages import Implementation, TextContent, Tool
from server.mcp.result_encoding import ServerIdentity, ToolResult
from server.mcp.stateless_rounds import Rounds
from server.mcp.terms import CallTerms
from server.store.call_records.call_book import CallBook
from server.store.idempotency.idempotent_calls import IdempotentCalls
from server.store.limits.endpoint_gate import ServerLimits
from server.transport.admission.bearer_check import Admission, EntryRefusal
from server.transport.http.allowed_hosts import ForeignRequest, OwnRequest
from server.transport.http.entry import Threshold
from server.transport.http.mcp_endpoint import McpEndpoint
from tests.pair import Pair
from tests.served import FakeDoorkeeper, asgi

Work = Callable[[ToolCall, Outlet], Awaitable[ToolResult]]
ANYTHING = {"type": "object"}


@dataclass
class Agent:
    """A `Backend` of functions."""

    work: dict[str, Work]
    listed: dict[str, Tool] = field(default_factory=dict)
    closed: bool = False

    def tools(self) -> list[Tool]:
        return [self.listed.get(name, Tool(name=name, input_schema=ANYTHING)) for name in self.work]

    async def call(self, call: ToolCall, outlet: Outlet) -> ToolResult:
        return await self.work[call.tool](call, outlet)

    async def aclose(self) -> None:
        self.closed = True


def says(text: str) -> ToolResult:
    return ToolResult(content=(TextContent(text=text),))


class Refused(EntryRefusal, frozen=True):
    status: int = 401
    www_authenticate: str = (
        'Bearer resource_metadata="http://127.0.0.1:8420/.well-known/oauth-protected-resource"'
    )
    body: bytes = b'{"error":"invalid_token"}'


USER = Principal(
    kind=PrincipalKind.USER,
    subject="user-1",
    client_id="client-1",
    grant_id="grant-1",
    scopes=frozenset({"mcp:tools"}),
)


@dataclass
class House:
    """An endpoint and what it was lent, for a test to look at and to change. `tokens` None: no login is asked for."""

    tokens: dict[str, Principal] | None
    catalog: Catalog
    measured: list[tuple[str, str]]
    lines: list[dict[str, Any]]
    subscriptions: Subscriptions
    endpoint: Endpoint
    mcp: McpEndpoint
    pair: Pair


def house(
    *sources: Source,
    tokens: dict[str, Principal] | None = None,
    policy: Callable[[Principal, Any], bool] | None = None,
    me: Me | None = None,
    subscriptions: Subscriptions | None = None,
    max_body_bytes: int = 2 * 1024 * 1024,
    page_size: int = 200,
    sessions: Sessions | None = None,
    tasks: TaskRules | None = None,
    refuses_invalid: bool = False,
    limits: ServerLimits | None = None,
    calls: CallBook | None = None,
    keeper: IdempotentCalls | None = None,
    governing: CatalogPolicy | None = None,
    elsewhere: ChangesElsewhere | None = None,
) -> House:
    demo = Source(name="demo", backend=Demo(), tool_terms=DEMO_TERMS)
    catalog = Catalog(sources or (demo,), policy=governing)
    measured: list[tuple[str, str]] = []
    lines: list[dict[str, Any]] = []

    def keep(_logger: object, level: str, event: Any) -> Any:
        lines.append({**event, "level": level})
        raise structlog.DropEvent

    log = structlog.wrap_logger(structlog.PrintLogger(StringIO()), processors=[keep], wrapper_class=None)
    subscriptions = Subscriptions() if subscriptions is None else subscriptions

    def guard(_scope: Any, headers: Mapping[bytes, bytes]) -> OwnRequest | ForeignRequest:
        origin = headers.get(b"origin")
        if headers.get(b"host", b"127.0.0.1:8420") != b"127.0.0.1:8420":
            return ForeignRequest(reason="unknown host")
        if origin not in (None, b"http://127.0.0.1:8420"):
            return ForeignRequest(reason="this origin is not allowed")
        return OwnRequest(origin="http://127.0.0.1:8420", cors=origin)

    async def authenticate(shown: Presentation) -> Principal | Refused:
        assert (shown.path or "").startswith("/mcp")
        assert (shown.origin, shown.server) == ("http://127.0.0.1:8420", "main")
        if made.tokens is None:
            return ANONYMOUS
        credential = shown.credential
        token = credential.secret if isinstance(credential, PresentedCredential) else ""
        found = made.tokens.get(token, Refused())
        if shown.tools is None or not isinstance(found, Principal):
            return found
        return replace(found, tools=f"{found.tools};{shown.tools}")

    def forbid(scopes: frozenset[str], missing: frozenset[str], shown: Presentation) -> Refused:
        scope = " ".join(sorted(scopes))
        return Refused(
            403, f'Bearer error="insufficient_scope", scope="{scope}"', b'{"error":"insufficient_scope"}'
        )

    endpoint = Endpoint(
        name="main",
        identity=ServerIdentity(
            Implementation(name="house", version="1.2.3", title="House", description="For tests"),
            instructions="Knock first.",
        ),
        catalog=catalog,
        rights=Rights(policy),
        subscriptions=subscriptions,
        sessions=sessions,
        tasks=tasks,
        rounds=Rounds(bytes(32), clock=lambda: 1_800_000_000_000, entropy=secrets.token_bytes),
        cursors=Cursors(bytes(32), "main"),
        page_size=page_size,
        measure=lambda name, outcome, _: measured.append((name, outcome)),
        log=log,
        me=me,
        refuses_invalid=refuses_invalid,
        limits=limits,
        calls=calls,
        keeper=None if keeper is None else lambda: keeper,
        elsewhere=elsewhere,
    )
    threshold = Threshold(
        name="main",
        guard=guard,
        doorkeeper=cast("Admission", FakeDoorkeeper(authenticate, forbid)),
        log=log,
        max_body_bytes=max_body_bytes,
        gate=None if limits is None else limits.gate,
    )
    mcp = McpEndpoint(endpoint, threshold, BackgroundTasks(log))
    made = House(tokens, catalog, measured, lines, subscriptions, endpoint, mcp, Pair(app=asgi(mcp.resolve)))
    return made


def agent(*, terms: CallTerms | None = None, listed: dict[str, Tool] | None = None, **work: Work) -> Source:
    backend = Agent(work, listed or {})
    return (
        Source(name="agent", backend=backend)
        if terms is None
        else Source(name="agent", backend=backend, terms=terms)
    )
