"""The check of a server as a client sees it: one step after the other, each with what was found and what to do about it.

A step that depends on a failed one is left out, not guessed. Nothing is changed at the server: no device code is requested, no client
is registered, and a login is refreshed only where using it would refresh it. The requests are chosen so that an ostiary writes
nothing of them into its audit trail.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from shlex import quote
from typing import Any, Final, TypeAlias

from server.client import browser_login, loopback
from server.client.access_token import Access, wall_clock
from server.client.check_step import CheckStep, names_step
from server.client.client_errors import BadAnswer, ClientError, LoginError, NotLoggedIn, ServerBusy
from server.client.discovery import (
    NoDocument,
    OpenServer,
    Place,
    discover_as_of_old,
    find_challenge,
    find_resource,
    find_server,
    login_scope,
    wanted_scope,
)
from server.client.http_exchange import open_client, peek
from server.client.oauth_exchange import asking, oauth_trouble
from server.client.opened_clients import client_over_http
from server.client.public_address import address_steps
from server.client.registration import recall
from server.client.seller_terms import NamelessEntry, Seller, find_seller
from server.client.token_file import TokenFile
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client.challenge import Challenge
from server.lib.oauth_client.client_identity import ClientIdentity
from server.lib.oauth_client.issuer_metadata import S256
from server.lib.oauth_client.token_requests import FORM, read_refusal
from server.mcp.tool_names import refused_names

# No client id, and a parameter twice (RFC 6749 §3.2): every living endpoint refuses it in OAuth's own form, whatever it
# looks at first, and none makes a code of it.
REFUSABLE: Final = b"scope=mcp&scope=mcp"
# Where nobody listens: nothing is sent there without a person who says yes.
NOWHERE: Final = f"http://{loopback.HOST}:1{loopback.PATH}"


# Returns further steps about a server, given its tools as they are listed, or None if they could not be listed.
LookFurther: TypeAlias = Callable[
    [HttpClient, Seller, Sequence[Mapping[str, Any]] | None], Awaitable[Sequence[CheckStep]]
]


async def examine(
    url: str,
    file: TokenFile,
    *,
    further: LookFurther | None = None,
) -> AsyncGenerator[CheckStep, None]:
    """Check the server at `url`, and yield each step when it is done. `further` adds the steps about what the server sells."""
    async with open_client() as client:
        async with aclosing(address_steps(client, url)) as steps:
            async for step in steps:
                yield step
                # What cannot be reached, or is somebody else, is asked nothing.
                if step.state == "failed" and step.name in ("connection", "certificate") and not step.goes_on:
                    return
        login_offered = True
        try:
            async for step in _discovery(client, file, url):
                yield step
        except OpenServer as error:
            login_offered = False
            yield CheckStep(name="challenge", state="skipped", detail=str(error))
        except _Broken as broken:
            yield broken.step
            return
        access, enters = Access(file, url, client=client), True
        if login_offered:
            step = await _login(access)
            yield step
            enters = step.state == "ok"
        seller = Seller()
        if further is not None:
            try:
                seller = await find_seller(client, url)
            except ClientError as error:
                yield _failed("prices", error)
                return
        tools: list[dict[str, Any]] | None = None
        if enters or (seller.nameless and await access.stored() is None):
            step, tools = await _tools(
                client, url, access, NamelessEntry(client, url) if seller.nameless else None
            )
            yield step
        # Where nothing more is known of the server than anybody is told.
        if further is not None and tools and (refused := refused_names(str(tool["name"]) for tool in tools)):
            yield names_step(refused)
        for step in () if further is None else await further(client, seller, tools):
            yield step


class _Broken(Exception):
    def __init__(self, step: CheckStep) -> None:
        super().__init__(step.detail)
        self.step = step


def _failed(name: str, error: ClientError) -> CheckStep:
    return CheckStep(name=name, state="failed", detail=str(error), hint=error.hint)


async def _discovery(client: HttpClient, file: TokenFile, url: str) -> AsyncGenerator[CheckStep, None]:
    try:
        challenge = await find_challenge(client, url)
    except OpenServer:
        raise
    except ClientError as error:
        raise _Broken(_failed("challenge", error)) from None
    if challenge.resource_metadata is None:
        yield CheckStep(
            name="challenge",
            state="failed",
            detail="401 without resource_metadata: many clients do not find the login",
            hint="the server's WWW-Authenticate should name its resource metadata (RFC 9728 §5.1)",
        )
    else:
        yield CheckStep(name="challenge", state="ok", detail="401, and says where the metadata is")
    try:
        resource = await find_resource(client, url, challenge)
    except NoDocument as missing:
        place = await _place_as_of_old(client, url, challenge, missing)
        yield CheckStep(
            name="resource",
            state="failed",
            detail="no resource metadata, as before 2025-06-18: newer clients do not find the login",
            hint="the server should publish its resource metadata (RFC 9728 §3)",
        )
    except ClientError as error:
        raise _Broken(_failed("resource", error)) from None
    else:
        scope = wanted_scope(challenge, resource)
        scopes = f", scope {scope}" if scope else ""
        yield CheckStep(name="resource", state="ok", detail=f"{resource.resource}{scopes}")
        try:
            server = await find_server(client, url, resource.authorization_server)
        except ClientError as error:
            raise _Broken(_failed("issuer", error)) from None
        place = Place(url=url, resource=resource.resource, scope=login_scope(scope, server), server=server)
    yield CheckStep(name="issuer", state="ok", detail=place.server.issuer)
    if not place.server.device_login and not place.server.browser_login:
        yield CheckStep(
            name="device login",
            state="failed",
            detail="the authorization server offers neither codes nor a login in a browser",
            hint="`ostiary login` needs one of the two; this is the server's to put right",
        )
        return
    yield await _device_login(client, place)
    yield await _browser_login(client, file, place)


async def _place_as_of_old(client: HttpClient, url: str, challenge: Challenge, missing: NoDocument) -> Place:
    try:
        return await discover_as_of_old(client, url, challenge, missing)
    except NoDocument:
        raise _Broken(_failed("resource", missing)) from None
    except ClientError as error:
        raise _Broken(_failed("issuer", error)) from None


async def _device_login(client: HttpClient, place: Place) -> CheckStep:
    name, endpoint = "device login", place.server.device_authorization_endpoint
    if endpoint is None or not place.server.device_login:
        return CheckStep(name=name, state="skipped", detail="not offered; the way in is a browser")
    headers = {"Accept": "application/json", "Content-Type": FORM}
    try:
        answer = await asking(client)("POST", endpoint, headers, REFUSABLE)
        if answer.status == 200:
            raise BadAnswer("the device endpoint hands out codes to nobody in particular")
        with oauth_trouble(endpoint):
            read_refusal(answer)
    except ServerBusy:
        return CheckStep(name=name, state="ok", detail="offered, and busy just now")
    except ClientError as error:
        return _failed(name, error)
    return CheckStep(name=name, state="ok", detail="offered, and the endpoint answers")


async def _browser_login(client: HttpClient, file: TokenFile, place: Place) -> CheckStep:
    """Check all that `ostiary login --browser` needs, up to the page that a person would see."""
    name, server = "browser login", place.server
    endpoint = server.authorization_endpoint
    if endpoint is None or not server.browser_login:
        return CheckStep(name=name, state="skipped", detail="not offered; the way in is a code")
    if S256 not in server.challenge_methods:
        return CheckStep(
            name=name,
            state="failed",
            detail=f"offered, but not protected (PKCE with {S256})",
            hint="the server's metadata should list it in code_challenge_methods_supported; clients refuse without",
        )
    try:
        status = (await peek(client, "GET", _page(place), headers={"Accept": "text/html"})).status
    except ClientError as error:
        return _failed(name, error)
    if status in (429, 503):
        return CheckStep(name=name, state="ok", detail="offered, and busy just now")
    if (server.built_in_client is not None and status >= 400) or status in (404, 405, 410) or status >= 500:
        return CheckStep(
            name=name,
            state="failed",
            detail=f"offered, but its page answers with status {status}",
            hint=f"look at it in a browser: {endpoint}",
        )
    return await _introduction(file, place)


def _page(place: Place) -> str:
    """Return the link to which a login would send the browser.

    Without a built-in client id of ours there, the link is the bare authorization endpoint: it refuses, but it answers.
    """
    server = place.server
    if server.built_in_client is None:
        return server.authorization_endpoint or ""
    identity = ClientIdentity(client_id=server.built_in_client)
    return browser_login.begin(place, identity, redirect_uri=NOWHERE, scope=place.scope).link


async def _introduction(file: TokenFile, place: Place) -> CheckStep:
    """Report how programs register at the authorization server, and whether this one can."""
    name, server = "browser login", place.server
    found = {
        "registration": server.registration_endpoint is not None,
        "documents": server.documents,
        "iss": server.names_itself,
    }
    offered = ", ".join(["offered with PKCE", *(each for each, there in found.items() if there)])
    try:
        await recall(file, place, "browser", given=None, now=wall_clock())
    except LoginError:
        return CheckStep(
            name=name,
            state="skipped",
            detail=f"{offered}; programs in a terminal cannot register themselves",
            hint=f"register a client there by hand, then: ostiary login {quote(place.url)} --client-id ID",
        )
    hint = (
        None
        if server.names_itself
        else "its answers do not name it (RFC 9207): a mix-up of servers goes unseen"
    )
    return CheckStep(name=name, state="ok", detail=offered, hint=hint)


async def _login(access: Access) -> CheckStep:
    try:
        if await access.stored() is None:
            error = await access.not_logged_in()
            return CheckStep(name="login", state="skipped", detail="not logged in from here", hint=error.hint)
        login = await access.login()
    except NotLoggedIn as error:
        return CheckStep(name="login", state="failed", detail=str(error), hint=error.hint)
    except ClientError as error:
        return _failed("login", error)
    return CheckStep(name="login", state="ok", detail=f"a token is stored, scope {login.scope or 'not said'}")


async def _tools(
    client: HttpClient, url: str, access: Access, nameless: NamelessEntry | None
) -> tuple[CheckStep, list[dict[str, Any]] | None]:
    try:
        async with client_over_http(client, url, access, nameless=nameless) as mcp:
            server, tools = mcp.server, await mcp.tools()
    except ClientError as error:
        return _failed("tools", error), None
    speaker = f"{server.name} {server.server_version}".strip() or "the server"
    count = f"{len(tools)} tool{'' if len(tools) == 1 else 's'}"
    to_all = " for whoever pays, without a login" if mcp.nameless else ""
    detail = f"{count}{to_all} from {speaker}, MCP {server.version}"
    return CheckStep(name="tools", state="ok", detail=detail), tools
