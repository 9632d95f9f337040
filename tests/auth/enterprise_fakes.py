"""A company: an identity provider that vouches for its people, a program that it vouches to, and our server, which believes it.

The provider keeps its keys and documents like the one that people sign in with (upstream_fakes.py), here without sockets.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientRegistration
from auth.grant_types.jwt_bearer_grant import EVENT
from auth.identity import Identity
from auth.providers.provider_requests import Upstreams
from auth.providers.provider_sign_in import Provider
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.database import Row
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import JWT_BEARER, Principal
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy
from auth.values.scopes import Scope, Vocabulary
from server.lib.oauth_client.oauth_answers import OAuthAnswer, OAuthFailure
from tests.auth.identity_fakes import ORIGIN, POLICY, Clock, open_identity, post
from tests.auth.registration_fakes import sent
from tests.auth.upstream_fakes import FakeProvider, pack
from tests.sealing import by_hand

IDP = "https://idp.example"
PAY = Scope(name="pay", words="Spend money", financial=True, listed=True)
SITE = Site(
    issuer=ORIGIN,
    loopback=True,
    servers={"agent": "/mcp", "other": "/other/mcp"},
    scopes=Vocabulary((PAY,)),
)
ALLOW: Mapping[str, str] = {"sub-of-ann": "ann", "email:bob@example.org": "bob", "sub-of-eve": "eve"}
ANN, BOB, EVE = "usr_ann", "usr_bob", "usr_eve"


def trusting() -> Policy:
    return replace(POLICY, assertions=True)


def provider(**changes: Any) -> Provider:
    values: dict[str, Any] = {
        "name": "work",
        "kind": "oidc",
        "label": "Example Ltd",
        "issuer": IDP,
        "client_id": "ostiary-here",
        "secret": None,
        "allow": ALLOW,
        "assertions": True,
    }
    return Provider(**{**values, **changes})


class Idp(FakeProvider):
    """The provider, and what it says of somebody."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.origin = IDP
        self.down = False
        self.made = 0

    async def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> OAuthAnswer:
        if self.down:
            self.asked.append("in vain")
            raise OAuthFailure("does not answer in time")
        status, said = self.answer(method, url.removeprefix(IDP), dict(headers), body.decode())
        return OAuthAnswer(status=status, body=said if isinstance(said, bytes) else json.dumps(said).encode())

    def said_of(self, client_id: str, /, **changed: Any) -> dict[str, Any]:
        """The claims; None takes one out."""
        self.made += 1
        seconds = self.clock() // 1_000
        usual = {
            "iss": IDP,
            "sub": "sub-of-ann",
            "aud": ORIGIN,
            "client_id": client_id,
            "resource": f"{ORIGIN}/mcp",
            "scope": "mcp mcp:tools",
            "jti": f"jti-{self.made}",
            "iat": seconds,
            "exp": seconds + 300,
        }
        return {name: value for name, value in {**usual, **changed}.items() if value is not None}

    def signed(self, claims: dict[str, Any], **head: Any) -> str:
        return self.key.sign(claims, **{"typ": "oauth-id-jag+jwt", **head})

    def raw(self, payload: bytes, **head: Any) -> str:
        """Any payload, signed."""
        shape = {"alg": self.key.algorithm, "kid": self.key.kid, "typ": "oauth-id-jag+jwt", **head}
        signed = f"{pack(json.dumps(shape).encode())}.{pack(payload)}"
        return f"{signed}.{pack(self.key.signature(self.key.algorithm, signed.encode()))}"


@dataclass
class Company:
    identity: Identity
    idp: Idp
    clock: Clock
    # The program's credentials, as a form has them.
    shown: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def client_id(self) -> str:
        return self.shown["client_id"]

    def claims(self, **changed: Any) -> dict[str, Any]:
        return self.idp.said_of(self.client_id, **changed)

    def assertion(self, **changed: Any) -> str:
        return self.idp.signed(self.claims(**changed))

    def request(self, assertion: str | None = None, *pairs: tuple[str, str], **form: str) -> WireRequest:
        shown = self.assertion() if assertion is None else assertion
        return post("/token", *pairs, **{**self.shown, "grant_type": JWT_BEARER, "assertion": shown, **form})

    async def ask(self, assertion: str | None = None, *pairs: tuple[str, str], **form: str) -> WireReply:
        return await sent(self.identity, self.request(assertion, *pairs, **form))

    async def token(
        self, assertion: str | None = None, *pairs: tuple[str, str], **form: str
    ) -> dict[str, Any]:
        reply = await self.ask(assertion, *pairs, **form)
        assert reply.status == 200, reply.body
        return json.loads(reply.body)

    async def caller(self, answer: Mapping[str, Any], server: str = "agent") -> Principal | BearerRefusal:
        return await self.identity.check(
            present(f"Bearer {answer['access_token']}", server=server, origin=ORIGIN)
        )

    async def rows(self, table: str) -> list[Row]:
        return await self.identity.parts.store.read(lambda db: db.fetch_all(f"SELECT * FROM {table}"))

    async def audited(self) -> list[tuple[str, str]]:
        return [(row["outcome"], row["reason"]) for row in await self.rows("audit") if row["event"] == EVENT]

    async def user(self, user_id: str, name: str, *, scope: str = "*", state: str = "enabled") -> None:
        await self.identity.parts.store.write(
            by_hand(
                "INSERT INTO users (id, name, role, state, scope, created_at) VALUES (?, ?, 'user', ?, ?, ?)",
                user_id,
                name,
                state,
                scope,
                self.clock.now,
            )
        )

    async def change_user(self, user_id: str, **columns: object) -> None:
        def job(db: Any) -> None:
            for name, value in columns.items():
                by_hand(f"UPDATE users SET {name} = ? WHERE id = ?", value, user_id)(db)
            db.changed("user", user_id)

        await self.identity.parts.store.write(job)

    async def program(self, **fields: Any) -> dict[str, str]:
        """The credentials of another program that the operator added."""
        values: dict[str, Any] = {
            "name": "Editor",
            "auth_method": "client_secret_basic",
            "grant_types": (JWT_BEARER,),
        }
        registration = ClientRegistration(**{**values, **fields})
        assert registration.check(self.identity.parts.site.scopes) == []
        seed = self.identity.parts.entropy(32)
        added = await self.identity.parts.store.write(
            lambda db: clients.add(db, registration, seed=seed, by="local:0", now=self.clock.now)
        )
        assert added is not None
        shown = {"client_id": added.client.id}
        return shown if added.secret is None else {**shown, "client_secret": added.secret.reveal()}


def upstreams(idp: Idp, *providers: Provider) -> Upstreams:
    return Upstreams({each.name: each for each in providers or (provider(),)}, idp.ask, idp.clock)


async def moved_in(company: Company) -> Company:
    """With three people and one program."""
    for user_id, name in ((ANN, "ann"), (BOB, "bob"), (EVE, "eve")):
        await company.user(user_id, name)
    company.shown = await company.program()
    return company


@asynccontextmanager
async def company(
    *providers: Provider, site: Site = SITE, policy: Policy | None = None
) -> AsyncGenerator[Company]:
    clock = Clock()
    idp = Idp(clock)
    async with open_identity(
        site=site, policy=policy or trusting(), clock=clock, upstreams=upstreams(idp, *providers)
    ) as identity:
        yield await moved_in(Company(identity, idp, clock))
