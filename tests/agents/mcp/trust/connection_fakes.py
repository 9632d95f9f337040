"""Accounts of people at an upstream: its authorization server in memory, and a house where people connect theirs."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec.structs import replace

from auth.values.http_messages import WireReply
from server.agents.mcp.trust.authorization_server import AuthorizationServers
from server.agents.mcp.trust.login_rows import LoginVault
from server.agents.mcp.trust.owner_login import OwnerLogin
from server.agents.mcp.trust.person_connections import PersonalUpstream, PersonConnections
from server.agents.mcp.trust.person_identity import PersonCredential
from server.agents.mcp.trust.person_key import KeyCredential
from server.agents.mcp.trust.pin_rows import UpstreamKey
from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.oauth_answers import OAuthAnswer, OAuthFailure
from server.store.write_retry import WriteRetry
from tests.agents.mcp.trust.trust_fakes import EventLog, call_of
from tests.auth.browser_fakes import LOOPBACK, Browser, House

ISSUER = "https://login.example"
KEY = UpstreamKey("agent", "mail")
PATH = "/connect/agent/mail"
URL = "https://mail.example/mcp"


class FakeIssuer:
    """An authorization server that keeps to the rules: codes count once, with the verifier and the address that they were made for."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "registration_endpoint": f"{ISSUER}/register",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        self.registered: list[dict[str, Any]] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.redeemed: list[dict[str, str]] = []
        self.secret_ends_at = 0  # never
        self.given = 0
        self.down = False  # its token endpoint

    def agree(self, url: str, **changes: str | None) -> str:
        """What the person's browser is sent back with."""
        parts = urlsplit(url)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{ISSUER}/authorize"
        asked = dict(parse_qsl(parts.query, strict_parsing=True))
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        said = {"code": code, "state": asked["state"], "iss": ISSUER} | changes
        query = urlencode({name: value for name, value in said.items() if value is not None})
        return f"{urlsplit(asked['redirect_uri']).path}?{query}"

    async def __call__(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> OAuthAnswer:
        if method == "GET":
            known = url == f"{ISSUER}/.well-known/oauth-authorization-server"
            return self._answer(200 if known else 404, self.metadata if known else {})
        if url == f"{ISSUER}/register":
            self.registered.append(json.loads(body))
            return self._answer(
                201,
                {
                    "client_id": f"client-{len(self.registered)}",
                    "client_secret": "their secret",
                    "client_secret_expires_at": self.secret_ends_at,
                    "token_endpoint_auth_method": "client_secret_basic",
                },
            )
        assert url == f"{ISSUER}/token"
        if self.down:
            raise OAuthFailure("does not answer in time")
        form = dict(parse_qsl(body.decode(), strict_parsing=True))
        self.redeemed.append({**form, "authorization": headers.get("Authorization", "")})
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"], None)
            challenge = hashlib.sha256(form["code_verifier"].encode()).digest()
            fits = (
                asked is not None
                and asked["redirect_uri"] == form["redirect_uri"]
                and base64.urlsafe_b64encode(challenge).rstrip(b"=").decode() == asked["code_challenge"]
            )
            if not fits:
                return self._answer(400, {"error": "invalid_grant"})
        elif form["refresh_token"] != f"refresh-{self.given}":
            return self._answer(400, {"error": "invalid_grant"})
        self.given += 1
        return self._answer(
            200,
            {
                "access_token": f"access-{self.given}",
                "refresh_token": f"refresh-{self.given}",
                "token_type": "Bearer",
                "expires_in": 600,
            },
        )

    def _answer(self, status: int, said: Mapping[str, Any]) -> OAuthAnswer:
        return OAuthAnswer(status=status, body=json.dumps(said).encode())


class Connecting:
    """A house with one upstream at which people have accounts."""

    def __init__(self, identity: ClientIdentity | None = None, house: House | None = None) -> None:
        self.house = (house or House()).owned()
        self.house.add_user("usr_bob", "bob")
        self.issuer = FakeIssuer()
        self.log = EventLog()
        parts = self.house.parts
        self._identity = identity
        self.connections, self.credential = self.node()
        self.house.parts = replace(parts, connections=self.connections)

    def node(self) -> tuple[PersonConnections, PersonCredential]:
        """As one process has them."""
        parts, store = self.house.parts, self.house.store
        connections = PersonConnections(
            [
                PersonalUpstream(
                    key=KEY,
                    resource="https://mail.example/mcp",
                    issuer=ISSUER,
                    scope="mail",
                    identity=self._identity,
                )
            ],
            store,  # type: ignore[arg-type]
            servers=AuthorizationServers(self.issuer, parts.clock),
            ask=self.issuer,
            clock=parts.clock,
            subkey=parts.subkey,
            entropy=self.house.entropy,
            log=self.log,
        )
        credential = PersonCredential(
            "login.example", LOOPBACK + PATH, ours=self._login(""), login_of=self._login
        )
        connections.listen(KEY, credential.changed)
        return connections, credential

    def _login(self, person: str) -> OwnerLogin:
        parts, store = self.house.parts, self.house.store
        return OwnerLogin(
            KEY,
            store,  # type: ignore[arg-type]
            LoginVault(parts.subkey, self.house.entropy),
            self.issuer,
            owed=WriteRetry(store, self.log, "upstream.login_not_kept"),  # type: ignore[arg-type]
            clock=parts.clock,
            log=self.log,
            person=person,
        )

    async def browser(self, name: str = "alice") -> Browser:
        browser = Browser(self.house)
        await browser.sign_in(name)
        return browser

    async def away(self, browser: Browser) -> str:
        """Where the button leads."""
        await browser.get(PATH)
        page = await browser.submit(PATH)
        assert page.status == 200, browser.words
        text = browser.text.partition('class="button" href="')[2].partition('"')[0]
        return text.replace("&amp;", "&")

    async def back(self, browser: Browser, path: str) -> WireReply:
        return await browser.get(path, site="cross-site")

    async def connect(self, browser: Browser) -> WireReply:
        return await self.back(browser, self.issuer.agree(await self.away(browser)))

    async def authorization(self, person: str) -> str:
        return (await self.credential.headers(call_of(person)))["Authorization"]


class Keys:
    """A house with one upstream for which people have keys."""

    def __init__(self, header: str = "Authorization", house: House | None = None) -> None:
        self.house = house or House().owned()
        if house is None:
            self.house.add_user("usr_bob", "bob")
        self.log = EventLog()
        self.header = header
        self.connections, self.credential = self.node()
        self.house.parts = replace(self.house.parts, connections=self.connections)

    def node(self, url: str = URL) -> tuple[PersonConnections, KeyCredential]:
        """Return both as one process has them."""
        parts, store, asked = self.house.parts, self.house.store, FakeIssuer()
        upstream = PersonalUpstream(key=KEY, resource=url, issuer=url, scope="", identity=None, by_key=True)
        connections = PersonConnections(
            [upstream],
            store,  # type: ignore[arg-type]
            servers=AuthorizationServers(asked, parts.clock),
            ask=asked,
            clock=parts.clock,
            subkey=parts.subkey,
            entropy=self.house.entropy,
            log=self.log,
        )

        def login_of(person: str) -> OwnerLogin:
            return OwnerLogin(
                KEY,
                store,  # type: ignore[arg-type]
                LoginVault(parts.subkey, self.house.entropy),
                asked,
                owed=WriteRetry(store, self.log, "upstream.login_not_kept"),  # type: ignore[arg-type]
                clock=parts.clock,
                log=self.log,
                person=person,
                url=url,
            )

        credential = KeyCredential(
            upstream.label,
            LOOPBACK + PATH,
            header=self.header,
            login_of=login_of,
            used=lambda person: connections.used(KEY, person),
        )
        connections.listen(KEY, credential.changed)
        return connections, credential

    @property
    def owner(self) -> str:
        return self.house.owner_id

    async def browser(self, name: str = "alice") -> Browser:
        browser = Browser(self.house)
        await browser.sign_in(name)
        return browser

    async def paste(self, key: str, name: str = "alice") -> Browser:
        browser = await self.browser(name)
        await browser.get(PATH)
        await browser.submit(PATH, key=key)
        return browser
