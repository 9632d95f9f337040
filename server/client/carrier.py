"""The way of the bridge and the terminal to a server: one message over Streamable HTTP, shown with a token and never looked into.

A session speaks over it (login_wire.py) and decides which of what comes back is the answer.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from shlex import quote
from types import MappingProxyType
from typing import Final

from server.client.client_errors import (
    BadAnswer,
    CallRefused,
    ClientError,
    NotLoggedIn,
    Unreachable,
    scope_needed,
)
from server.client.http_exchange import busy, network_trouble
from server.client.login_on_demand import Entrance
from server.client.mcp_session.http_wire import EVENTS, JSON, SessionGone
from server.client.mcp_session.session_messages import ServerFailure, ServerGone
from server.client.seller_terms import NamelessEntry
from server.lib.http_client.fetch import UpstreamAnswer
from server.lib.http_client.http_client import ENDLESS, NO_HEADERS, HttpClient
from server.lib.oauth_client.addresses import host_of
from server.lib.oauth_client.challenge import Challenge, read_challenge
from server.lib.oauth_client.proof_key import headers_of, only_wants_nonce
from server.lib.secret import Secret

_HEADERS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "POST": {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"},
        "GET": {"Accept": EVENTS},
        "DELETE": {},
    }
)

# The token at hand, then a renewed one; each may be asked for with another nonce in its proof.
TRIES: Final = 4

PERHAPS_DONE: Final = "what was asked may have been carried out"


class Carrier:
    """The endpoint of one server, and the login for it."""

    def __init__(
        self,
        client: HttpClient,
        url: str,
        entrance: Entrance,
        *,
        nameless: NamelessEntry | None = None,
    ) -> None:
        """Take what every message is sent with; `nameless` is for somebody who pays instead of logging in."""
        self.url = url
        self.host = host_of(url)
        self._at = url
        self._client = client
        self._entrance = entrance
        self._nameless = nameless

    def at(self, url: str) -> Carrier:
        """Return the way to another address of this server, with the same login."""
        found = copy(self)
        found._at = url
        return found

    @asynccontextmanager
    async def open(
        self,
        method: str,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        body: bytes = b"",
        lines: bytes = b"",
        silence_seconds: float = math.inf,
        limit: int = ENDLESS,
    ) -> AsyncGenerator[UpstreamAnswer]:
        """Yield a response whose body has not been read; never a 401. `lines` are more headers, `limit` how long the body may be. Raise `ClientError`s, also while the body is read."""
        headers = {**_HEADERS[method], **headers}
        token = await self._entrance.token()
        renewed = False
        for _ in range(TRIES):
            another, nameless = False, self._nameless
            before = nameless is not None and nameless.taken
            try:
                with network_trouble(self.url):
                    async with self._client.open(
                        method,
                        self._at,
                        body=body,
                        lines=lines,
                        headers={**headers, **self._shown(token, method)},
                        silence_seconds=silence_seconds,
                        limit=limit,
                    ) as response:
                        if response.status != 401:
                            yield response
                            return
                        another = only_wants_nonce(token, self._at, response.head)
            except Unreachable as error:
                if body and error.sent and error.hint is None:
                    error.hint = PERHAPS_DONE
                raise
            if another:
                continue
            if token is None and nameless is not None and not before and await nameless.take():
                continue
            if renewed:
                break
            token, renewed = await self._entrance.after_refusal(token), True
        raise NotLoggedIn(f"{self.host} does not accept this login", hint=f"ostiary login {quote(self.url)}")

    def _shown(self, token: Secret | None, method: str) -> Mapping[str, str]:
        if token is None and self._nameless is not None:
            return self._nameless.headers
        return headers_of(token, method, self._at)

    @contextmanager
    def told(self) -> Generator[None]:
        """Turn what goes wrong in a session into what a person is told: a `ClientError`."""
        try:
            yield
        except SessionGone as failure:
            raise BadAnswer(f"{self.host} {failure}", hint="start the client again") from None
        except ServerGone as failure:
            raise BadAnswer(f"{self.host} {failure}", hint=PERHAPS_DONE) from None
        except ServerFailure as failure:
            hint = f"is this an MCP server? `ostiary doctor {quote(self.url)}` looks closer"
            raise BadAnswer(f"{self.host} {failure}", hint=hint) from None

    def problem(self, response: UpstreamAnswer) -> ClientError:
        """Return the error for an HTTP status whose body says nothing in JSON-RPC."""
        status = response.status
        challenge = challenge_of(response)
        if challenge is not None and lacks_scope(response):
            return scope_needed(challenge, self.url)
        if status in (429, 503):
            return busy(f"{self.host} is busy", response.head.value(b"retry-after"))
        if 300 <= status < 400:
            return BadAnswer(f"{self.url} redirects", hint="use the address that it redirects to")
        if status == 402:
            return BadAnswer(
                "this has a price that is asked for over HTTP, and calls are paid inside MCP here",
                hint="use an x402 client for HTTP",
            )
        if status == 413:
            return CallRefused(
                "this message is larger than the server takes", code=status, hint="send less at once"
            )
        if status == 403:
            return CallRefused(
                f"{self.host} refuses this client (status 403)",
                code=status,
                hint=f"`ostiary doctor {quote(self.url)}` looks closer",
            )
        if status in (404, 405):
            return BadAnswer(
                f"there is no MCP endpoint at {self.url} (status {status})",
                hint=f"check the address; `ostiary doctor {quote(self.url)}` looks closer",
            )
        if status >= 500:
            return BadAnswer(f"{self.host} answers with status {status}", hint="its log says more")
        return BadAnswer(
            f"{self.host} answers with status {status} and nothing in MCP",
            hint=f"`ostiary doctor {quote(self.url)}` looks closer",
        )


def challenge_of(response: UpstreamAnswer) -> Challenge | None:
    return read_challenge(response.head.values(b"www-authenticate"))


def lacks_scope(response: UpstreamAnswer) -> bool:
    challenge = challenge_of(response)
    return response.status == 403 and challenge is not None and challenge.error == "insufficient_scope"
