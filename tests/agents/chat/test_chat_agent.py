from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from server.agents.chat.chat_agent import reply_in
from server.lib.secret import Secret
from server.mcp.call_failures import BackendError, Busy
from tests.agents.chat.chat_pair import against, ask, backend, text
from tests.agents.python.fake_agent import PATIENCE, Ear, Exchange, Silent, pass_when, says, sends, tool_call
from tests.free_ports import free_port


async def test_the_agent_gets_one_user_message_and_its_reply_comes_back_as_text() -> None:
    async with against(says({"message": {"content": "  hello back \n"}})) as (agent, under_test):
        result = await ask(under_test, agent_id=" kaya ", message="  hi there\n")

        assert result.is_error is False
        assert text(result) == "hello back"
        assert result.structured["reply"] == "hello back"
        (request,) = agent.requests
        assert (request.method, request.target) == ("POST", "/api/chat")
        assert request.json == {
            "agent": "kaya",
            "messages": [{"role": "user", "content": "hi there"}],
            "session_id": request.json["session_id"],
            "stream": False,
        }
        assert request.headers["content-type"] == "application/json"
        assert request.headers["host"] == f"localhost:{agent.port}"
        assert request.headers["x-request-id"] == "call-7"


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ({"message": {"content": "a"}, "content": "b", "text": "c"}, "a"),
        ({"message": {"content": "  "}, "content": "b", "text": "c"}, "b"),
        ({"message": "no object", "content": "b"}, "b"),
        ({"message": {"content": ["no text"]}, "content": 7, "text": " c "}, "c"),
    ],
)
def test_the_reply_is_the_first_of_three_fields_that_says_anything(answer: Any, reply: str) -> None:
    assert reply_in(msgspec.json.encode(answer)).text == reply


def test_half_a_character_in_a_reply_is_one_that_is_missing() -> None:
    assert reply_in(rb'{"text": "cut \ud83d"}').text == "cut \ufffd"


@pytest.mark.parametrize(
    "answer", [{}, {"text": ""}, {"message": {"content": None}, "content": " \n"}, {"reply": "elsewhere"}]
)
async def test_an_answer_that_says_nothing_is_an_empty_response(answer: Any) -> None:
    async with against(says(answer)) as (_, under_test):
        with pytest.raises(BackendError, match=r"empty response$"):
            await ask(under_test)


@pytest.mark.parametrize("status", [200, 204])
async def test_no_body_at_all_is_an_empty_response(status: int) -> None:
    raw = b"HTTP/1.1 %d X\r\n%s\r\n" % (status, b"Content-Length: 0\r\n" if status == 200 else b"")
    async with against(sends(raw)) as (_, under_test):
        with pytest.raises(BackendError, match=r"empty response$"):
            await ask(under_test)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"text": "cut', "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b'["text"]', "not an object"),
        (b"null", "not an object"),
    ],
)
async def test_an_answer_that_is_not_a_json_object_is_said_to_be_none(body: bytes, said: str) -> None:
    async with against(says(body)) as (_, under_test):
        with pytest.raises(BackendError, match=rf"^agent endpoint answered with .*{said}$"):
            await ask(under_test)


async def test_a_refusal_is_passed_on_with_its_status_and_the_first_200_characters_of_its_body() -> None:
    body = b"line one\r\n\x1b[31mred\x00\xe2\x80\xae " + b"x" * 500
    async with against(says(body, status=503)) as (agent, under_test):
        with pytest.raises(BackendError) as raised:
            await ask(under_test)

    status, _, shown = str(raised.value).partition(": ")
    assert status == "agent endpoint 503"
    assert len(shown) == 200
    assert shown.startswith("line one [31mred x")
    assert shown.isprintable()
    assert len(agent.requests) == 1


@pytest.mark.parametrize("status", [301, 307, 404, 500])
async def test_no_status_but_2xx_is_an_answer_and_no_redirect_is_followed(status: int) -> None:
    headers = [("Location", "/elsewhere")]
    async with against(says(b"", status=status, headers=headers)) as (agent, under_test):
        with pytest.raises(BackendError, match=rf"^agent endpoint {status}: \(empty body\)$"):
            await ask(under_test)
        assert [request.target for request in agent.requests] == ["/api/chat"]


