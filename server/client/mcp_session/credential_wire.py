"""HTTP as the gateway speaks it to a server that its settings name: with a credential, over connections of its own."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from server.client.mcp_session.http_wire import (
    ENDLESS_BYTES,
    ERROR_BYTES,
    EVENTS,
    HEARD_AT_ONCE,
    JSON,
    STREAM_MESSAGES,
    CredentialRefused,
    HttpWire,
    NotReached,
    lines_of,
    refusal_in,
    same_origin,
)
from server.client.mcp_session.session_messages import (
    MESSAGE_BYTES,
    PaymentAsked,
    ServerFailure,
    ServerGone,
    ServerRefusal,
    encode,
)
from server.client.mcp_session.session_request import Credential, SessionRequest
from server.lib.http_client.failures import FetchFailed, NotConnected, TooLarge, TooManyConnections
from server.lib.http_client.fetch import Fetcher, UpstreamAnswer
from server.lib.log.logger import Logger
from server.mcp.call_failures import BackendError
from server.payments.x402.payment_headers import PAYMENT_SIGNATURE, X_PAYMENT

T = TypeVar("T")

STREAMS: Final = 4
CHALLENGE_CHARACTERS: Final = 4096
# Shorter values are words, not credentials.
MASKED_CHARACTERS: Final = 8
# A line of a request's own that brings a payment.
_PAYS: Final = re.compile(rf"(?:^|\n)(?:{PAYMENT_SIGNATURE}|{X_PAYMENT}):".encode("ascii"))


class HttpServerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a server, from the settings."""

    url: str
    connections: int
    ca_file: str = ""
    most: int = MESSAGE_BYTES  # bytes of the longest message that is taken


# For the owner.
UNPAID_MORE: Final = ": [server.agent.pay] would say what may be paid"


