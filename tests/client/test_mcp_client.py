from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import trio
import trio.testing
from connecting import Connect
from fake_server import TOOLS, FakeServer, Response, Seen, as_events, as_json

from server.client.access_token import Access
from server.client.client_errors import (
    BadAnswer,
    CallRefused,
    ClientError,
    NotLoggedIn,
    ScopeNeeded,
    ServerBusy,
    Unreachable,
)
from server.client.mcp_client import McpClient, TellProgress
from server.client.opened_clients import client_over_http
from server.client.token_file import TokenFile
from server.lib.http_client.http_client import HttpClient
from tests.agents.python.fake_agent import pass_when

pytestmark = pytest.mark.usefixtures("in_time")

STRANGE_SCOPE = "x';id;'"


def tool(name: str) -> dict[str, Any]:
    return next(tool for tool in TOOLS if tool["name"] == name)


async def call(
    mcp: McpClient,
    which: dict[str, Any],
    arguments: dict[str, Any],
    *,
    progress: TellProgress | None = None,
    seconds: float = 60,
) -> dict[str, Any]:
    return await mcp.call(which, arguments, progress=progress, seconds=seconds)


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


def methods(fake: FakeServer) -> list[str]:
    return [
        json.loads(request.body).get("method", "") for request in fake.seen if request.body.startswith(b"{")
    ]


async def test_a_modern_server_is_spoken_to_without_a_handshake(fake: FakeServer, connect: Connect) -> None:
    mcp = await connect()
    server = mcp.server
    assert (server.era, server.version, server.name) == ("modern", "2026-07-28", "fake")
    assert [found["name"] for found in await mcp.tools()] == ["echo", "fail", "slow", "region"]
    assert text(await call(mcp, tool("echo"), {"text": "hällo"})) == "hällo"
    assert methods(fake) == ["server/discover", "tools/list", "tools/list", "tools/call"]
    sent = fake.seen[-1]
    assert sent.headers["mcp-method"] == "tools/call"
    assert sent.headers["mcp-name"] == "echo"
    assert sent.headers["mcp-protocol-version"] == "2026-07-28"
    assert "mcp-session-id" not in sent.headers
    assert len({request.message["id"] for request in fake.seen}) == 4


@pytest.mark.parametrize("sessions", [True, False])
async def test_an_older_server_gets_the_handshake(fake: FakeServer, connect: Connect, sessions: bool) -> None:
    fake.era, fake.sessions = "legacy", sessions
    mcp = await connect()
    server = mcp.server
    assert (server.era, server.version, server.name) == ("legacy", "2025-11-25", "old fake")
    assert len(await mcp.tools()) == 4
    assert text(await call(mcp, tool("echo"), {"text": "hello"})) == "hello"
    assert methods(fake)[:3] == ["server/discover", "initialize", "notifications/initialized"]
    sent = fake.seen[-1]
    assert sent.headers["mcp-protocol-version"] == "2025-11-25"
    assert "_meta" not in sent.message["params"]
    assert sent.headers.get("mcp-session-id") == ("s-1" if sessions else None)
    await connect.leave()
    assert fake.count["sessions ended"] == (1 if sessions else 0)


async def test_a_session_that_the_server_forgot_is_begun_again_once(
    fake: FakeServer, connect: Connect
) -> None:
    fake.era = "legacy"
    mcp = await connect()
    fake.session_ids.clear()
    assert text(await call(mcp, tool("echo"), {"text": "hello"})) == "hello"
    assert fake.count["sessions"] == 2


