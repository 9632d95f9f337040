"""One JSON-RPC request to an MCP endpoint over streamable HTTP: send, renew the token once, read JSON or a stream.

Which requests a session consists of is in mcp_client.py. This file knows HTTP's answers (401, 402, 403, 429, 503) and the two
shapes of a good one; what is in the result it does not look at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from shlex import quote
from typing import Any, Protocol

import msgspec

from server.client.client_errors import BadAnswer, CallRefused, ClientError, NotLoggedIn, scope_needed
from server.client.http_exchange import MAX_DOCUMENT, busy, network_trouble
from server.client.seller_terms import NamelessEntry
from server.client.server_sent_events import EventDecoder
from server.lib.http_client.fetch import UpstreamAnswer
from server.lib.http_client.http_client import HttpClient
from server.lib.json_objects import decode_object
from server.lib.oauth_client.addresses import host_of
from server.lib.oauth_client.challenge import Challenge, read_challenge
from server.lib.oauth_client.proof_key import headers_of, only_wants_nonce
from server.settings.secret_reference import Secret

# A tool's whole result in one JSON answer.
MAX_ANSWER = 16 * 1024 * 1024
# Progress and log messages before the result; a stream that goes on for ever is ended by time, one that floods by this.
MAX_EVENTS = 100_000


class TokenSource(Protocol):
    async def token(self) -> Secret | None: ...

    async def renew(self, refused: Secret) -> Secret: ...

    async def not_logged_in(self) -> NotLoggedIn: ...


class RpcReply(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    session_id: str | None
    message: dict[str, Any] | None  # the JSON-RPC response; None when the body holds none


class NonceWanted(msgspec.Struct, frozen=True):
    """The token is good; the next proof of its key has what the server wants in it."""


OnMessage = Callable[[dict[str, Any]], Awaitable[None]]


async def ignore(message: dict[str, Any]) -> None:
    return None


class RpcEndpoint(Protocol):
    """An endpoint that takes requests, over HTTP (`RemoteEndpoint`) or over pipes (`PipedEndpoint`)."""

    @property
    def url(self) -> str: ...

    @property
    def nameless(self) -> bool: ...

    async def post(
        self,
        message: Mapping[str, Any],
        *,
        headers: Mapping[str, str],
        silence_seconds: float,
        on_message: OnMessage = ignore,
    ) -> RpcReply: ...

    async def delete(self, *, headers: Mapping[str, str], silence_seconds: float) -> None: ...


class RemoteEndpoint:
    """One MCP endpoint and the token for it."""

    def __init__(
        self,
        client: HttpClient,
        url: str,
        tokens: TokenSource,
        *,
        nameless: NamelessEntry | None = None,
    ) -> None:
        """Take what every request is sent with; `nameless` is for somebody who would also pay instead of logging in."""
        self.url = url
        self._client = client
        self._tokens = tokens
        self._nameless = nameless

    @property
    def nameless(self) -> bool:
        return self._nameless is not None and self._nameless.taken

    async def post(
        self,
        message: Mapping[str, Any],
        *,
        headers: Mapping[str, str],
        silence_seconds: float,
        on_message: OnMessage = ignore,
    ) -> RpcReply:
        """Send a request or notification. Everything a stream carries besides the answer goes to `on_message`.

        Raises `NotLoggedIn`, `ScopeNeeded`, `ServerBusy`, `Unreachable`, `BadAnswer`; other statuses are in the reply.
        """
        body = msgspec.json.encode(message)
        token = await self._tokens.token()
        reply = await self._once(message, body, headers, token, silence_seconds, on_message)
        if isinstance(reply, NonceWanted):
            reply = await self._once(message, body, headers, token, silence_seconds, on_message)
        refused = token is None and not isinstance(reply, RpcReply)
        if refused and not self.nameless and self._nameless is not None and await self._nameless.take():
            reply = await self._once(message, body, headers, token, silence_seconds, on_message)
        if isinstance(reply, RpcReply):
            return reply
        if token is None:
            raise await self._tokens.not_logged_in()
        token = await self._tokens.renew(token)
        reply = await self._once(message, body, headers, token, silence_seconds, on_message)
        if isinstance(reply, RpcReply):
            return reply
        raise NotLoggedIn(
            f"{host_of(self.url)} does not accept this login", hint=f"ostiary login {quote(self.url)}"
        )

    async def delete(self, *, headers: Mapping[str, str], silence_seconds: float) -> None:
        """End a session; how the server feels about it does not matter any more."""
        token = await self._tokens.token()
        with network_trouble(self.url):
            async with self._client.open(
                "DELETE",
                self.url,
                headers={**headers, **self._shown(token, "DELETE")},
                silence_seconds=silence_seconds,
            ):
                return

    async def _once(
        self,
        message: Mapping[str, Any],
        body: bytes,
        headers: Mapping[str, str],
        token: Secret | None,
        silence_seconds: float,
        on_message: OnMessage,
    ) -> RpcReply | Challenge | NonceWanted:
        sent = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **headers,
            **self._shown(token, "POST"),
        }
        with network_trouble(self.url):
            async with self._client.open(
                "POST", self.url, body=body, headers=sent, silence_seconds=silence_seconds
            ) as response:
                challenge = read_challenge(response.head.values(b"www-authenticate"))
                if response.status == 401 and only_wants_nonce(token, self.url, response.head):
                    return NonceWanted()
                if response.status == 401:
                    return challenge or Challenge()
                self._refuse(response, challenge)
                if response.media_type == "text/event-stream" and response.status == 200:
                    found = await self._stream(response, message.get("id"), on_message)
                else:
                    limit = MAX_ANSWER if response.status == 200 else MAX_DOCUMENT
                    found = decode_object(await response.read(limit))
                return RpcReply(
                    status=response.status,
                    session_id=response.header(b"mcp-session-id") or None,
                    message=found,
                )
        raise AssertionError("unreachable: network_trouble swallows nothing")

    def _shown(self, token: Secret | None, method: str) -> Mapping[str, str]:
        if token is None and self._nameless is not None:
            return self._nameless.headers
        return headers_of(token, method, self.url)

    def _refuse(self, response: UpstreamAnswer, challenge: Challenge | None) -> None:
        status = response.status
        host = host_of(self.url)
        if status == 403 and challenge is not None and challenge.error == "insufficient_scope":
            raise scope_needed(challenge, self.url)
        if status == 402:
            raise ClientError(
                "this has a price that is asked for over HTTP, and calls are paid inside MCP here",
                hint="use an x402 client for HTTP",
            )
        if status == 403:
            raise CallRefused(
                f"{host} refuses this client", code=403, hint=f"ostiary doctor {quote(self.url)}"
            )
        if status == 413:
            raise CallRefused("the arguments are larger than the server takes", code=413)
        if status in (429, 503):
            raise busy(f"{host} is busy", response.head.value(b"retry-after"))
        if 300 <= status < 400:
            raise BadAnswer(f"{self.url} redirects", hint="type the address that it redirects to")
        if status >= 500:
            raise BadAnswer(f"{host} answers with status {status}", hint="its log says more")

    async def _stream(
        self, response: UpstreamAnswer, request_id: object, on_message: OnMessage
    ) -> dict[str, Any]:
        decoder = EventDecoder()
        count = 0
        while chunk := await response.part():
            for data in decoder.feed(chunk):
                count += 1
                if count > MAX_EVENTS:
                    raise BadAnswer(f"{host_of(self.url)} sent more than {MAX_EVENTS} messages at once")
                found = decode_object(data)
                if found is None:
                    continue
                if found.get("id") == request_id and ("result" in found or "error" in found):
                    return found
                await on_message(found)
        raise BadAnswer(
            f"{host_of(self.url)} ended the answer before the result",
            hint="the call may have been carried out",
        )