async def test_a_huge_error_page_is_not_read_to_its_end() -> None:
    gone = trio.Event()

    async def endless(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 500 X\r\n\r\n")
        try:
            while True:
                await exchange.send(b"no " * 5000)
        finally:
            gone.set()

    async with against(endless) as (_, under_test):
        with pytest.raises(BackendError, match=r"^agent endpoint 500: no no no"):
            await ask(under_test)
        await gone.wait()


@pytest.mark.parametrize("announced", [True, False])
async def test_an_answer_over_4_mib_is_refused(announced: bool) -> None:
    async def huge(exchange: Exchange) -> None:
        length = b"Content-Length: 5000000\r\n" if announced else b""
        await exchange.send(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n")
        for _ in range(50):
            await exchange.send(b" " * 100_000)
        await exchange.stream.aclose()

    async with against(huge) as (_, under_test):
        with pytest.raises(BackendError, match=r"^agent endpoint answered with more than 4096 KiB$"):
            await ask(under_test)


async def test_a_compressed_answer_is_refused_unopened() -> None:
    async with against(says(b"\x1f\x8b", headers=[("Content-Encoding", "gzip")])) as (agent, under_test):
        with pytest.raises(BackendError, match=r"compressed"):
            await ask(under_test)
        assert agent.requests[0].headers["accept-encoding"] == "identity"


async def test_an_agent_that_is_too_slow_is_a_failed_tool_not_a_refusal(
    mock_clock: trio.testing.MockClock,
) -> None:
    silent = Silent()
    async with against(silent, deadline_seconds=1) as (agent, under_test):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_when, mock_clock, 1, silent.came)
            result = await ask(under_test)

        assert result.is_error is True
        assert text(result) == "agent did not answer within 1 s"
        assert result.structured is msgspec.UNSET
        await silent.gone.wait()
        assert len(agent.requests) == 1


async def test_the_deadline_also_ends_an_answer_that_only_drips(mock_clock: trio.testing.MockClock) -> None:
    async def drip(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            await exchange.send(b" ")
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(0.05)

    async with against(drip, deadline_seconds=1) as (_, under_test):
        assert text(await ask(under_test)) == "agent did not answer within 1 s"


async def test_cancelling_a_call_closes_its_connection_at_once() -> None:
    silent = Silent()
    async with against(silent) as (_, under_test):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, under_test)
            await silent.came.wait()
            nursery.cancel_scope.cancel()
        await silent.gone.wait()


async def test_a_call_can_be_cancelled_while_the_answer_arrives() -> None:
    began, gone = trio.Event(), trio.Event()

    async def half(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
        began.set()
        await exchange.wait_gone()
        gone.set()

    async with against(half) as (_, under_test):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, under_test)
            await began.wait()
            nursery.cancel_scope.cancel()
        await gone.wait()


async def test_a_connection_that_is_lost_after_the_request_is_not_tried_again() -> None:
    async def hang_up(exchange: Exchange) -> None:
        await exchange.stream.aclose()

    async with against(hang_up) as (agent, under_test):
        with pytest.raises(BackendError, match=r"^agent endpoint closed the connection"):
            await ask(under_test)
        assert len(agent.requests) == 1


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
            "closed the connection",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "closed the connection"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", ".* in HTTP$"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", ".* in HTTP$"),
    ],
)
async def test_an_answer_that_breaks_off_or_is_no_http_is_said_to_be_so(raw: bytes, said: str) -> None:
    async with against(sends(raw)) as (_, under_test):
        with pytest.raises(BackendError, match=rf"^agent endpoint {said}"):
            await ask(under_test)


async def test_an_endpoint_where_nobody_listens_cannot_be_reached() -> None:
    under_test = backend(f"http://127.0.0.1:{free_port()}/")
    with trio.fail_after(60), pytest.raises(BackendError) as raised:
        await ask(under_test)
    assert str(raised.value).endswith("connection refused")


async def test_a_name_that_cannot_be_looked_up_is_said_to_be_unknown() -> None:
    under_test = backend(f"http://{'a' * 70}.invalid/")  # a label over 63 octets is no name for any resolver
    with (
        trio.fail_after(60),
        pytest.raises(BackendError, match=r"its name is not"),
    ):
        await ask(under_test)


