"""server/transport/http/router.py: which way a request goes, and what is said of it afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from loopback_server import GOOD, Echo, capturing, networks_of, respond, running, until

from server.transport.http.allowed_hosts import Guard
from server.transport.http.asgi import hosting
from server.transport.http.proxy import Proxies
from server.transport.http.router import Router


def answering(name: bytes) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        return await respond(send, 200, name)

    return app


class Routed:
    def __init__(self, **options: Any) -> None:
        self.log, self.logged = capturing()
        self.served: list[tuple[str, int]] = []
        mcp = {"/mcp": hosting(answering(b"first")), "/second/mcp": hosting(answering(b"second"))}
        options.setdefault("pages", answering(b"site"))
        self.resolve = Router(
            mcp=mcp,
            guard=Guard(),
            log=self.log,
            observe=lambda *seen: self.served.append(seen),
            **options,
        ).resolve

    def lines(self) -> list[dict[str, Any]]:
        return [call.kwargs for call in self.logged.calls]


@pytest.mark.requirement("http.one-path")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (b"/mcp", b"first"),
        (b"/mcp/", b"first"),
        (b"/mcp?x=/second/mcp", b"first"),
        (b"/%6dcp", b"first"),
        (b"/second/mcp", b"second"),
        (b"/second/mcp/", b"second"),
        (b"/third/mcp", b"site"),
        (b"/mcp/x", b"site"),
        (b"//mcp", b"site"),
        (b"/MCP", b"site"),
        (b"/", b"site"),
    ],
)
async def test_exact_paths_go_to_their_mcp_handler_and_all_else_to_the_site(path: bytes, body: bytes) -> None:
    async with running(resolve=Routed().resolve) as server, await server.connect() as peer:
        assert (await peer.ask(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")).body == body


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (b"/main/call/echo", b"call"),
        (b"/main/call/", b"call"),
        (b"/main/call/a/b", b"call"),
        (b"/main/%63all/echo", b"call"),
        (b"/main/call", b"site"),
        (b"/mcp/call/echo", b"site"),
        (b"//main/call/echo", b"site"),
        (b"/x/main/call/echo", b"site"),
        (b"/main/calls/echo", b"site"),
        (b"/mcp", b"first"),
    ],
)
async def test_what_lies_two_levels_down_goes_by_what_its_path_begins_with(path: bytes, body: bytes) -> None:
    routed = Routed(below={"/main/call/": hosting(answering(b"call"))})
    async with running(resolve=routed.resolve) as server, await server.connect() as peer:
        assert (await peer.ask(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")).body == body


BROWSERS = b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def where(scope: Any) -> bytes:
    return f"{scope['path']}?{scope['query_string'].decode()}".encode()


async def asked(*fields: bytes, path: bytes = b"/mcp", verb: bytes = b"GET") -> bytes:
    """What answers a request with these headers."""

    async def site(scope: Any, receive: Any, send: Any) -> None:
        return await respond(send, 200, where(scope))

    routed = Routed(pages=site, pages_of={"/mcp": ("/connect", b"server=main")})
    async with running(resolve=routed.resolve) as server, await server.connect() as peer:
        lines = [verb + b" " + path + b" HTTP/1.1", b"Host: localhost", *fields, b"", b""]
        answer = await peer.ask(b"\r\n".join(lines))
    assert routed.served == [(path.decode(), 200)]
    return answer.body


@pytest.mark.parametrize("path", [b"/mcp", b"/mcp/"])
async def test_a_person_who_opens_the_address_of_a_server_is_shown_how_to_connect_to_it(path: bytes) -> None:
    assert await asked(BROWSERS, b"Sec-Fetch-Mode: navigate", path=path) == b"/connect?server=main"
    assert await asked(BROWSERS, path=path) == b"/connect?server=main"
    assert await asked(BROWSERS, path=b"/second/mcp") == b"second"


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (b"Accept: */*",),
        (b"Accept: application/json, text/event-stream",),
        (b"Accept: text/event-stream",),
        (BROWSERS + b", text/event-stream",),
        (BROWSERS, b"Authorization: Bearer x"),
        (BROWSERS, b"X-API-Key: x"),
        (BROWSERS, b"MCP-Protocol-Version: 2025-11-25"),
        (BROWSERS, b"Mcp-Session-Id: x"),
        (BROWSERS, b"Payment-Signature: x"),
        (BROWSERS, b"Sec-Fetch-Mode: cors"),
    ],
)
async def test_a_program_gets_there_what_it_always_got(fields: tuple[bytes, ...]) -> None:
    assert await asked(*fields) == b"first"
    assert await asked(BROWSERS, verb=b"POST") == b"first"
    assert await asked(BROWSERS, verb=b"DELETE") == b"first"


async def test_the_site_is_not_shown_under_a_foreign_name() -> None:
    async with running(resolve=Routed().resolve) as server, await server.connect() as peer:
        answer = await peer.ask(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert answer.status == 403
        assert b"evil" not in answer.body
        assert (await peer.ask(b"GET / HTTP/1.0\r\n\r\n")).status == 403


async def test_one_line_says_what_was_asked_and_answered_without_query_and_header() -> None:
    routed = Routed()
    async with running(resolve=routed.resolve) as server, await server.connect() as peer:
        await peer.ask(b"GET /a?code=hush HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hush\r\n\r\n")
        await until(lambda: bool(routed.lines()))
    (line,) = routed.lines()
    assert line.pop("ms") >= 0
    assert line.pop("request")
    assert line == {"event": "http.request", "method": "GET", "path": "/a", "status": 200, "ip": "127.0.0.1"}
    assert routed.served == [("/a", 200)]


async def test_one_time_links_are_masked_and_long_paths_cut() -> None:
    routed = Routed(secret_paths=("/claim/",))
    async with running(resolve=routed.resolve) as server, await server.connect() as peer:
        for link in (b"/claim/hush", b"//claim/hush", b"/Claim/hush"):
            await peer.ask(b"GET " + link + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await peer.ask(b"GET /" + b"a" * 1000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(routed.lines()) == 4)
    assert [line["path"] for line in routed.lines()] == [
        "/claim/***",
        "//claim/***",
        "/claim/***",
        "/" + "a" * 199,
    ]


async def test_a_request_whose_client_left_or_whose_handler_failed_has_its_line_too() -> None:
    started = trio.Event()

    async def site(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/fails":
            raise ValueError
        started.set()
        await receive()
        await receive()
        return

    routed = Routed(pages=site)
    async with running(resolve=routed.resolve) as server:
        async with await server.connect() as peer:
            await peer.ask(b"GET /fails HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with await server.connect() as peer:
            await peer.send(b"GET /left HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with trio.fail_after(60):
                await started.wait()
        await until(lambda: len(routed.lines()) == 2)
    assert [(line["path"], line["status"]) for line in routed.lines()] == [("/fails", 0), ("/left", 0)]


async def test_behind_a_listed_proxy_the_caller_is_who_the_proxy_says() -> None:
    echo = Echo()
    routed = Routed(pages=echo, proxies=Proxies(networks=networks_of(["127.0.0.1"])))
    async with running(resolve=routed.resolve) as server, await server.connect() as peer:
        forwarded = b"X-Forwarded-For: 198.51.100.7\r\n"
        assert (
            await peer.ask(GOOD.replace(b"Host", forwarded + b"Host"))
        ).status == 403  # a name of ours only on loopback
        assert (await peer.ask(GOOD)).status == 200
    assert [line["ip"] for line in routed.lines()] == ["198.51.100.7", "127.0.0.1"]
    assert len(echo.seen) == 1
