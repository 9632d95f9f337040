"""Chat endpoints that answer piece by piece, in whatever form."""

from __future__ import annotations

import msgspec
import pytest

from server.agents.chat.chat_completions import BadCompletion, UpstreamSaid
from server.agents.chat.chat_stream import ChatPieces
from server.mcp.call_failures import BackendError
from server.mcp.call_outlet import Progress
from tests.agents.chat.chat_pair import backend, text
from tests.agents.python.fake_agent import Ear, Exchange, Handler, fake_agent, tool_call

HELLO = [
    [b'data: {"choices": [{"delta": {"content": "hel"}}]}\n\n', b'data: {"choices": [{"delta": {"content": "lo"}}]}\n\ndata: [DONE]\n\n'],
    [b'event: message\nid: 1\ndata: {"delta": "hel"}\n\n: alive\n\n', b'data: {"delta": {"text": "lo"}}\n\n'],
    [b'{"message": {"content": "hel"}, "done": false}\n{"message": {"content"', b': "lo"}, "done": false}\n{"done": true}\n'],
    [b'{"content": "hel"}\r\n', b'{"text": "lo"}\r\n', b'{"text": "hello ", "done": true}'],
    [b'data: {"usage": {}}\n\ndata: {"text": "hello"}'],
]  # fmt: skip


@pytest.mark.parametrize("chunks", HELLO)
def test_the_pieces_are_the_reply_whatever_their_form(chunks: list[bytes]) -> None:
    pieces = ChatPieces()
    for chunk in chunks:
        pieces.feed(chunk)
    assert pieces.completion().text == "hello"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"data: {\n", BadCompletion),
        (b"data: [1]\n", BadCompletion),
        (b"hello\n", BadCompletion),
        (b'data: {"error": {"message": "no"}}\n', UpstreamSaid),
        (b"x" * (1 << 20) + b"x", BadCompletion),
    ],
)
def test_what_is_no_piece_is_refused(line: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        ChatPieces().feed(line)


def test_a_reply_has_its_bound() -> None:
    pieces, piece = ChatPieces(), msgspec.json.encode({"text": "x" * 500_000}) + b"\n"
    for _ in range(8):
        pieces.feed(piece)
    with pytest.raises(BadCompletion, match="more than"):
        pieces.feed(piece)


def streams(*chunks: bytes, media_type: str = "text/event-stream", whole: bool = True) -> Handler:
    async def answer(exchange: Exchange) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
        await exchange.send(head.encode())
        for chunk in chunks:
            await exchange.send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if whole:
            await exchange.send(b"0\r\n\r\n")
        else:
            await exchange.stream.aclose()

    return answer


async def test_a_stream_is_one_reply_and_progress_that_says_how_much() -> None:
    async with fake_agent(streams(*HELLO[0])) as agent:
        under_test, ear = backend(agent.url, stream=True), Ear()
        result = await under_test.call(tool_call(agent_id="kaya", message="hi"), ear)
        await under_test.aclose()
    assert text(result) == "hello"
    assert agent.requests[0].json["stream"] is True
    assert agent.requests[0].headers["accept"] == "text/event-stream, application/json"
    assert all(isinstance(event, Progress) and "hel" not in str(event.message) for event in ear.events)
    assert [event.progress for event in ear.events if isinstance(event, Progress)][:1] in ([3], [5], [])


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (streams(b"data: {}\n\n"), "agent .* empty response$"),
        (streams(b'data: {"error": "no key"}\n\n'), "agent endpoint reported: no key"),
        (streams(b"data: x\n\n"), "agent endpoint .* not JSON$"),
        (streams(HELLO[0][0], whole=False), "agent endpoint "),
    ],
)
async def test_a_stream_that_fails_says_how(handler: Handler, error: str) -> None:
    async with fake_agent(handler) as agent:
        under_test = backend(agent.url, stream=True)
        with pytest.raises(BackendError, match=f"^{error}"):
            await under_test.call(tool_call(agent_id="kaya", message="hi"), Ear())
        await under_test.aclose()


async def test_an_endpoint_that_does_not_stream_is_taken_as_it_is() -> None:
    async with fake_agent(streams(b'{"text": "whole"}', media_type="application/json")) as agent:
        under_test = backend(agent.url, stream=True)
        assert text(await under_test.call(tool_call(agent_id="kaya", message="hi"), Ear())) == "whole"
        await under_test.aclose()