class CredentialWire(HttpWire):
    """The HTTP of one upstream. Raises `ValueError` for an address or a CA file that cannot be used."""

    def __init__(self, where: HttpServerPlace, credential: Credential, log: Logger, name: str) -> None:
        ca_file = Path(where.ca_file).expanduser() if where.ca_file else None
        self.url: Final = where.url
        self.most = where.most
        self._limit = STREAM_MESSAGES * where.most  # of an answer
        self._credential = credential
        self._log = log
        self._name = name
        self._ca_file = ca_file
        # What lasts has connections of its own, or calls would wait for what never ends.
        self._calls = Fetcher(where.url, connections=where.connections, ca_file=ca_file)
        self._streams = Fetcher(where.url, connections=STREAMS, ca_file=ca_file)
        # Each call may fetch the rest of its answer, while its first connection is still open.
        self._rests = Fetcher(where.url, connections=where.connections, ca_file=ca_file)
        self._logs = Fetcher(where.url, connections=HEARD_AT_ONCE, ca_file=ca_file)
        both = (("Content-Type", JSON), ("Accept", f"{JSON}, {EVENTS}"))
        self._post: Final = self._calls.prepare("POST", both)
        self._stream_post: Final = self._streams.prepare("POST", both)
        self._stream_get: Final = self._streams.prepare("GET", (("Accept", EVENTS),))
        self._rest_get: Final = self._rests.prepare("GET", (("Accept", EVENTS),))
        self._delete: Final = self._calls.prepare("DELETE", (("Accept", JSON),))
        self._shown: Mapping[str, str] = {}  # what a request was last shown with, and the same as lines
        self._shown_lines = b""

    async def ask(
        self,
        message: bytes,
        headers: bytes,
        call: SessionRequest | None,
        read: Callable[[UpstreamAnswer], Awaitable[T]],
    ) -> T:
        """Do as the base class, in fewer steps: every call goes this way."""
        head, calls = self._post + headers, self._calls
        for last in (False, True):
            shown = await self._credential.headers(call)
            try:
                answer = await calls.begin(head + self._lines(shown, headers), message, limit=self._limit)
                try:
                    if answer.status != 401:
                        return await read(answer)
                    challenge = answer.header(b"www-authenticate")[:CHALLENGE_CHARACTERS]
                finally:
                    calls.end(answer)
            except ServerRefusal as refusal:
                raise without_credentials(refusal, shown.values()) from None
            except FetchFailed as error:
                raise _not_answered(error) from error
            if last or not await self._credential.refused(call, challenge):
                break
        raise self._not_let_in(call)

    def post(
        self, message: bytes, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]:
        return self._open(self._calls, self._post + headers, message, call, self._limit)

    def stream(
        self, message: bytes | None, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]:
        if message is None and call is not None:
            return self._open(self._rests, self._rest_get + headers, b"", call, ENDLESS_BYTES)
        head = (self._stream_get if message is None else self._stream_post) + headers
        return self._open(self._streams, head, message or b"", call, ENDLESS_BYTES)

    def attend(
        self, headers: bytes, call: SessionRequest | None
    ) -> AbstractAsyncContextManager[UpstreamAnswer]:
        if call is None:
            return self.stream(None, headers, None)
        return self._open(self._logs, self._rest_get + headers, b"", call, ENDLESS_BYTES)

    async def delete(self, headers: bytes, call: SessionRequest | None) -> None:
        async with self._open(self._calls, self._delete + headers, b"", call, ERROR_BYTES):
            return

    def problem(self, answer: UpstreamAnswer, body: bytes = b"") -> BackendError | ServerRefusal:
        if answer.status == 402:
            return PaymentAsked(answer.header, body, more=UNPAID_MORE)
        return refusal_in(body) or status_problem(answer.status)

    def elsewhere(self, target: str) -> CredentialWire:
        """Return the wire to another address of this origin, as the server named it. Raises `ValueError`."""
        url = same_origin(self.url, target)
        where = HttpServerPlace(
            url=url, connections=STREAMS, ca_file=str(self._ca_file or ""), most=self.most
        )
        return CredentialWire(where, self._credential, self._log, self._name)

    async def aclose(self) -> None:
        await self._calls.aclose()
        await self._streams.aclose()
        await self._rests.aclose()
        await self._logs.aclose()

    @asynccontextmanager
    async def _open(
        self, fetcher: Fetcher, head: bytes, body: bytes, call: SessionRequest | None, limit: int
    ) -> AsyncGenerator[UpstreamAnswer]:
        """Open an exchange. Raises `BackendError`s, `ServerGone` among them, also out of reading the body."""
        for last in (False, True):
            shown = await self._credential.headers(call)
            try:
                async with fetcher.open(
                    head + self._lines(shown), body, deadline=math.inf, limit=limit
                ) as answer:
                    if answer.status != 401:
                        yield answer
                        return
                    challenge = answer.header(b"www-authenticate")[:CHALLENGE_CHARACTERS]
            except ServerRefusal as refusal:
                raise without_credentials(refusal, shown.values()) from None
            except FetchFailed as error:
                raise _not_answered(error) from error
            if last or not await self._credential.refused(call, challenge):
                break
        raise self._not_let_in(call)

    def _lines(self, shown: Mapping[str, str], headers: bytes = b"") -> bytes:
        """Write the credential as lines. `headers`: the request's own; a payment among them says more than that one is to come."""
        if PAYMENT_SIGNATURE in shown and _PAYS.search(headers):
            return lines_of({name: value for name, value in shown.items() if name != PAYMENT_SIGNATURE})
        if shown is not self._shown:
            self._shown_lines = lines_of(shown)
            self._shown = shown
        return self._shown_lines

    def _not_let_in(self, call: SessionRequest | None) -> CredentialRefused:
        self._log.warning("upstream.not_let_in", agent=self._name, mine=call is None)
        return CredentialRefused("does not accept the credential that it is shown")


def status_problem(status: int) -> ServerFailure:
    if status in (429, 503):
        # What stands in front of a server says 503 also where the server was lost with the request.
        return ServerFailure(f"is busy (status {status})", fate="not made" if status == 429 else "unknown")
    if 300 <= status < 400:
        return ServerFailure("redirects: the settings must name the address that it redirects to")
    if status == 403:
        return CredentialRefused("does not allow this (status 403)")
    return ServerFailure(f"answered with status {status}", fate="unknown" if status >= 500 else "answered")


def _not_answered(error: FetchFailed) -> ServerFailure:
    if isinstance(error, TooLarge):
        return ServerFailure(str(error), fate="too large")
    if isinstance(error, NotConnected):
        return NotReached(str(error), busy=isinstance(error, TooManyConnections))
    return ServerGone(str(error))


def without_credentials(refusal: ServerRefusal, shown: Iterable[str]) -> ServerRefusal:
    """Mask what was shown, which some servers repeat."""
    text, data = str(refusal), refusal.data
    for mask in _masks(shown):
        text = text.replace(mask, "***")
        if data is not None and mask.encode() in encode(data):
            data = None
    return ServerRefusal(refusal.code, text, data)


def _masks(values: Iterable[str]) -> list[str]:
    """Return each value, and the credential at its end; the longest first."""
    words = {word for value in values for word in (value, value.rpartition(" ")[2])}
    return sorted((word for word in words if len(word) >= MASKED_CHARACTERS), key=len, reverse=True)
