"""What a client sees of a server, one step after the other, each with what was found and what to do about it.

A step that rests on a failed one is left out, not guessed. Nothing is changed at the server: no code is asked for, and
a login is refreshed only where using it would refresh it.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from typing import Literal
from urllib.parse import urlsplit

import httpx2
import msgspec
import trio

from server.client.access import Access
from server.client.address import is_loopback
from server.client.browser_login import METHOD
from server.client.discovery import (
    OpenServer,
    ServerMetadata,
    find_challenge,
    find_resource,
    find_server,
    wanted_scope,
)
from server.client.errors import BadAnswer, Busy, ClientError, NotLoggedIn
from server.client.grants import read_refusal
from server.client.mcp import McpClient
from server.client.rpc import Endpoint
from server.client.tokens import TokenFile
from server.client.wire import CONNECT_SECONDS, exchange, open_client

State = Literal["ok", "failed", "skipped"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """`detail` and `hint` may hold words of the server: whoever prints them cleans them."""

    name: str
    state: State
    detail: str
    hint: str | None = None


async def examine(
    url: str, file: TokenFile, *, transport: httpx2.AsyncBaseTransport | None = None
) -> AsyncGenerator[Step, None]:
    """The steps for the server at `url`, as they are done."""
    connection = (
        await _connection(url) if transport is None else Step(name="connection", state="ok", detail="")
    )
    yield connection
    if connection.state == "failed":
        return
    async with open_client(url, transport=transport) as client:
        login_offered = True
        try:
            async for step in _discovery(client, url):
                yield step
        except OpenServer as error:
            login_offered = False
            yield Step(name="challenge", state="skipped", detail=str(error))
        except _Broken as broken:
            yield broken.step
            return
        access = Access(file, url, client=client)
        if login_offered:
            step = await _login(access)
            yield step
            if step.state != "ok":
                return
        yield await _tools(client, url, access)


class _Broken(Exception):
    def __init__(self, step: Step) -> None:
        super().__init__(step.detail)
        self.step = step


def _failed(name: str, error: ClientError) -> Step:
    return Step(name=name, state="failed", detail=str(error), hint=error.hint)


async def _connection(url: str) -> Step:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with trio.fail_after(CONNECT_SECONDS):
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, trio.TooSlowError, UnicodeError):
        return Step(
            name="connection",
            state="failed",
            detail=f"the name {host} is not known here",
            hint="check the spelling, or the network",
        )
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    spoken = ", ".join(addresses[:4])
    try:
        with trio.fail_after(CONNECT_SECONDS):
            stream = await trio.open_tcp_stream(host, port)
            await stream.aclose()
    except (OSError, trio.TooSlowError):
        return Step(
            name="connection",
            state="failed",
            detail=f"nothing answers on port {port} of {spoken}",
            hint="is it running? `ostiary serve` starts it"
            if is_loopback(url)
            else "check the address, or a firewall",
        )
    named = f"{host} is {spoken}; " if addresses != [host] else ""
    return Step(name="connection", state="ok", detail=f"{named}port {port} answers")


async def _discovery(client: httpx2.AsyncClient, url: str) -> AsyncGenerator[Step, None]:
    try:
        challenge = await find_challenge(client, url)
    except OpenServer:
        raise
    except ClientError as error:
        raise _Broken(_failed("challenge", error)) from None
    if challenge.resource_metadata is None:
        yield Step(
            name="challenge",
            state="failed",
            detail="401 without resource_metadata: many clients do not find the login",
            hint="the server's WWW-Authenticate should name its resource metadata (RFC 9728 §5.1)",
        )
    else:
        yield Step(name="challenge", state="ok", detail="401, and says where the metadata is")
    try:
        resource = await find_resource(client, url, challenge)
    except ClientError as error:
        raise _Broken(_failed("resource", error)) from None
    scope = wanted_scope(challenge, resource)
    scopes = f", scope {scope}" if scope else ""
    yield Step(name="resource", state="ok", detail=f"{resource.resource}{scopes}")
    try:
        server = await find_server(client, url, resource.authorization_server)
    except ClientError as error:
        raise _Broken(_failed("issuer", error)) from None
    yield Step(name="issuer", state="ok", detail=server.issuer)
    yield await _device_login(client, server)


async def _device_login(client: httpx2.AsyncClient, server: ServerMetadata) -> Step:
    endpoint = server.device_authorization_endpoint
    if endpoint is None or not server.device_login:
        return _without_device_login(server)
    try:
        # Without a client id no code is made: a refusal in OAuth's own form is what a living endpoint answers.
        answer = await exchange(client, "POST", endpoint, form={}, headers={"Accept": "application/json"})
        if answer.status == 200:
            raise BadAnswer("the device endpoint hands out codes to nobody in particular")
        read_refusal(answer, endpoint)
    except Busy:
        return Step(name="device login", state="ok", detail="offered, and busy just now")
    except ClientError as error:
        return _failed("device login", error)
    return Step(name="device login", state="ok", detail="offered, and the endpoint answers")


def _without_device_login(server: ServerMetadata) -> Step:
    """No fault where a browser will do."""
    if server.browser_login and METHOD in server.challenge_methods:
        return Step(name="device login", state="skipped", detail="not offered; the way in is a browser")
    said = (
        f"not offered, and logins in a browser are not protected (PKCE with {METHOD})"
        if server.browser_login
        else "the authorization server offers neither codes nor a login in a browser"
    )
    return Step(
        name="device login",
        state="failed",
        detail=said,
        hint="`ostiary login` needs one of the two; this is the server's to put right",
    )


async def _login(access: Access) -> Step:
    try:
        if await access.stored() is None:
            error = await access.not_logged_in()
            return Step(name="login", state="skipped", detail="not logged in from here", hint=error.hint)
        login = await access.login()
    except NotLoggedIn as error:
        return Step(name="login", state="failed", detail=str(error), hint=error.hint)
    except ClientError as error:
        return _failed("login", error)
    return Step(name="login", state="ok", detail=f"a token is stored, scope {login.scope or 'not said'}")


async def _tools(client: httpx2.AsyncClient, url: str, access: Access) -> Step:
    mcp = McpClient(Endpoint(client, url, access))
    try:
        server = await mcp.connect()
        tools = await mcp.tools()
    except ClientError as error:
        return _failed("tools", error)
    finally:
        await mcp.aclose()
    speaker = f"{server.name} {server.server_version}".strip() or "the server"
    count = f"{len(tools)} tool{'' if len(tools) == 1 else 's'}"
    return Step(name="tools", state="ok", detail=f"{count} from {speaker}, MCP {server.version}")
