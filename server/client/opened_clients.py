"""Clients of the terminal, opened: over HTTP with a login, over a TCP connection, and over the pipes of a program."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final

from server.client.carrier import Carrier
from server.client.client_errors import Unreachable
from server.client.login_on_demand import Door, TokenSource
from server.client.login_wire import LoginWire
from server.client.mcp_answers import told
from server.client.mcp_client import DEFAULT_SECONDS, NO_MODES, QUESTIONS, McpClient, abilities
from server.client.mcp_session.http_opening import agreed_over_http
from server.client.mcp_session.http_sse_2024 import SseStream
from server.client.mcp_session.line_streams import LineStream, dial
from server.client.mcp_session.message_channel import open_channel
from server.client.mcp_session.session_link import UNHEARD
from server.client.mcp_session.session_messages import ServerGone
from server.client.mcp_session.streamable_http import HttpLink
from server.client.seller_terms import NamelessEntry
from server.client.server_questions import Mode
from server.lib.bare_nursery import bare_nursery
from server.lib.http_client.http_client import HttpClient
from server.lib.log.logger import UNLOGGED
from server.lib.oauth_client.addresses import host_of

TCP: Final = "tcp://"


@asynccontextmanager
async def client_over_http(
    client: HttpClient,
    url: str,
    tokens: TokenSource,
    *,
    nameless: NamelessEntry | None = None,
    modes: frozenset[Mode] = NO_MODES,
) -> AsyncGenerator[McpClient]:
    """Give the client of the server at `url`. `nameless`: somebody who would also pay instead of logging in; `modes`: the ways in which somebody
    answers questions. Raises `ClientError`."""
    wire = LoginWire(Carrier(client, url, Door(tokens, None), nameless=nameless))
    session = _session(url, modes)
    stream = SseStream(wire, None)
    old = partial(open_channel, stream, UNHEARD, era="handshake", seconds=DEFAULT_SECONDS, **session)
    with _opening(url):
        async with bare_nursery() as nursery:
            link = HttpLink(wire, UNHEARD, nursery, **session)
            async with agreed_over_http(link, "auto", DEFAULT_SECONDS, old, listens=False) as agreed:
                yield McpClient(agreed, url, nameless=nameless)


@asynccontextmanager
async def client_over_tcp(url: str, *, modes: frozenset[Mode] = NO_MODES) -> AsyncGenerator[McpClient]:
    """Give the client of the server at a `tcp://` address. Raises as `client_over_http`."""
    with _opening(url):
        async with client_over_lines(await dial(url.removeprefix(TCP)), url, modes=modes) as mcp:
            yield mcp


@asynccontextmanager
async def client_over_lines(
    stream: LineStream, url: str, *, modes: frozenset[Mode] = NO_MODES
) -> AsyncGenerator[McpClient]:
    """Give the client of the server at the other end of `stream`, which is closed afterwards. Raises `ServerFailure`."""
    async with open_channel(
        stream, UNHEARD, era="auto", seconds=DEFAULT_SECONDS, **_session(url, modes)
    ) as link:
        yield McpClient(link, url)


def _session(url: str, modes: frozenset[Mode]) -> dict[str, Any]:
    return {
        "questions": QUESTIONS,
        "in_session": abilities(modes),
        "name": host_of(url),
        "log": UNLOGGED,
    }


@contextmanager
def _opening(url: str) -> Generator[None]:
    with told(url, "initialize"):
        try:
            yield
        except ServerGone as failure:
            raise Unreachable(f"{host_of(url)} {failure}") from None
