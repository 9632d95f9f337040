"""Bounded exchanges over HTTP for every part of the client: no redirects, a cap on the body, a deadline for
the whole, and trouble on the network told in a person's words. The meaning of an answer is not decided here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager

import trio

from server.client.client_errors import BadAnswer, ClientError, ServerBusy, Unreachable
from server.lib.counted import counted
from server.lib.http_client.failures import (
    BrokenOff,
    CompressedUnasked,
    ConnectTimeout,
    FetchFailed,
    NotConnected,
    NoTrust,
    NotTls,
    ProxyFailed,
    Silent,
    TlsFailed,
    TooLarge,
    TooManyConnections,
    UnknownName,
    UnusableAddress,
    UnusableHeader,
)
from server.lib.http_client.http_client import NO_HEADERS, HttpAnswer, HttpClient
from server.lib.oauth_client.addresses import host_of, is_loopback

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


@asynccontextmanager
async def open_client() -> AsyncGenerator[HttpClient]:
    """Open a client for as long as the block lasts."""
    client = HttpClient()
    try:
        yield client
    finally:
        await client.aclose()


async def exchange(
    client: HttpClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] = NO_HEADERS,
    content: bytes = b"",
    limit: int = MAX_DOCUMENT,
    seconds: float = EXCHANGE_SECONDS,
) -> HttpAnswer:
    """Send one request and read its whole answer. Raise `Unreachable` or `BadAnswer`; safe to cancel."""
    try:
        return await client.exchange(method, url, headers=headers, body=content, limit=limit, seconds=seconds)
    except Silent:
        raise Unreachable(
            f"{host_of(url)} did not finish its answer within {counted(seconds, 'second')}"
        ) from None
    except FetchFailed as failure:
        raise _client_error(url, failure) from None


async def peek(client: HttpClient, method: str, url: str, *, headers: Mapping[str, str]) -> HttpAnswer:
    """Do as `exchange` does, but read status and headers only: the body may be a stream that never ends."""
    with trio.move_on_after(EXCHANGE_SECONDS) as deadline, network_trouble(url):
        async with client.open(method, url, headers=headers, silence_seconds=READ_SECONDS) as answer:
            return HttpAnswer(head=answer.head, body=b"")
    assert deadline.cancelled_caught
    raise Unreachable(f"{host_of(url)} did not begin its answer within {EXCHANGE_SECONDS} seconds")


def busy(what: str, retry_after: str) -> ServerBusy:
    """Return the error for `what` could not be done now; `retry_after` is the header in which the server may say when it can (RFC 9110 §10.2.3)."""
    # In seconds; dates are too rare on these endpoints to be worth a parser.
    asked = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
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


@contextmanager
def network_trouble(url: str) -> Generator[None]:
    """Turn failures of an exchange with `url` into `ClientError`s, with a hint that fits."""
    try:
        yield
    except FetchFailed as failure:
        raise _client_error(url, failure) from None


def _client_error(url: str, failure: FetchFailed) -> ClientError:
    host = host_of(url)
    match failure:
        case UnusableAddress():
            return BadAnswer("the address of the next step is no URL")
        case UnusableHeader():
            return BadAnswer(f"{host} {failure}")
        case NoTrust():
            return Unreachable(str(failure), sent=False)
        case ConnectTimeout():
            return Unreachable(f"{host} did not connect in time", sent=False)
        case Silent():
            return Unreachable(f"{host} did not answer in time")
        case ProxyFailed():
            return Unreachable(
                f"{host} {failure}",
                hint="HTTPS_PROXY names the proxy, and NO_PROXY what is reached without it",
                sent=False,
            )
        case NotTls():
            return Unreachable(
                f"no secure connection to {host} could be made: what answers there speaks no TLS",
                hint="http:// instead of https://, or another port",
                sent=False,
            )
        case TlsFailed():
            return Unreachable(
                f"no secure connection to {host} could be made",
                hint="check its certificate; a private authority is trusted by SSL_CERT_FILE=/path/to/ca.pem",
                sent=False,
            )
        case UnknownName():
            return Unreachable(
                f"the name {host} is not known here",
                hint="check the spelling, or the network"
                if "." in host
                else "check the spelling; ostiary mcp list shows the names that were given here",
                sent=False,
            )
        case TooManyConnections():
            return Unreachable(f"{host} {failure}", sent=False)
        case NotConnected():
            return Unreachable(
                f"nothing answers at {host}",
                hint="is it running? `ostiary serve` starts it"
                if is_loopback(url)
                else "check the address, or the network",
                sent=False,
            )
        case BrokenOff():
            return Unreachable(f"the connection to {host} broke off")
        case TooLarge() | CompressedUnasked():
            return BadAnswer(f"{host} {failure}")
        case _:
            return Unreachable(f"{host} {failure}")
