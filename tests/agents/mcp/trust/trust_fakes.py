"""An upstream's lists, a desk over a real store, an authorization server of another house: for the tests of trust."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import trio

from auth.identity import Identity
from auth.values.identity_model import Principal, PrincipalKind
from server.agents.base.backend import AgentRequest
from server.agents.mcp.offer_guard import UpstreamLists
from server.agents.mcp.trust.definition_guard import TrustMode
from server.agents.mcp.trust.own_tokens import TokenIssuer
from server.agents.mcp.trust.pin_rows import UpstreamKey
from server.agents.mcp.trust.upstream_registry import KnownUpstream, UpstreamRegistry
from server.lib.oauth_client.oauth_answers import OAuthAnswer, OAuthFailure
from server.mcp.messages import Prompt, ResourceTemplate, Tool
from server.store.jobs import Store, StoreUnreachable
from tests.auth.identity_fakes import SITE, Clock, open_identity, seeds, subkey

FILES = UpstreamKey("main", "files")
UPSTREAM_URL = "https://files.example/mcp"
TOKEN_URL = "https://login.example/token"


class EventLog:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, object]]] = []

    def _tell(self, event: str, **fields: object) -> None:
        self.events.append((event, fields))

    debug = info = warning = error = exception = _tell

    @property
    def names(self) -> list[str]:
        return [event for event, _ in self.events]


def a_tool(name: str = "read", description: str = "Reads a file.") -> Tool:
    return Tool(name=name, description=description, input_schema={"type": "object"})


def lists(*tools: Tool, prompts: Sequence[str] = (), templates: Sequence[str] = ()) -> UpstreamLists:
    return UpstreamLists(
        tools=tools,
        prompts=[Prompt(name=name) for name in prompts],
        resource_templates=[ResourceTemplate(uri_template=uri, name="t") for uri in templates],
    )


def names(offered: UpstreamLists) -> list[str]:
    return [
        *(tool.name for tool in offered.tools),
        *(prompt.name for prompt in offered.prompts),
        *(template.uri_template for template in offered.resource_templates),
    ]


class Away:
    """A store that cannot do some jobs at the moment. `done`: those that it did."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.refused: frozenset[str] = frozenset()
        self.done: list[str] = []

    async def read(self, job: Any) -> Any:
        self._begin(job)
        return await self._store.read(job)

    async def write(self, job: Any) -> Any:
        self._begin(job)
        return await self._store.write(job)

    def _begin(self, job: Any) -> None:
        name = job.func.__name__ if isinstance(job, partial) else job.__name__
        if name in self.refused:
            raise StoreUnreachable("the connection was lost")
        self.done.append(name)


class House:
    """A store that lasts, and the desks of the processes that use it one after the other."""

    def __init__(self, identity: Identity, clock: Clock) -> None:
        self.identity = identity
        self.clock = clock
        self.log = EventLog()
        self.store: Store = identity.parts.store  # type: ignore[assignment]  # lends more than identity asks for

    async def desk(
        self,
        mode: TrustMode = "pinned",
        key: UpstreamKey = FILES,
        source: str = "here",
        store: Away | None = None,
    ) -> tuple[UpstreamRegistry, KnownUpstream]:
        desk = self.empty_desk(store=store)
        await desk.prepare({key: source})
        known = KnownUpstream(
            key=key, what="files", url=UPSTREAM_URL, identity="login", guard=desk.guard(key, mode)
        )
        desk.enter(known)
        return desk, known

    def empty_desk(
        self,
        *,
        lasts: bool = True,
        server: FakeAuthorizationServer | None = None,
        store: Away | None = None,
    ) -> UpstreamRegistry:
        return UpstreamRegistry(
            store or self.store,  # type: ignore[arg-type]
            clock=self.clock,
            subkey=subkey,
            entropy=seeds(77),
            log=self.log,
            ask=server or FakeAuthorizationServer({}),
            issuer=self.issuer if lasts else None,
        )

    async def trail(self, like: str = "upstream.%") -> list[tuple[str, str, str]]:
        rows = await self.store.read(
            lambda db: db.fetch_all(
                "SELECT event, actor, reason FROM audit WHERE event LIKE ? ORDER BY seq", like
            )
        )
        return [(row["event"], row["actor"], row["reason"]) for row in rows]

    def issuer(self) -> TokenIssuer:
        parts = self.identity.parts
        ours = [SITE.issuer, *(SITE.audience(name) or "" for name in SITE.servers)]
        return TokenIssuer(
            SITE.issuer,
            lambda: parts.keys.ring.signing(self.clock()),
            ours=ours,
            clock=self.clock,
            entropy=seeds(5),
        )


@asynccontextmanager
async def open_house() -> AsyncGenerator[House]:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        yield House(identity, clock)


class FakeAuthorizationServer:
    """Answers token requests. `answers` are taken in turn, the last one for ever; a callable is given the form."""

    def __init__(
        self, *answers: Mapping[str, Any] | Callable[[Mapping[str, str]], Mapping[str, Any]]
    ) -> None:
        self.forms: list[dict[str, str]] = []
        self.headers: list[Mapping[str, str]] = []
        self.urls: list[str] = []
        self.status = 200
        self.down = False
        self.gate: trio.Event | None = None  # an answer waits for it
        self._answers = list(answers)

    async def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> OAuthAnswer:
        assert method == "POST"
        self.forms.append(dict(parse_qsl(body.decode(), strict_parsing=True)))
        self.headers.append(headers)
        self.urls.append(url)
        if self.gate is not None:
            await self.gate.wait()
        if self.down:
            raise OAuthFailure("does not answer in time")
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        said = answer(self.forms[-1]) if callable(answer) else answer
        status = 400 if "error" in said else self.status
        return OAuthAnswer(status=status, body=json.dumps(said).encode())


def tokens(access: str, *, lives: int | None = 600, refresh: str | None = None) -> dict[str, Any]:
    said: dict[str, Any] = {"access_token": access, "token_type": "Bearer"}
    if lives is not None:
        said["expires_in"] = lives
    if refresh is not None:
        said["refresh_token"] = refresh
    return said


def call_of(
    subject: str = "usr_ann",
    client_id: str | None = "ostiary-cli",
    kind: PrincipalKind = PrincipalKind.USER,
    user: str | None = None,
) -> AgentRequest:
    caller = Principal(kind=kind, subject=subject, client_id=client_id, user=user)
    return AgentRequest(subject=subject, call_id="call_1", caller=caller)


def plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
