"""Carrying one message over streamable HTTP without looking into it: with a token, in its time, told in a person's words.

Unlike json_rpc.py, which speaks for one client of ours, this hands out everything that comes back as it comes: the bytes of a
JSON answer, or of each event of a stream. Which of them is the answer, the bridge decides.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from shlex import quote
from typing import Final

import httpx2

from server.client.challenge import Challenge, read_challenge, scope_needed
from server.client.client_errors import BadAnswer, ClientError, NotLoggedIn, Unreachable
from server.client.http_exchange import (
    CONNECT_SECONDS,
    MAX_DOCUMENT,
    busy,
    host_of,
    network_trouble,
    raw_body,
    read,
)
from server.client.json_rpc import MAX_ANSWER
from server.client.login_on_demand import Entrance
from server.client.proof_key import headers_of, only_wants_nonce
from server.client.seller_terms import NamelessEntry
from server.client.server_sent_events import EventDecoder
from server.settings.secret_reference import Secret

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"

# The token at hand, then a renewed one; each may be asked for with another nonce in its proof.
TRIES: Final = 4

PERHAPS_DONE: Final = "what was asked may have been carried out"

# True: that was the last thing waited for.
Take = Callable[[bytes], Awaitable[bool]]


class Carrier:
    def __init__(
        self,
        client: httpx2.AsyncClient,
        url: str,
        entrance: Entrance,
        *,
        nameless: NamelessEntry | None = None,
    ) -> None:
        """`nameless`: for somebody who would rather come in without a login, where whoever pays may."""
        self.url = url
        self.host = host_of(url)
        self._client = client
        self._entrance = entrance
        self._nameless = nameless

    @asynccontextmanager
    async def post(
        self, body: bytes, *, headers: Mapping[str, str], silence_seconds: float
    ) -> AsyncGenerator[httpx2.Response, None]:
        sent = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}", **headers}
        async with self._open("POST", sent, silence_seconds, body) as response:
            yield response

    @asynccontextmanager
    async def get(
        self, *, headers: Mapping[str, str], silence_seconds: float
    ) -> AsyncGenerator[httpx2.Response, None]:
        async with self._open("GET", {"Accept": EVENTS, **headers}, silence_seconds) as response:
            yield response

    async def delete(self, *, headers: Mapping[str, str], silence_seconds: float) -> None:
        async with self._open("DELETE", dict(headers), silence_seconds):
            return

    @asynccontextmanager
    async def _open(
        self, method: str, headers: Mapping[str, str], silence_seconds: float, body: bytes | None = None
    ) -> AsyncGenerator[httpx2.Response, None]:
        """A response whose body has not been read; never a 401. Raises `ClientError`s, also out of reading the body."""
        timeout = httpx2.Timeout(silence_seconds, connect=CONNECT_SECONDS)
        token = await self._entrance.token()
        renewed = False
        for _ in range(TRIES):
            another, nameless = False, self._nameless
            before = nameless is not None and nameless.taken
            try:
                with network_trouble(self.url):
                    async with self._client.stream(
                        method,
                        self.url,
                        content=body,
                        headers={**headers, **self._shown(token, method)},
                        timeout=timeout,
                    ) as response:
                        if response.status_code != 401:
                            yield response
                            return
                        another = only_wants_nonce(token, self.url, response.headers)
            except Unreachable as error:
                if body is not None and error.sent and error.hint is None:
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
        return headers_of(token, method, self.url)

    def problem(self, response: httpx2.Response) -> ClientError:
        """What an HTTP error means that says nothing in JSON-RPC."""
        status = response.status_code
        challenge = challenge_of(response)
        if challenge is not None and lacks_scope(response):
            return scope_needed(challenge, self.url)
        if status in (429, 503):
            return busy(f"{self.host} is busy", response.headers)
        if 300 <= status < 400:
            return BadAnswer(
                f"{self.url} redirects", hint="give `ostiary connect` the address it redirects to"
            )
        if status == 402:
            return BadAnswer(
                "this has a price that is asked for over HTTP, and calls are paid inside MCP here",
                hint="use an x402 client for HTTP",
            )
        if status == 413:
            return BadAnswer("this message is larger than the server takes", hint="send less at once")
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


async def hear(response: httpx2.Response, take: Take, decoder: EventDecoder) -> bool:
    """Gives `take` each event, or the one body, until it has what it waits for. False: that never came."""
    if is_stream(response):
        async with raw_body(response) as body:
            async for chunk in body:
                for data in decoder.feed(chunk):
                    if await take(data):
                        return True
        return False
    return await take(await body_of(response))


async def body_of(response: httpx2.Response) -> bytes:
    good = response.status_code < 300
    return (await read(response, limit=MAX_ANSWER if good else MAX_DOCUMENT)).body


def is_stream(response: httpx2.Response) -> bool:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return response.status_code == 200 and kind == EVENTS


def challenge_of(response: httpx2.Response) -> Challenge | None:
    return read_challenge(response.headers.get_list("www-authenticate"))


def lacks_scope(response: httpx2.Response) -> bool:
    challenge = challenge_of(response)
    return response.status_code == 403 and challenge is not None and challenge.error == "insufficient_scope"


def broken_off(host: str) -> Unreachable:
    """A stream that ended before the answer."""
    return Unreachable(f"{host} ended the answer before the result", hint=PERHAPS_DONE)
