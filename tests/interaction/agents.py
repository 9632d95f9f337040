"""Endpoints to talk to: any few tools as a back-end, and everything around them lent by hand."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import structlog
from msgspec.structs import replace

from auth.model import ANONYMOUS, Principal, PrincipalKind
from server.backends.base import Final, Outlet, ToolCall
from server.backends.catalog import Catalog, Source, Terms
from server.backends.demo import DEMO_TERMS, Demo
from server.calls import Calls
from server.crew import Crew
from server.exchange import Lent
from server.http.guard import Admitted, Denied
from server.http.mcp import McpEndpoint
from server.library import Library, Me
from server.mcp.cursors import Cursors
from server.mcp.messages import Implementation, TextContent, Tool
from server.mcp.results import Server
from server.mcp.rounds import Rounds
from server.sessions import Sessions
from server.standing import everyone
from server.subscriptions import Subscriptions
from server.tasks.desk import Tasking
from tests.pair import Pair

Work = Callable[[ToolCall, Outlet], Awaitable[Final]]
ANYTHING = {"type": "object"}


@dataclass
class Agent:
    """A `Backend` of functions."""

    work: dict[str, Work]
    listed: dict[str, Tool] = field(default_factory=dict)
    closed: bool = False

    def tools(self) -> list[Tool]:
        return [self.listed.get(name, Tool(name=name, input_schema=ANYTHING)) for name in self.work]

    async def call(self, call: ToolCall, outlet: Outlet) -> Final:
        return await self.work[call.tool](call, outlet)

    async def aclose(self) -> None:
        self.closed = True


def says(text: str) -> Final:
    return Final(content=(TextContent(text=text),))


@dataclass(frozen=True)
class Refused:
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
    pair: Pair


def house(
    *sources: Source,
    tokens: dict[str, Principal] | None = None,
    policy: Callable[[Principal, Any], bool] = everyone,
    me: Me | None = None,
    subscriptions: Subscriptions | None = None,
    max_body_bytes: int = 2 * 1024 * 1024,
    page_size: int = 200,
    sessions: Sessions | None = None,
    tasks: Callable[[Calls], Tasking] | None = None,
) -> House:
    catalog = Catalog(sources or (Source(name="demo", backend=Demo(), tool_terms=DEMO_TERMS),))
    measured: list[tuple[str, str]] = []
    lines: list[dict[str, Any]] = []

    def keep(_logger: object, level: str, event: Any) -> Any:
        lines.append({**event, "level": level})
        raise structlog.DropEvent

    log = structlog.wrap_logger(structlog.PrintLogger(StringIO()), processors=[keep], wrapper_class=None)
    subscriptions = Subscriptions() if subscriptions is None else subscriptions
    calls = Calls(
        catalog, log=log, measure=lambda tool, outcome, _: measured.append((tool, outcome)), policy=policy
    )

    def guard(_scope: Any, headers: Mapping[bytes, bytes]) -> Admitted | Denied:
        origin = headers.get(b"origin")
        if headers.get(b"host", b"127.0.0.1:8420") != b"127.0.0.1:8420":
            return Denied(reason="unknown host")
        if origin not in (None, b"http://127.0.0.1:8420"):
            return Denied(reason="this origin is not allowed")
        return Admitted(origin="http://127.0.0.1:8420", cors=origin)

    async def authenticate(
        authorization: str | None, *, origin: str, server: str, path: str, tools: str | None, **_shown: object
    ) -> Principal | Refused:
        assert path.startswith("/mcp")
        assert (origin, server) == ("http://127.0.0.1:8420", "main")
        if made.tokens is None:
            return ANONYMOUS
        found = made.tokens.get((authorization or "").removeprefix("Bearer "), Refused())
        if tools is None or not isinstance(found, Principal):
            return found
        return replace(found, tools=f"{found.tools};{tools}")

    def forbid(scopes: frozenset[str], *, origin: str, server: str, path: str) -> Refused:
        scope = " ".join(sorted(scopes))
        return Refused(
            403, f'Bearer error="insufficient_scope", scope="{scope}"', b'{"error":"insufficient_scope"}'
        )

    endpoint = McpEndpoint(
        name="main",
        lent=Lent(
            name="main",
            server=Server(
                Implementation(name="house", version="1.2.3", title="House", description="For tests"),
                instructions="Knock first.",
            ),
            calls=calls,
            library=Library(
                catalog,
                log=log,
                measure=lambda method, outcome, _: measured.append((method, outcome)),
                policy=policy,
                me=me,
            ),
            subscriptions=subscriptions,
            sessions=sessions,
            tasking=None if tasks is None else tasks(calls),
            rounds=Rounds(bytes(32), clock=lambda: 1_800_000_000_000, entropy=secrets.token_bytes),
            cursors=Cursors(bytes(32), "main"),
            page_size=page_size,
            log=log,
        ),
        crew=Crew(log),
        guard=guard,
        authenticate=authenticate,
        forbid=forbid,
        max_body_bytes=max_body_bytes,
    )
    made = House(tokens, catalog, measured, lines, subscriptions, Pair(app=endpoint))
    return made


def agent(*, terms: Terms | None = None, listed: dict[str, Tool] | None = None, **work: Work) -> Source:
    backend = Agent(work, listed or {})
    return (
        Source(name="agent", backend=backend)
        if terms is None
        else Source(name="agent", backend=backend, terms=terms)
    )
