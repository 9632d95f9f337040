"""What upstreams tell unasked over HTTP, in each of the three ways that they have, and the transport of 2024-11-05."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from msgspec import Raw
from upstreams import (
    CAN_ALL,
    Caller,
    Double,
    Gate,
    Log,
    Turn,
    gate,
    over_http,
    read_request,
    soon,
    text,
    tool,
    with_streams,
    words,
)
from wires import Wire

from server.agents.mcp import upstream_keeper
from server.client.mcp_session import http_answers, http_changes
from server.client.mcp_session.agreement import Agreement
from server.client.mcp_session.http_answers import Take
from server.client.mcp_session.http_sessions import HttpSession
from server.client.mcp_session.http_wire import EVENTS, JSON, HttpWire
from server.client.mcp_session.session_link import ServerNews
from server.client.mcp_session.session_messages import ServerFailure


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_keeper, "RELIST_SECONDS", 0.01)
    monkeypatch.setattr(http_changes, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(http_answers, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(http_answers, "SHORTEST_WAIT_SECONDS", 0.01)


async def test_a_stateless_server_is_listened_to_and_asked_for_more_when_somebody_wants_more() -> None:
    said: list[Turn] = []
    heard: list[Turn] = []

    async def listen(turn: Turn) -> Any:
        said.append(turn)
        await turn.tell("notifications/subscriptions/acknowledged", notifications={})
        heard.append(turn)
        await trio.sleep_forever()

    double = Double(
        era="stateless",
        capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}},
        handlers={"subscriptions/listen": listen},
    )
    async with over_http(double) as url, gate(url=url) as door:
        # A stream that broke off meanwhile is opened again, and the newest is the one that is heard.
        await soon(lambda: heard)
        assert said[-1].params["notifications"] == {"toolsListChanged": True}
        double.lists["tools"].append(tool("more"))
        await said[-1].tell("notifications/tools/list_changed")
        await soon(lambda: len(door.backend.tools()) == 2)
        door.backend.follow("note://1")
        await soon(lambda: "resourceSubscriptions" in said[-1].params["notifications"])
        assert said[-1].params["notifications"]["resourceSubscriptions"] == ["note://1"]
        await soon(lambda: said[-1] in heard)
        await said[-1].tell("notifications/resources/updated", uri="note://1")
        await soon(lambda: door.updated)
        assert door.updated == ["note://1"]


async def test_what_comes_in_the_place_of_another_listens_for_what_that_one_did() -> None:
    double = Double(capabilities={"tools": {}, "resources": {"subscribe": True}})
    async with over_http(double) as url, gate(url=url) as old:
        old.backend.follow("note://1")
        await soon(lambda: double.of("resources/subscribe"))

        def follow(door: Gate) -> None:
            door.backend.succeed(old.backend)

        async with gate(url=url, connect="lazy", before=follow):
            await soon(lambda: len(double.of("resources/subscribe")) == 2)
            assert double.of("resources/subscribe")[1]["params"]["uri"] == "note://1"


async def test_a_stream_of_changes_that_ends_is_opened_again_and_the_lists_are_read() -> None:
    begun = 0

    async def listen(turn: Turn) -> Any:
        nonlocal begun
        begun += 1
        if begun == 1:
            await turn.tell("notifications/subscriptions/acknowledged", notifications={})
            double.lists["tools"].append(tool("more"))
            return {}
        return await trio.sleep_forever()

    double = Double(
        era="stateless",
        capabilities={"tools": {"listChanged": True}},
        handlers={"subscriptions/listen": listen},
    )
    async with over_http(double) as url, gate(url=url) as door:
        await soon(lambda: len(door.backend.tools()) == 2)
        await soon(lambda: begun == 2)


async def test_a_server_of_the_handshake_era_tells_on_a_get(monkeypatch: pytest.MonkeyPatch) -> None:
    # A stream that was refused would be opened again, and the lists read without a word of the server.
    monkeypatch.setattr(http_answers, "LONGEST_WAIT_SECONDS", 3_600.0)
    monkeypatch.setattr(http_answers, "FIRST_WAIT_SECONDS", 3_600.0)
    double = Double(capabilities={"tools": {"listChanged": True}})
    async with with_streams(double) as (url, streams), gate(url=url) as door:
        await soon(lambda: streams)
        double.lists["tools"].append(tool("more"))
        event = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
        await streams[0].send_all(b"%x\r\n%s\r\n" % (len(event), event))
        await soon(lambda: len(door.backend.tools()) == 2)


async def listening(answer: Mapping[str, Any], *, modern: bool) -> str:
    """Listen to an upstream that answers so; what has come of it when the lists are read, or nobody listens any more."""
    came: list[str] = []
    taken: list[int] = []
    log = Log()

    async def nothing(*_: object) -> bytes:
        return b""

    @asynccontextmanager
    async def stream(*_: object) -> AsyncGenerator[Any]:
        await trio.lowlevel.checkpoint()
        yield SimpleNamespace(**answer, part=nothing, read=nothing, beginning=nothing)

    def taker(number: int) -> Take[Raw]:
        taken.append(number)
        return ignore

    async def ignore(_: bytes) -> None:
        return None

    async def renew(lost: HttpSession) -> None:
        assert lost.id == "s-1", "the one in which it listened"
        came.append("another session")

    async with trio.open_nursery() as nursery:
        changes = http_changes.HttpChanges(
            cast(
                "HttpWire",
                SimpleNamespace(stream=stream, attend=stream, most=Wire.most, problem=Wire().problem),
            ),
            ServerNews(nursery.cancel_scope.cancel, came.append),
            take=taker,
            number=lambda: 7,
            name="test",
            log=log.logger,
        )
        agreement = Agreement(version="", modern=modern, capabilities={"tools": {"listChanged": {}}})
        await changes.run(agreement, lambda: HttpSession("s-1", b""), renew, {})
        came.append("over")
    assert taken in ([], [7 if modern else 0])
    came += [each["reason"] for each in log.of("upstream.not_listening")]
    return ", ".join(came) or "listened"


@pytest.mark.parametrize(
    ("status", "kind", "comes"),
    [
        (405, "", "over"),
        (404, "", "over"),
        (200, EVENTS, "listened"),
        (299, EVENTS, "listened"),
        (200, JSON, "over"),
        (300, EVENTS, "over"),
        (500, EVENTS, "status 500"),
    ],
)
async def test_only_a_stream_of_a_good_status_is_listened_to(status: int, kind: str, comes: str) -> None:
    assert comes in await listening({"status": status, "media_type": kind}, modern=False)


@pytest.mark.parametrize(
    ("status", "comes"),
    [(403, "status 403"), (404, "over"), (405, "over"), (406, "status 406"), (200, "no result")],
)
async def test_whoever_knows_no_subscriptions_is_not_asked_again(status: int, comes: str) -> None:
    assert comes in await listening({"status": status, "media_type": JSON}, modern=True)


async def test_where_the_servers_own_session_was_lost_the_lists_are_read_again() -> None:
    double = Double(session="s-1", capabilities={"tools": {}, "resources": {"subscribe": True}})
    async with over_http(double) as url, gate(url=url) as door:
        double.session = "s-2"
        double.lists["tools"].append(tool("more"))
        door.backend.follow("note://1")
        await soon(lambda: len(door.backend.tools()) == 2)
        assert len(double.of("initialize")) == 2


async def test_where_the_servers_own_session_was_lost_what_was_followed_is_followed_again() -> None:
    double = Double(session="s-1", capabilities={"tools": {}, "resources": {"subscribe": True}})

    def followed_in() -> list[tuple[str, str]]:
        heard = zip(double.heard, double.heads, strict=True)
        asked = [
            (message["params"]["uri"], head["mcp-session-id"])
            for message, head in heard
            if message.get("method") == "resources/subscribe"
        ]
        return sorted(asked)

    async with over_http(double) as url, gate(url=url) as door:
        for uri in ("note://1", "note://2"):
            door.backend.follow(uri)
        await soon(lambda: len(followed_in()) == 2)
        double.session = "s-2"
        door.backend.try_again()
        await soon(lambda: len(followed_in()) == 4)
        assert followed_in() == [(f"note://{n}", f"s-{session}") for n in (1, 2) for session in (1, 2)]


async def test_an_answer_whose_stream_ends_early_is_fetched_where_it_goes_on() -> None:
    """2025-11-25: the server lets go of the connection, and says how to come back."""
    asked: list[str | None] = []

    async def serve(stream: trio.SocketStream) -> None:
        async def events(body: str) -> None:
            head = (
                f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            await stream.send_all((head + body).encode())

        async with stream:
            while (request := await read_request(stream)) is not None:
                method, headers, body = request
                if method == "GET":
                    asked.append(headers.get("last-event-id"))
                    answer = {
                        "jsonrpc": "2.0",
                        "id": double.of("tools/call")[0]["id"],
                        "result": text("late"),
                    }
                    await events(f"id: 2\ndata: {json.dumps(answer)}\n\n")
                    continue
                if json.loads(body)["method"] == "tools/call":
                    double.hear(json.loads(body), headers)
                    await events("id: 1\nretry: 1\ndata:\n\n")
                    continue
                answers: list[Any] = []

                async def keep(answer: Any, answers: list[Any] = answers) -> None:
                    answers.append(answer)

                await double.take(json.loads(body), keep, headers)
                raw = json.dumps(answers[0]) if answers else ""
                status = 200 if answers else 202
                head = f"HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
                await stream.send_all((head + raw).encode())

    double = Double()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        async with gate(url=f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp") as door:
            assert await door.say("hello") == "late"
            assert asked == ["1"]
        nursery.cancel_scope.cancel()


async def test_a_server_of_the_first_revision_is_spoken_to_over_its_two_endpoints() -> None:
    async def ask(turn: Turn) -> Any:
        asked = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
        return text((await turn.ask("elicitation/create", **asked))["result"]["action"])

    double = Double(version="2024-11-05")
    double.handlers["ask"] = ask
    double.lists["tools"].append(tool("ask"))
    async with with_streams(double, old=True) as (url, _), gate(url=url) as door:
        assert door.backend.trouble() is None
        assert await door.say("hello") == "hello"
        caller = Caller(lambda asked: {key: {"action": "decline"} for key in asked})
        assert words(await door.call("ask", caller, can=CAN_ALL)) == "decline"


async def test_an_endpoint_at_another_place_is_not_used() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            while (request := await read_request(stream)) is not None:
                if request[0] != "GET":
                    await stream.send_all(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
                    continue
                event = b"event: endpoint\ndata: http://169.254.169.254/latest\n\n"
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
                await stream.send_all(head % len(event) + event)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        async with gate(url=f"http://127.0.0.1:{port}/sse") as door:
            trouble = door.backend.trouble()
            assert trouble is not None
            assert "no MCP endpoint there (status 405)" in trouble.words
        nursery.cancel_scope.cancel()


async def test_what_goes_wrong_before_the_event_is_raised_and_what_it_said_is_told() -> None:
    async def fails() -> bool:
        raise ServerFailure("gone")

    async def says() -> bool:
        return False

    async def never() -> bool:
        await trio.sleep_forever()
        return False

    with pytest.raises(ServerFailure):
        await http_changes.until(trio.Event(), fails)
    assert await http_changes.until(trio.Event(), says) is False
    happened = trio.Event()
    happened.set()
    assert await http_changes.until(happened, never) is True
