"""One bounded exchange over HTTP, as every part of the client uses it: no redirects, a cap on the body, a deadline for
the whole of it, and network trouble told in a person's words. What the answers mean is not decided here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import msgspec
import trio

from server import __version__
from server.client.address import is_loopback
from server.client.client_errors import BadAnswer, ServerBusy, Unreachable
from server.lib.counted import counted
from server.lib.surrogates import decode_mended

USER_AGENT = f"ostiary/{__version__}"
# A metadata document or token answer is a few kilobytes; this is a server gone wrong.
MAX_DOCUMENT = 1024 * 1024
CONNECT_SECONDS = 10
# Longest silence within an answer.
READ_SECONDS = 30
# From the first byte sent to the last byte read, of documents and token requests.
EXCHANGE_SECONDS = 30
# An honest server asks for seconds; a client that sleeps for days is broken either way.
MAX_RETRY_AFTER_SECONDS = 300.0
# A person is told what the server asked for, unless nobody can mean it.
MAX_TOLD_SECONDS = 24 * 3600.0

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: httpx2.Headers
    body: bytes

    def __repr__(self) -> str:  # a body may hold tokens
        return f"Answer(status={self.status}, {len(self.body)} bytes)"

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json_object(self) -> dict[str, Any] | None:
        """The body as a JSON object, or None where it is anything else."""
        return decode_object(self.body)


def decode_object(body: bytes | str) -> dict[str, Any] | None:
    try:
        return decode_mended(_decode_object, body.encode() if isinstance(body, str) else body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


@asynccontextmanager
async def open_client(
    url: str, *, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncGenerator[httpx2.AsyncClient, None]:
    """A client for the server at `url`. A proxy from the environment is used for everything but this machine, whose certificate is judged as
    any other's: by the authorities of SSL_CERT_FILE, where that is set."""
    here = is_loopback(url)
    async with httpx2.AsyncClient(
        transport=transport,
        trust_env=transport is None and not here,
        verify=httpx2.create_ssl_context() if here and url.startswith("https:") else True,
        follow_redirects=False,
        timeout=httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
    ) as client:
        yield client


async def exchange(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
    content: bytes | None = None,
    limit: int = MAX_DOCUMENT,
    seconds: float = EXCHANGE_SECONDS,
) -> HttpAnswer:
    """Send one request and read its whole answer. Raises `Unreachable` or `BadAnswer`; safe to cancel."""
    with trio.move_on_after(seconds) as deadline, network_trouble(url):
        async with client.stream(
            method,
            url,
            headers=dict(headers or {}),
            data=dict(form) if form is not None else None,
            content=content,
            timeout=httpx2.Timeout(max(seconds, READ_SECONDS), connect=CONNECT_SECONDS),
        ) as response:
            return await read(response, limit=limit)
    assert deadline.cancelled_caught
    raise Unreachable(f"{host_of(url)} did not finish its answer within {counted(seconds, 'second')}")


async def peek(
    client: httpx2.AsyncClient, method: str, url: str, *, headers: Mapping[str, str]
) -> HttpAnswer:
    """Like `exchange`, for status and headers only: the body may be a stream that never ends."""
    with trio.move_on_after(EXCHANGE_SECONDS) as deadline, network_trouble(url):
        async with client.stream(method, url, headers=dict(headers)) as response:
            return HttpAnswer(status=response.status_code, headers=response.headers, body=b"")
    assert deadline.cancelled_caught
    raise Unreachable(f"{host_of(url)} did not begin its answer within {EXCHANGE_SECONDS} seconds")


async def read(response: httpx2.Response, *, limit: int) -> HttpAnswer:
    """The rest of a streamed response, at most `limit` bytes of it."""
    chunks: list[bytes] = []
    size = 0
    async with raw_body(response) as body:
        async for chunk in body:
            size += len(chunk)
            if size > limit:
                raise BadAnswer(
                    f"{host_of(str(response.url))} sent more than {limit // 1024} KiB in one answer"
                )
            chunks.append(chunk)
    return HttpAnswer(status=response.status_code, headers=response.headers, body=b"".join(chunks))


