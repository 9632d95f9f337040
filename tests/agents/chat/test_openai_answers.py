from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from server.lib.secret import Secret
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Progress
from tests.agents.chat.openai_pair import against, ask, completion, contents, delta, texts
from tests.agents.python.fake_agent import Ear, Exchange, says


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (
            completion(
                [{"type": "text", "text": "a "}, {"type": "image_url"}, {"type": "text", "text": "b"}]
            ),
            "a b",
        ),
        (completion([{"type": "reasoning", "text": "hm"}, {"text": "b"}]), "b"),
        (completion(None, refusal="I would rather not."), "I would rather not."),
        ({"choices": [{"message": {"content": "bare"}}], "error": None}, "bare"),
        (rb'{"choices": [{"message": {"content": "cut \ud83d"}}]}', "cut \ufffd"),
    ],
)
async def test_replies_are_texts_or_lists_of_parts(answer: Any, reply: str) -> None:
    async with against(says(answer)) as (_, under_test):
        assert texts(await ask(under_test)) == [reply]


async def test_an_answer_cut_off_at_the_length_limit_says_so() -> None:
    async with against(says(completion("half a", reason="length"))) as (_, under_test):
        result = await ask(under_test)
        assert texts(result)[0] == "half a" and "length limit" in texts(result)[1]
        assert result.structured["reply"] == "half a"
        assert result.structured["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (completion(None), "empty response"),
        (completion(" "), "empty response"),
        (b"", "empty response"),
        (b"<html>", "not JSON"),
        (b"[]", "not an object"),
        ({"choices": []}, "without any choices"),
        ({"choices": "x"}, "without any choices"),
        ({"error": {"message": "over quota"}}, "agent endpoint reported: over quota"),
    ],
)
async def test_answers_without_a_reply_are_refused_by_name(body: Any, said: str) -> None:
    async with against(says(body)) as (_, under_test):
        with pytest.raises(BackendError) as raised:
            await ask(under_test)
        assert said in str(raised.value)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"error": {"message": "Rate limit\nreached", "type": "x"}}, "Rate limit reached"),
        ({"error": "model not found"}, "model not found"),
        ({"message": "bad"}, "bad"),
        ({"detail": "worse"}, "worse"),
        ({"detail": [1]}, '{"detail": [1]}'),
        ({"error": {"message": "m" * 300}}, "m" * 200),
        (b"<h1>Bad gateway</h1>", "<h1>Bad gateway</h1>"),
        ({"error": {"message": "Incorrect API key provided: sk-12345."}}, "Incorrect API key provided: ***."),
    ],
)
async def test_the_message_of_an_error_is_shown_and_never_the_key(body: Any, shown: str) -> None:
    async with against(says(body, status=429), api_key=Secret("sk-12345")) as (_, under_test):
        with pytest.raises(BackendError) as raised:
            await ask(under_test)
        assert str(raised.value) == f"agent endpoint 429: {shown}"


# ── streams ──


async def test_a_stream_becomes_one_result_with_growing_progress_that_does_not_give_it_away() -> None:
    async def streaming(exchange: Exchange) -> None:
        assert exchange.request.json["stream"] is True
        await exchange.begin_stream()
        await exchange.chunk(b": hello\r\n\r\n")
        for word in ("Hel", "lo ", "there"):
            await exchange.event(delta(word))
        await exchange.event(delta(reason="stop"))
        await exchange.event({"choices": [], "usage": {"total_tokens": 3}})
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_stream()

    async with against(streaming, stream=True) as (_, under_test):
        ear = Ear()
        result = await ask(under_test, ear=ear)
        assert texts(result) == ["Hello there"]
        assert result.structured["finish_reason"] == "stop"
        assert ear.events
        progress = [event.progress for event in ear.events if isinstance(event, Progress)]
        assert len(progress) == len(ear.events)
        assert progress == sorted(set(progress))
        assert "Hel" not in str(ear.events)


async def test_events_may_be_cut_anywhere() -> None:
    async def in_pieces(exchange: Exchange) -> None:
        await exchange.begin_stream()
        raw = b"".join(
            b"data: " + msgspec.json.encode(delta(word)) + b"\r\n\r\n" for word in ("grü", "ß", " dich")
        )
        for byte in raw + b"data:[DONE]":
            await exchange.chunk(bytes([byte]))
        await exchange.end_stream()

    async with against(in_pieces, stream=True) as (_, under_test):
        assert texts(await ask(under_test)) == ["grüß dich"]


async def test_a_server_that_does_not_stream_is_understood_all_the_same() -> None:
    async with against(says(completion("whole")), stream=True) as (_, under_test):
        assert texts(await ask(under_test)) == ["whole"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_whole_answer_over_4_mib_is_refused_whether_a_stream_was_asked_for_or_not(
    stream: bool,
) -> None:
    async with against(says(completion("x" * 5_000_000)), stream=stream) as (_, under_test):
        with pytest.raises(BackendError, match=r"^agent endpoint answered with more than 4096 KiB$"):
            await ask(under_test)


async def test_a_streamed_turn_is_remembered() -> None:
    async def streaming(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event(delta("ok"))
        await exchange.chunk(b"data: [DONE]\n\n")
        await exchange.end_stream()

    async with against(streaming, stream=True) as (agent, under_test):
        await ask(under_test, "one", session_id="s")
        await ask(under_test, "two", session_id="s")
        assert contents(agent.requests[1]) == ["one", "ok", "two"]


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        (
            [b'data: {"choices": [{"delta": {"content": "half"}}]}\n\n'],
            "agent endpoint broke off in the middle of its answer",
        ),
        ([b'data: {"error": {"message": "overloaded"}}\n\n'], "agent endpoint reported: overloaded"),
        ([b"data: {oops\n\n"], "not JSON"),
        ([b"data: [DONE]\n\n"], "empty response"),
        ([b"data: " + b"x" * 600_000, b"x" * 600_000], "that is too long"),
    ],
)
async def test_streams_that_go_wrong_are_refused_by_name(chunks: list[bytes], said: str) -> None:
    async def streaming(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for chunk in chunks:
            await exchange.chunk(chunk)
        await exchange.end_stream()

    async with against(streaming, stream=True) as (_, under_test):
        with pytest.raises(BackendError) as raised:
            await ask(under_test)
        assert said in str(raised.value)


async def test_cancelling_in_the_middle_of_a_stream_closes_it() -> None:
    began, gone = trio.Event(), trio.Event()

    async def streaming(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event(delta("word"))
        began.set()
        await exchange.wait_gone()
        gone.set()

    async with against(streaming, stream=True) as (_, under_test):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, under_test)
            await began.wait()
            nursery.cancel_scope.cancel()
        await gone.wait()