@pytest.mark.parametrize(
    ("response", "era"),
    [
        (as_json({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "?"}}, 404), "modern"),
        (as_json({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "?"}}, 200), "legacy"),
        (as_json({"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "message": "?"}}, 400), "legacy"),
        (
            as_json(
                {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "error": {"code": -32022, "message": "?", "data": {"supported": ["2027-01-01"]}},
                },
                400,
            ),
            "legacy",
        ),
        (
            as_json({"jsonrpc": "2.0", "id": 1, "result": {"supportedVersions": ["2027-01-01"]}}),
            "legacy",
        ),
        (Response(404), "legacy"),
        (Response(400, b"what?"), "legacy"),
    ],
)
async def test_the_answer_to_the_first_question_settles_the_era(
    fake: FakeServer, connect: Connect, response: Response, era: str
) -> None:
    fake.era = era

    async def first(request: Seen) -> Response:
        if request.message.get("method") == "server/discover":
            return response
        return await fake.usual(request)

    fake.overrides["/mcp"] = first
    assert (await connect()).server.era == era


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_progress_is_told_before_the_result(fake: FakeServer, connect: Connect, era: str) -> None:
    fake.era = era
    mcp = await connect()
    told: list[tuple[float, float | None, str]] = []
    result = await call(mcp, tool("slow"), {}, progress=lambda *step: told.append(step))
    assert text(result) == "done"
    assert told == [(1.0, 2.0, "halfway")]


async def test_a_refused_token_is_renewed_once_and_the_request_repeated(
    fake: FakeServer, connect: Connect
) -> None:
    mcp = await connect()
    fake.valid.clear()
    assert text(await call(mcp, tool("echo"), {"text": "hello"})) == "hello"
    assert fake.count["refreshed"] == 1


async def test_a_server_that_refuses_even_a_new_token_is_not_asked_for_ever(
    fake: FakeServer, connect: Connect
) -> None:
    mcp = await connect()

    async def refuse(request: Seen) -> Response:
        return as_json({}, 401)

    fake.overrides["/mcp"] = refuse
    with pytest.raises(NotLoggedIn, match="does not accept") as refused:
        await call(mcp, tool("echo"), {"text": "hello"})
    assert refused.value.hint == f"ostiary login {fake.url}"
    assert fake.count["refreshed"] == 1


async def test_without_a_login_an_open_server_is_used_and_a_closed_one_explained(
    fake: FakeServer, file: TokenFile, client: HttpClient
) -> None:
    access = Access(file, fake.url, client=client)
    with pytest.raises(NotLoggedIn, match="not logged in"):
        async with client_over_http(client, fake.url, access):
            pass
    fake.login_needed = False
    async with client_over_http(client, fake.url, access) as mcp:
        assert len(await mcp.tools()) == 4
    assert all("authorization" not in request.headers for request in fake.seen)


@pytest.mark.parametrize(
    ("response", "error", "said", "hint"),
    [
        (
            as_json(
                {}, 403, WWW_Authenticate='Bearer error="insufficient_scope", scope="mcp admin"'
            ),
            ScopeNeeded,
            "scopes mcp admin",
            "--scope 'mcp admin'",
        ),
        (
            as_json(
                {},
                403,
                WWW_Authenticate='Bearer error="insufficient_scope", scope="mcp admin", error_description="the login lacks admin"',
            ),
            ScopeNeeded,
            "^the login lacks admin$",
            "--scope 'mcp admin'",
        ),
        (
            as_json({}, 403, WWW_Authenticate="Bearer error=\"insufficient_scope\", scope=\"x';id;'\""),
            ScopeNeeded,
            f"scopes {STRANGE_SCOPE}",
            f"--scope {shlex.quote(STRANGE_SCOPE)}",
        ),
        (Response(403), CallRefused, "refuses this client", "doctor"),
        (Response(402), ClientError, "price", "x402"),
        (Response(413), CallRefused, "larger", None),
        (Response(429, headers={"retry-after": "7"}), ServerBusy, "busy", "7 seconds"),
        (Response(503), ServerBusy, "busy", "in a moment"),
        (Response(500), BadAnswer, "status 500", "log"),
        (Response(302, headers={"location": "https://a.example"}), BadAnswer, "redirects", "use"),
        (Response(200, b"<html>"), BadAnswer, "no result", "doctor"),
        (Response(200, b"", {"content-type": "text/event-stream"}), BadAnswer, "before the result", None),
        (as_events({"jsonrpc": "2.0", "id": 999, "result": {}}), BadAnswer, "before the result", None),
        (as_events("noise", {"jsonrpc": "2.0", "id": 2, "error": {"code": 7, "message": "no"}}), CallRefused, "no", None),
        (as_json({"jsonrpc": "2.0", "id": 2, "result": []}), BadAnswer, "no result", None),
        (
            as_json({"jsonrpc": "2.0", "id": 2, "result": {"resultType": "input_required"}}),
            ClientError,
            "question",
            None,
        ),
        (Response(break_off=True), Unreachable, "broke off", None),
    ],
)  # fmt: skip
async def test_every_way_to_say_no_is_explained(
    fake: FakeServer,
    connect: Connect,
    response: Response,
    error: type[ClientError],
    said: str,
    hint: str | None,
) -> None:
    mcp = await connect()

    async def answer(request: Seen) -> Response:
        return response

    fake.overrides["/mcp"] = answer
    with pytest.raises(error, match=said) as refused:
        await call(mcp, tool("echo"), {"text": "hello"})
    assert hint is None or hint in (refused.value.hint or "")


async def test_an_argument_that_belongs_into_a_header_is_put_there(
    fake: FakeServer, connect: Connect
) -> None:
    mcp = await connect()
    await call(mcp, tool("region"), {"where": "eu"})
    assert fake.seen[-1].headers["mcp-param-region"] == "eu"


async def test_a_failing_tool_is_a_result_not_an_error(fake: FakeServer, connect: Connect) -> None:
    mcp = await connect()
    assert (await call(mcp, tool("fail"), {}))["isError"] is True


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_stream_that_floods_before_its_answer_is_cut_off(
    fake: FakeServer, connect: Connect, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.era = era
    mcp = await connect()
    monkeypatch.setattr("server.client.login_wire.STREAM_BYTES", 10_000)
    told = {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"level": "info", "data": "x" * 900},
    }

    async def flood(request: Seen) -> Response:
        if request.message.get("method") != "tools/call":
            return await fake.usual(request)
        answered = {"jsonrpc": "2.0", "id": request.message["id"], "result": {"content": []}}
        return as_events(*[told] * 20, answered)

    fake.overrides["/mcp"] = flood
    with pytest.raises(BadAnswer, match="answered with more than"):
        await mcp.call({"name": "echo"}, {"text": "hi"}, seconds=60)


async def test_a_list_without_an_end_is_cut_off(fake: FakeServer, connect: Connect) -> None:
    mcp = await connect()

    async def endless(request: Seen) -> Response:
        result = {"tools": TOOLS, "nextCursor": "again", "resultType": "complete"}
        return as_json({"jsonrpc": "2.0", "id": request.message["id"], "result": result})

    fake.overrides["/mcp"] = endless
    with pytest.raises(BadAnswer, match="never comes to the end"):
        await mcp.tools()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_that_takes_too_long_is_given_up_and_an_older_server_told(
    fake: FakeServer, connect: Connect, era: str, mock_clock: trio.testing.MockClock
) -> None:
    fake.era = era
    mcp = await connect()
    came = trio.Event()

    async def hang(request: Seen) -> Response:
        if request.message.get("method") == "tools/call":
            came.set()
            await trio.sleep_forever()
        return await fake.usual(request)

    fake.overrides["/mcp"] = hang
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_when, mock_clock, 0.3, came)
        with pytest.raises(Unreachable, match=r"within 0\.3 seconds"):
            await call(mcp, tool("echo"), {"text": "hello"}, seconds=0.3)
    assert ("notifications/cancelled" in methods(fake)) is (era == "legacy")


async def test_a_server_that_asks_on_the_stream_gets_an_answer(fake: FakeServer, connect: Connect) -> None:
    fake.era = "legacy"
    mcp = await connect()

    async def asking(request: Seen) -> Response:
        message = request.message
        if message.get("method") != "tools/call":
            return await fake.usual(request)
        return as_events(
            {"jsonrpc": "2.0", "id": "p", "method": "ping"},
            {"jsonrpc": "2.0", "id": "r", "method": "roots/list"},
            {"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}},
        )

    fake.overrides["/mcp"] = asking
    await call(mcp, tool("echo"), {"text": "hello"})
    ping, roots = (request.message for request in fake.seen[-2:])
    assert ping == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert roots["error"]["code"] == -32601