@asynccontextmanager
async def raw_body(response: httpx2.Response) -> AsyncGenerator[AsyncIterator[bytes], None]:
    """The bytes of a streamed response, which may be left before their end."""
    # We ask for identity, so nothing may unfold into more than was counted.
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise BadAnswer(f"{host_of(str(response.url))} sent a compressed answer that was not asked for")
    chunks = response.aiter_raw()
    try:
        yield chunks
    finally:
        # httpx2 nests generators that nobody closes: they end only by being driven on over the closed connection.
        await response.aclose()
        with suppress(httpx2.HTTPError, httpx2.StreamError):
            async for _ in chunks:
                pass


def busy(what: str, headers: Mapping[str, str]) -> ServerBusy:
    """`what` could not be done now, and the server may have said when it can (RFC 9110 §10.2.3)."""
    # In seconds; dates are too rare on these endpoints to be worth a parser.
    value = headers.get("retry-after", "").strip()
    asked = float(value) if value.isascii() and value.isdigit() else 0.0
    return ServerBusy(
        what,
        retry_after_seconds=min(asked, MAX_RETRY_AFTER_SECONDS) or None,
        hint=f"try again in {_told(min(asked, MAX_TOLD_SECONDS))}" if asked else "try again in a moment",
    )


def _told(seconds: float) -> str:
    if seconds <= 120:
        return f"{seconds:.0f} seconds"
    # Never less than was asked for.
    return f"{-(-seconds // 60):.0f} minutes"


def host_of(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or url
    except ValueError:
        return url


class network_trouble:  # noqa: N801  reads as a phrase: `with network_trouble(url):`
    """Turns httpx2's and the system's network errors into `Unreachable`, with a hint that fits."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, httpx2.InvalidURL):
            raise BadAnswer("the address of the next step is no URL") from None
        if isinstance(error, httpx2.TimeoutException):
            sent = not isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout)
            raise Unreachable(
                f"{host_of(self._url)} did not {'answer' if sent else 'connect'} in time", sent=sent
            ) from None
        if isinstance(error, httpx2.TransportError):
            raise _unreachable(self._url, error) from None


def _unreachable(url: str, error: httpx2.TransportError) -> Unreachable:
    host = host_of(url)
    said = _causes(error)
    if "wrong version number" in said or "wrong_version_number" in said:
        return Unreachable(
            f"no secure connection to {host} could be made: what answers there speaks no TLS",
            hint="http:// instead of https://, or another port",
            sent=False,
        )
    if "certificate" in said or "ssl" in said or "tls" in said:
        return Unreachable(
            f"no secure connection to {host} could be made",
            hint="check its certificate; a private authority is trusted by SSL_CERT_FILE=/path/to/ca.pem",
            sent=False,
        )
    if "name or service not known" in said or "nodename nor servname" in said or "name resolution" in said:
        return Unreachable(
            f"the name {host} is not known here",
            hint="check the spelling, or the network"
            if "." in host
            else "check the spelling; ostiary mcp list shows the names that were given here",
            sent=False,
        )
    if isinstance(error, httpx2.ConnectError):
        return Unreachable(
            f"nothing answers at {host}",
            hint="is it running? `ostiary serve` starts it"
            if is_loopback(url)
            else "check the address, or the network",
            sent=False,
        )
    return Unreachable(f"the connection to {host} broke off")


def _causes(error: BaseException | None) -> str:
    """The words of an error and of what caused it: only they tell name resolution, refusal and TLS apart."""
    words: list[str] = []
    while error is not None and len(words) < 8:
        words.append(str(error).lower())
        if isinstance(error, BaseExceptionGroup):
            words.extend(
                str(part).lower() for part in cast("BaseExceptionGroup[BaseException]", error).exceptions
            )
        error = error.__cause__ or error.__context__
    return " ".join(words)
