"""Upstreams that hang, flood, lie and talk nonsense: each is its own trouble, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from upstreams import Caller, Double, Turn, gate, over_http, over_tcp, soon, text, tool, words

from server.agents.base.backend import AnswerLost, ToolCrashed, Unreached
from server.agents.base.catalog import Catalog, Source
from server.agents.mcp import offer_lists, upstream_keeper
from server.client.mcp_session import message_channel
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Progress

Peer = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def someone(peer: Peer) -> AsyncGenerator[str]:
    """At host:port, whoever connects meets `peer`."""

    async def serve(stream: trio.SocketStream) -> None:
        try:
            async with stream:
                await peer(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(lambda **more: trio.serve_tcp(serve, 0, host="127.0.0.1", **more))
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def trouble_of(door: Any) -> str:
    trouble = door.backend.trouble()
    assert trouble is not None
    return trouble.words


async def test_one_that_never_says_anything_is_given_up_and_the_others_work() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with (
        someone(silent) as tcp,
        over_tcp(Double()) as good,
        gate(tcp=tcp, start_seconds=1, era="handshake") as bad_door,
        gate(tcp=good) as good_door,
    ):
        await soon(lambda: "did not answer within 1 s" in trouble_of(bad_door))
        assert await good_door.say("hello") == "hello"


async def test_one_that_is_not_waited_for_holds_up_no_start() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with someone(silent) as tcp:
        with trio.fail_after(60):
            async with gate(tcp=tcp, connect="lazy") as door:
                assert trouble_of(door) == "is not connected yet"


async def test_a_call_that_hangs_holds_up_no_other() -> None:
    async def hang(turn: Turn) -> Any:
        await trio.sleep_forever()

    double = Double()
    double.handlers["hang"] = hang
    double.lists["tools"].append(tool("hang"))
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door, trio.open_nursery() as nursery:
        nursery.start_soon(door.call, "hang")
        await soon(lambda: double.of("tools/call"))
        assert await door.say("hello") == "hello"
        nursery.cancel_scope.cancel()


async def test_lines_that_are_no_messages_are_passed_over() -> None:
    async def noisy(turn: Turn) -> Any:
        for nonsense in (
            {},
            {"id": 99, "result": {}},
            {"id": [1], "method": "x"},
            {"jsonrpc": "2.0", "id": "1"},
        ):
            await turn.say(nonsense)
        return text("through it all")

    double = Double(handlers={"noisy": noisy}, lists={"tools": [tool("noisy")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        assert words(await door.call("noisy")) == "through it all"


async def test_one_that_says_nothing_but_nonsense_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_channel, "GARBAGE_LINES", 100)

    async def babble(stream: trio.SocketStream) -> None:
        while True:
            await stream.send_all(b"la la la\n" * 50)

    async with someone(babble) as tcp, gate(tcp=tcp) as door:
        assert trouble_of(door).startswith("says what is no message")


async def test_a_message_without_end_is_not_taken() -> None:
    async def flood(stream: trio.SocketStream) -> None:
        while True:
            await stream.send_all(b"x" * 10_000)

    async with someone(flood) as tcp, gate(tcp=tcp, message_kib=64) as door:
        assert trouble_of(door).startswith("said more than")


@pytest.mark.parametrize("last", [False, True])
async def test_an_answer_that_is_too_large_fails_its_own_call_and_no_other(last: bool) -> None:
    said, go_on = trio.Event(), trio.Event()

    async def large(turn: Turn) -> Any:
        answer = {"result": text(']}"id":1,' + "x" * 300_000)}
        whole = {"jsonrpc": "2.0"} | ({**answer, "id": turn.id} if last else {"id": turn.id, **answer})
        await turn.say(whole)
        said.set()

    async def slow(turn: Turn) -> Any:
        await go_on.wait()
        return text("in time")

    double = Double(
        handlers={"large": large, "slow": slow, "say": Double().handlers["say"]},
        lists={"tools": [tool("large"), tool("slow"), tool("say")]},
    )
    async with over_tcp(double) as tcp, gate(tcp=tcp, message_kib=64) as door, trio.open_nursery() as nursery:
        slowly: list[str] = []

        async def wait() -> None:
            slowly.append(words(await door.call("slow")))

        nursery.start_soon(wait)
        await soon(lambda: double.of("tools/call"))
        with pytest.raises(ToolCrashed, match="answered with more than 64 KiB"):
            await door.call("large")
        assert await door.say("hello") == "hello"
        go_on.set()
        await soon(lambda: slowly)
        assert slowly == ["in time"]
        assert double.connections == 2  # that of the lists, and the caller's
        assert len(door.log.of("upstream.failed")) == 1


async def test_what_is_too_large_and_no_answer_is_passed_over() -> None:
    async def talk(turn: Turn) -> Any:
        much = "x" * 300_000
        await turn.tell("notifications/message", level="info", data=much)
        await turn.say({"jsonrpc": "2.0", "id": turn.id, "method": "ping", "params": {"much": much}})
        return text("done")

    double = Double(handlers={"talk": talk}, lists={"tools": [tool("talk")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp, message_kib=64) as door:
        assert words(await door.call("talk")) == "done"


async def test_answers_to_what_was_never_asked_are_nobodys() -> None:
    async def lie(turn: Turn) -> Any:
        for number in (turn.id + 1, str(turn.id), -1):
            await turn.say({"jsonrpc": "2.0", "id": number, "result": text("wrong")})
        return text("right")

    double = Double(handlers={"lie": lie}, lists={"tools": [tool("lie")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        assert words(await door.call("lie")) == "right"


async def test_a_flood_of_progress_keeps_the_newest_and_little_of_it() -> None:
    async def flood(turn: Turn) -> Any:
        for number in range(5000):
            await turn.progress(number)
        return text("done")

    class Slow(Caller):
        async def emit(self, event: Any) -> None:
            await trio.sleep(0.001)
            self.events.append(event)

    double = Double(handlers={"flood": flood}, lists={"tools": [tool("flood")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        caller = Slow()
        assert words(await door.call("flood", caller, wants_progress=True)) == "done"
        assert len(caller.events) < 5000
        last = caller.events[-1]
        assert isinstance(last, Progress)
        assert last.progress == 4999


async def test_progress_that_comes_at_once_is_whole() -> None:
    async def tell(turn: Turn) -> Any:
        for number in range(200):
            await turn.progress(number)
        return text("done")

    double = Double(handlers={"tell": tell}, lists={"tools": [tool("tell")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        caller = Caller()
        assert words(await door.call("tell", caller, wants_progress=True)) == "done"
        assert [event.progress for event in caller.events if isinstance(event, Progress)] == [*range(200)]


async def test_progress_with_somebody_elses_token_is_not_theirs() -> None:
    async def lie(turn: Turn) -> Any:
        await turn.tell("notifications/progress", progressToken=turn.id + 1, progress=1)
        await turn.tell("notifications/progress", progressToken="x", progress=1)
        return text("done")

    double = Double(handlers={"lie": lie}, lists={"tools": [tool("lie")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        caller = Caller()
        await door.call("lie", caller, wants_progress=True)
        assert caller.events == []


async def test_a_flood_of_changes_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_keeper, "RELIST_SECONDS", 3600.0)
    double = Double(capabilities={"tools": {"listChanged": True}})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        for _ in range(2000):
            await double.listeners[0]({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        assert await door.say("hello") == "hello"
        assert len(double.of("tools/list")) <= 3


@pytest.mark.parametrize(("tells", "found"), [(False, True), (True, False)])
async def test_a_call_of_an_unknown_tool_has_lists_read_again_that_nobody_says_have_changed(
    tells: bool, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_keeper, "RELIST_MISSED_SECONDS", 0.0)
    monkeypatch.setattr(upstream_keeper, "RELIST_SECONDS", 0.0)
    double = Double(capabilities={"tools": {"listChanged": tells}})
    async with over_tcp(double) as tcp, gate(tcp=tcp, id="up") as door:
        catalog = Catalog([Source(name="up", backend=door.backend)])
        double.lists["tools"].append(tool("newer"))
        catalog.missed("other__newer")
        catalog.missed("up__say")  # which there is
        assert words(await door.call("up__say", arguments={"word": "hello"})) == "hello"
        assert len(double.of("tools/list")) == 1
        catalog.missed("up__newer")
        if found:
            await soon(lambda: len(door.backend.tools()) == 2)
        assert words(await door.call("up__say", arguments={"word": "hello"})) == "hello"
        assert len(double.of("tools/list")) == 1 + found


async def test_unknown_tools_have_lists_read_again_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_keeper, "RELIST_SECONDS", 0.0)
    double = Double()
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        for number in range(100):
            door.backend.missed(f"t{number}")
        assert await door.say("hello") == "hello"
        assert len(double.of("tools/list")) == 1


async def test_a_list_without_end_is_given_up() -> None:
    async def endless(turn: Turn) -> Any:
        return {"tools": [tool("say")], "nextCursor": "again"}

    double = Double(handlers={"tools/list": endless})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        assert trouble_of(door) == "never comes to the end of tools/list"


async def test_of_more_tools_than_the_settings_allow_the_first_are_offered() -> None:
    double = Double(lists={"tools": [tool(f"t{number}") for number in range(11)]})
    async with over_tcp(double) as tcp, gate(tcp=tcp, max_entries=10) as door:
        assert [each.name for each in door.backend.tools()] == [f"t{number}" for number in range(10)]
        (left_out,) = door.backend.left_out()
        assert "all but the first 10 of tools/list" in left_out and "max_entries" in left_out


async def test_what_cannot_be_offered_is_left_out_and_the_rest_is_offered() -> None:
    bad = [
        tool("say"),
        tool("say"),
        {"name": "no schema"},
        {"name": "loose", "inputSchema": {}},
        {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "banana"}}}},
        {"name": "far", "inputSchema": {"type": "object", "$ref": "https://example.com/schema"}},
        {"name": "a/b", "inputSchema": {"type": "object"}},
        tool("wordy", description="x" * 100_000),
        tool("priced", _meta={"io.ostiary/price": "$5", "io.ostiary/tier": "read", "mine": 1}),
        17,
    ]
    async with over_tcp(Double(lists={"tools": bad})) as tcp, gate(tcp=tcp) as door:
        offered = {each.name: each for each in door.backend.tools()}
        assert list(offered) == ["say", "loose", "a_b", "wordy", "priced"]
        assert len(str(offered["wordy"].description)) == offer_lists.DESCRIPTION_CHARACTERS
        assert offered["priced"].meta == {"mine": 1}
        (told,) = door.log.of("upstream.left_out")
        assert told["count"] == 5 == len(door.backend.left_out())
        assert any(each.startswith("tool broken: inputSchema is") for each in door.backend.left_out())


@pytest.mark.parametrize(
    "result",
    [
        {"content": "words"},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "hologram", "data": "x"}]},
        {"content": [], "isError": "perhaps"},
    ],
)
async def test_a_result_that_is_none_is_said_so(result: dict[str, Any]) -> None:
    async def lie(turn: Turn) -> Any:
        return result

    double = Double(handlers={"lie": lie}, lists={"tools": [tool("lie")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        with pytest.raises(BackendError, match="the upstream gave a result that is none"):
            await door.call("lie")


async def test_a_resource_that_is_said_to_change_all_the_time_costs_a_word_each() -> None:
    double = Double(capabilities={"tools": {}, "resources": {"subscribe": True}})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        for uri in ("note://1", "x" * 5000, 7):
            message = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}
            await double.listeners[0](message)
        assert await door.say("hello") == "hello"
        assert door.updated == ["note://1"]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "did not answer in HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
            "status 200 and no result",
        ),
        (
            b"HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
            "redirects",
        ),
        (b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "is busy"),
    ],
)
async def test_whatever_answers_over_http_and_is_no_mcp_is_said_so(raw: bytes, reason: str) -> None:
    async def other(stream: trio.SocketStream) -> None:
        await stream.receive_some(65536)
        await stream.send_all(raw)

    async with someone(other) as tcp, gate(url=f"http://{tcp}/mcp") as door:
        assert reason in trouble_of(door)


@pytest.mark.parametrize("sse", [True, False])
async def test_an_answer_over_http_that_is_too_large_is_not_taken(sse: bool) -> None:
    double = Double(era="stateless")
    async with over_http(double, sse=sse) as url, gate(url=url, message_kib=64) as door:

        async def flood(turn: Turn) -> Any:
            return text("x" * 200_000)

        double.handlers["say"] = flood
        with pytest.raises(ToolCrashed, match="answered with more than 64 KiB"):
            await door.say("hello")


async def test_what_may_have_been_made_is_told_from_what_was_not() -> None:
    async def fall(turn: Turn) -> Any:
        turn.double.hang_up[-1]()

    double = Double(handlers={"fall": fall}, lists={"tools": [tool("fall")]})
    async with over_tcp(double) as tcp, gate(tcp=tcp) as door:
        with pytest.raises(AnswerLost, match="the upstream has ended"):
            await door.call("fall")


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, b'{"error": "boom"}', AnswerLost),
        (500, b'{"error": {"message": "boom"}}', AnswerLost),
        (503, b"", AnswerLost),
        (429, b"", Unreached),
        (400, b'{"error": 7}', BackendError),
    ],
)
async def test_an_error_that_is_none_of_the_protocol_keeps_its_status(
    status: int, body: bytes, kind: type[Exception]
) -> None:
    double = Double(era="stateless", statuses=[(status, body)])
    async with over_http(double) as url, gate(url=url) as door:
        with pytest.raises(BackendError, match=f"status {status}") as raised:
            await door.say("hello")
        assert type(raised.value) is kind
        assert f"status {status}" in door.log.of("upstream.failed")[0]["reason"]


async def test_two_that_are_down_are_two_troubles() -> None:
    async with gate(tcp="127.0.0.1:9") as one, gate(url="http://127.0.0.1:9/mcp") as other:
        assert trouble_of(one).endswith("nobody answers there")
        assert trouble_of(other) == "cannot be reached: connection refused"
