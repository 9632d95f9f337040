"""Chunked bodies of requests and of answers taken apart, however they are cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.lib.chunked_body import (
    EXTENSION_BYTES,
    OF_ANSWERS,
    OF_REQUESTS,
    ChunkedBody,
    MalformedChunks,
    TooManyTrailers,
)


def read(*pieces: bytes, trailer_bytes: int = 8192) -> tuple[bytes, bytes, bool]:
    body = ChunkedBody(OF_REQUESTS, trailer_bytes)
    content = b""
    for number, piece in enumerate(pieces):
        part, rest, ended = body.feed(piece)
        content += part
        if ended:
            return content, rest + b"".join(pieces[number + 1 :]), True
        assert rest == b""
    return content, b"", False


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.data())
def test_a_body_is_the_same_however_it_is_cut(chunks: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nX: y\r\n\r\nNEXT"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert read(*pieces) == (b"".join(chunks), b"NEXT", True)


def test_the_shortest_body_ends_at_once() -> None:
    assert read(b"0\r\n\r\nrest") == (b"", b"rest", True)


@pytest.mark.parametrize(
    "wire",
    [
        b"5;a\r\nhello\r\n0;b=c\r\n\r\n",
        b'5 ;\ta = "b;\\"\xff" ; c\r\nhello\r\n0\r\n\r\n',
        b"5\r\nhello\r\n0\r\n\r\n",
        b"005\r\nhello\r\n00\r\n\r\n",
        b"5\r\nhello\r\n0\r\nA: b\r\nC: d\r\n\r\n",
    ],
)
def test_one_byte_at_a_time_is_read_too(wire: bytes) -> None:
    assert read(*(wire[at : at + 1] for at in range(len(wire)))) == (b"hello", b"", True)


@pytest.mark.parametrize(
    "wire",
    [
        b"5;\r\nhello\r\n",
        b"5;a=\r\nhello\r\n",
        b"5;a b\r\nhello\r\n",
        b"5;a\nhello",
        b"5;a\rb",
        b'5;a="b\r\nhello\r\n',
        b'5;a="b\n"\r\nhello\r\n',
        b"5;a=b,c\r\nhello\r\n",
        b"5;a\x00\r\nhello\r\n",
        b"5 a\r\nhello\r\n",
        b";a\r\n",
        b"5;" + b"a" * (EXTENSION_BYTES + 10),
        (b"5;" + b"a" * (EXTENSION_BYTES // 2) + b"\r\nhello\r\n") * 3,
        b"5 \r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5\nhello\n0\n\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5\r\nhelloX\r\n",
        b"5\r\nhello\rX",
        b"g\r\n",
        b"-1\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"\r\n",
        b"123456789\r\n",
        b"FFFFFFFFFFFFFFFFF\r\n",
        b"5\rhello",
        b"0\r\n X: y\r\n\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\nX: y\n\r\n",
        b"0\r\nX: \x00\r\n\r\n",
        b"0\r\n\n",
        b"0\r\nno colon\r\n\r\n",
    ],
)
def test_whatever_two_parsers_could_read_differently_is_refused_as_soon_as_it_shows(wire: bytes) -> None:
    with pytest.raises(MalformedChunks) as refused:
        read(wire)
    assert not isinstance(refused.value, TooManyTrailers)


@pytest.mark.parametrize("wire", [b"0\r\n" + b"X: y\r\n" * 30, b"0\r\nX: " + b"y" * 200])
def test_trailers_are_bounded(wire: bytes) -> None:
    with pytest.raises(TooManyTrailers):
        read(wire, trailer_bytes=100)


# ---------------------------------------------------------------- answers


def read_answer(raw: bytes, *, step: int, first: int = 0) -> tuple[bytes, bytes, bool]:
    """Return (content, rest, whether it ended), fed `first` bytes at once and then `step` at a time."""
    chunked = ChunkedBody(OF_ANSWERS, EXTENSION_BYTES)
    content, _, _ = chunked.feed(raw[:first])
    for at in range(first, len(raw), step):
        piece, rest, ended = chunked.feed(raw[at : at + step])
        content += piece
        if ended:
            return content, rest + raw[at + step :], True
    return content, b"", False


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("raw", "content"),
    [
        (b"0\r\n\r\n", b""),
        (b"000\r\n\r\n", b""),
        (b"5\r\nabcde\r\n0\r\n\r\n", b"abcde"),
        (b"A\r\n0123456789\r\na\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n", b"0123456789\r\n\r\n\r\n\r\n\r\n"),
        (b"0000000000000001\r\na\r\n0\r\n\r\n", b"a"),
        (b"1 \t\r\na\r\n0  \r\n\r\n", b"a"),
        (b'1;name=value;other="x"\r\na\r\n0;last\r\n\r\n', b"a"),
        (b"1 ; n = v\r\na\r\n0\r\n\r\n", b"a"),
        (b"1\r\na\r\n0\r\nDigest: x\r\nEmpty:\r\n\r\n", b"a"),
    ],
)
def test_the_content_of_an_answer_is_the_same_however_it_is_cut(
    raw: bytes, content: bytes, step: int
) -> None:
    assert read_answer(raw, step=step) == (content, b"", True)
    assert read_answer(raw + b"HTTP/1.1 200", step=step) == (content, b"HTTP/1.1 200", True)
    for end in range(len(raw)):
        assert read_answer(raw[:end], step=step)[2] is False


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n",
        b"-1\r\n",
        b"+1\r\na\r\n",
        b"0x1\r\na\r\n",
        b" 1\r\na\r\n",
        b"g\r\n",
        b"1_0\r\n",
        b"1\na\r\n",
        b"1\r\na\n",
        b"1\r\nab\r\n",
        b"1\r\na0\r\n\r\n",
        b"1\r\r\na\r\n",
        b"1 2\r\n",
        b"1;\x00\r\na\r\n",
        b"1;a\nb\r\na\r\n",
        b"1;a\rb\r\na\r\n",
        b"ffffffffffffffff0\r\n",
        b"0\r\n\n\r\n",
        b"0\r\nA : b\r\n\r\n",
        b"0\r\nA\r\n\r\n",
        b"0\r\n A: b\r\n\r\n",
        b"0\r\nA: \x00\r\n\r\n",
        b"0\r\nA: a\nB: b\r\n\r\n",
    ],
)
def test_an_answer_that_breaks_the_grammar_is_refused(raw: bytes, step: int) -> None:
    with pytest.raises(MalformedChunks):
        read_answer(raw, step=step)


# Bytes on either side of the bound, which are fed one by one. What comes before them is handed over at once: so many single bytes take
# seconds, and are cut in no other way.
NEAR = 100

# Each with so many bytes that nobody looks at.
UNUSED: Mapping[str, Callable[[int], bytes]] = {
    "one extension": lambda size: b"1;" + b"x" * size,
    "spaces": lambda size: b"1" + b" " * size,
    "many extensions": lambda size: b"1;xx\r\na\r\n" * (size // 3),
    "trailers": lambda size: b"0\r\n" + b"A: b\r\n" * (size // 6),
    "one trailer": lambda size: b"0\r\nA: " + b"b" * size,
}


@pytest.mark.parametrize("shape", UNUSED)
@pytest.mark.parametrize("step", [1, 64 * 1024])
@pytest.mark.parametrize("end", [b"", b"\r\n"], ids=["in its middle", "ended"])
def test_what_nobody_looks_at_is_bounded(shape: str, end: bytes, step: int) -> None:
    raw = UNUSED[shape](EXTENSION_BYTES + 20) + end
    with pytest.raises(MalformedChunks):
        read_answer(raw, step=step, first=len(raw) - 2 * NEAR if step == 1 else 0)


@pytest.mark.parametrize("shape", UNUSED)
@pytest.mark.parametrize("step", [1, 64 * 1024])
def test_what_nobody_looks_at_is_read_past_up_to_its_bound(shape: str, step: int) -> None:
    raw = UNUSED[shape](EXTENSION_BYTES - NEAR)
    assert read_answer(raw, step=step, first=len(raw) - 2 * NEAR if step == 1 else 0)[2] is False


def test_content_is_handed_on_before_its_chunk_has_ended() -> None:
    chunked = ChunkedBody(OF_ANSWERS, EXTENSION_BYTES)
    assert chunked.feed(b"ffffffffffffffff\r\nabc") == (b"abc", b"", False)
    assert chunked.feed(b"def") == (b"def", b"", False)
