"""Identity and its pages over one store, a browser in front of them, and a program that signs in by authorization code."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from auth.authorization import pkce
from auth.clients import client_registry as clients
from auth.clients.client_identifier_urls import NO_DOCUMENTS, Documents
from auth.clients.client_registry import ClientRegistration
from auth.context.identity_parts import Hashing, Parts
from auth.identity import Identity
from auth.values.database import Row
from auth.values.http_messages import WireReply
from auth.values.identity_model import AUTHORIZATION_CODE, REFRESH_TOKEN, Client
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy
from tests.auth.browser_fakes import PASSPHRASE, Browser, location
from tests.auth.identity_fakes import ORIGIN, POLICY, SITE, Clock, open_identity, post
from tests.sealing import by_hand

VERIFIER = "real-programs.use_these~letters-and-at-least-43-of-them"
CHALLENGE = pkce.challenge_of(VERIFIER)
CALLBACK = "http://127.0.0.1:33418/callback"
STATE = "x0Ryn6aI-._~"


async def hash_passphrase(passphrase: str, salt: bytes) -> str:
    del salt
    return "plain:" + passphrase


async def verify_passphrase(passphrase: str, phc: str) -> bool:
    return phc == "plain:" + passphrase


@dataclass
class Porch:
    """A server whose owner is alice. `origin` and `parts` are what a `Browser` of browser_fakes stands in front of."""

    identity: Identity
    parts: Parts
    clock: Clock
    origin: str = ORIGIN
    programs: int = field(default=0)

    async def rows(self, table: str) -> list[Row]:
        return await self.identity.parts.store.read(lambda db: db.fetch_all(f"SELECT * FROM {table}"))

    async def run(self, sql: str, *params: object) -> None:
        await self.identity.parts.store.write(by_hand(sql, *params))

    async def audited(self, event: str) -> list[tuple[str, str]]:
        return [(row["outcome"], row["reason"]) for row in await self.rows("audit") if row["event"] == event]

    async def program(self, **fields: Any) -> Program:
        self.programs += 1
        fields.setdefault("client_id", f"program-{self.programs}")
        return await Program.of(self, **fields)

    async def browser(self, *, signed_in: bool = True) -> Browser:
        browser = Browser(self, ip="127.0.0.1")  # pyright: ignore[reportArgumentType]
        if signed_in:
            await browser.sign_in()
        return browser

    async def post(self, path: str, *pairs: tuple[str, str], **form: str) -> WireReply:
        reply = await self.identity.handle(post(path, *pairs, origin=self.origin, **form))
        assert reply is not None
        return reply


@dataclass
class Program:
    """A client, and the requests that it makes."""

    porch: Porch
    client: Client

    @classmethod
    async def of(
        cls,
        porch: Porch,
        *,
        client_id: str,
        name: str = "Some Program",
        kind: str = "dynamic",
        redirect_uris: tuple[str, ...] = (CALLBACK,),
        grant_types: tuple[str, ...] = (AUTHORIZATION_CODE, REFRESH_TOKEN),
        scope: str = "*",
    ) -> Program:
        registration = ClientRegistration(
            name=name,
            client_id=client_id,
            redirect_uris=redirect_uris,
            grant_types=grant_types,
            scope=scope,
        )
        insert = partial(
            clients.insert,
            client_id=client_id,
            registration=registration,
            kind=kind,
            hashed=None,
            now=porch.clock(),
        )
        assert await porch.identity.parts.store.write(insert)
        return cls(porch, await cls._client(porch, client_id))

    @staticmethod
    async def _client(porch: Porch, client_id: str) -> Client:
        client = await porch.identity.parts.store.read(lambda db: clients.lookup(db, client_id))
        assert client is not None
        return client

    def request(self, **changes: str | None) -> dict[str, str]:
        """The parameters of an authorization request; None leaves one out."""
        usual = {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": self.client.redirect_uris[0] if self.client.redirect_uris else CALLBACK,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "state": STATE,
            **changes,
        }
        return {name: value for name, value in usual.items() if value is not None}

    def path(self, **changes: str | None) -> str:
        return "/authorize?" + urlencode(self.request(**changes))

    async def agreed(self, browser: Browser, **changes: str | None) -> dict[str, str]:
        """Through the consent page; what comes back to the program."""
        await browser.get(self.path(**changes), site="cross-site")
        return answer_of(await press(browser, "allow"))

    async def redeem(self, code: str, **changes: str | None) -> WireReply:
        usual = {
            "grant_type": AUTHORIZATION_CODE,
            "client_id": self.client.id,
            "code": code,
            "code_verifier": VERIFIER,
            "redirect_uri": self.request()["redirect_uri"],
            **changes,
        }
        return await self.porch.post(
            "/token", **{name: value for name, value in usual.items() if value is not None}
        )


async def press(browser: Browser, decision: str, **typed: str | tuple[str, ...]) -> WireReply:
    """A button of the consent page. Where it leads to a program, nobody follows."""
    form = "/authorize/decide#" + ("deny" if decision == "deny" else "allow")
    more = {} if decision == "deny" else {"decision": decision}
    return await browser.submit(form, {**more, **typed}, follow=False)


def answer_of(reply: WireReply) -> dict[str, str]:
    """The parameters that a redirect gives to the program, each of them once."""
    assert reply.status == 303, reply.body.decode()
    query = parse_qs(urlsplit(location(reply)).query, keep_blank_values=True, strict_parsing=True)
    assert all(len(values) == 1 for values in query.values()), query
    return {name: values[0] for name, values in query.items()}


def body_of(reply: WireReply) -> dict[str, Any]:
    return json.loads(reply.body)


@asynccontextmanager
async def open_porch(
    *, site: Site = SITE, policy: Policy = POLICY, origin: str = ORIGIN, documents: Documents = NO_DOCUMENTS
) -> AsyncGenerator[Porch]:
    clock = Clock()
    async with open_identity(site=site, policy=policy, clock=clock) as identity:
        yield await porch_of(
            replace(identity, parts=msgspec.structs.replace(identity.parts, documents=documents)),
            clock,
            origin=origin,
        )


async def porch_of(identity: Identity, clock: Clock, *, origin: str = ORIGIN) -> Porch:
    hashing = Hashing(hash_passphrase=hash_passphrase, verify_passphrase=verify_passphrase)
    parts = msgspec.structs.replace(identity.parts, clock=clock, hashing=hashing)
    porch = Porch(identity=identity, parts=parts, clock=clock, origin=origin)
    await porch.run(
        "UPDATE users SET name = 'alice', state = 'enabled', passphrase_hash = ? WHERE role = 'owner'",
        "plain:" + PASSPHRASE,
    )
    return porch