async def test_configured_headers_are_sent_and_their_values_blotted_out_of_what_the_endpoint_repeats() -> (
    None
):
    headers = {"Authorization": Secret("Bearer sk-very-secret"), "X-Api-Key": Secret("key-123456")}

    async def repeat(exchange: Exchange) -> None:
        got = exchange.request.headers
        await exchange.reply(
            f"no: {got['authorization']}, {got['x-api-key']}, sk-very-secret".encode(), status=401
        )

    async with against(repeat, headers=headers) as (agent, under_test):
        with pytest.raises(BackendError) as raised:
            await ask(under_test)
        assert agent.requests[0].headers["authorization"] == "Bearer sk-very-secret"
        assert agent.requests[0].headers["x-api-key"] == "key-123456"
        assert str(raised.value) == "agent endpoint 401: no: ***, ***, ***"
        assert "secret" not in repr(under_test)


async def test_a_cookie_that_one_caller_is_given_is_not_sent_for_the_next() -> None:
    async with against(says({"text": "ok"}, headers=[("Set-Cookie", "who=user-1")])) as (agent, under_test):
        await ask(under_test, subject="user-1")
        await ask(under_test, subject="user-2")
        assert ["cookie" in request.headers for request in agent.requests] == [False, False]


async def test_connections_are_kept_and_shared_by_calls_one_after_the_other() -> None:
    async with against(says({"text": "ok"})) as (agent, under_test):
        for _ in range(3):
            await ask(under_test)
        assert agent.connections <= 2  # one, unless this machine paused for longer than an idle one is kept
        assert len(agent.requests) == 3


async def test_a_closed_back_end_holds_no_connection_and_makes_no_new_one() -> None:
    closed = trio.Event()

    async def answer_then_watch(exchange: Exchange) -> None:
        await exchange.reply({"text": "ok"})
        await exchange.wait_gone()
        closed.set()

    async with against(answer_then_watch) as (agent, under_test):
        await ask(under_test)
        await under_test.aclose()
        await closed.wait()
        with pytest.raises(BackendError, match=r"is stopping$"):
            await ask(under_test)
        assert agent.connections == 1


async def test_parallel_calls_of_one_session_do_not_wait_for_each_other() -> None:
    both = trio.Event()
    count = 0

    async def together(exchange: Exchange) -> None:
        nonlocal count
        count += 1
        if count == 2:
            both.set()
        await both.wait()
        await exchange.reply({"text": "ok"})

    async with against(together) as (_, under_test), trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(lambda: ask(under_test, session_id="same"))


async def test_whoever_has_no_call_at_the_agent_comes_before_who_has_some() -> None:
    order: list[str] = []
    came, go = trio.Event(), trio.Event()

    async def slow(exchange: Exchange) -> None:
        order.append(exchange.request.json["messages"][0]["content"])
        came.set()
        await go.wait()
        await exchange.reply({"text": "done"})

    async with against(slow, max_connections=1) as (_, under_test), trio.open_nursery() as nursery:

        def call(sharer: str, *, unhurried: bool = False) -> None:
            asked = msgspec.structs.replace(
                tool_call(agent_id="kaya", message=sharer), sharer=sharer, unhurried=unhurried
            )
            nursery.start_soon(under_test.call, asked, Ear())

        call("many")
        with trio.fail_after(PATIENCE):
            await came.wait()
        turns = under_test._endpoint.turns
        for waiting, sharer in enumerate(("many", "task", "many", "few"), 1):
            call(sharer, unhurried=sharer == "task")
            while turns.waiting < waiting:
                await trio.lowlevel.checkpoint()
        go.set()
    assert order == ["many", "few", "many", "many", "task"]


async def test_a_call_that_has_waited_for_its_turn_was_not_made(
    autojump_clock: trio.testing.MockClock,
) -> None:
    under_test = backend("http://127.0.0.1:9/chat", max_connections=1)
    assert under_test._endpoint.turns.take_nowait("other")
    with pytest.raises(Busy, match="as many calls"):
        await ask(under_test)
    assert trio.current_time() == pytest.approx(10)
    await under_test.aclose()
