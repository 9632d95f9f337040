"""Chunked answers taken apart, however they are cut."""

from __future__ import annotations

import pytest

from server.outgoing.chunked import UNUSED_BYTES, ChunkedContent
from server.outgoing.failures import NotHttp


def read(raw: bytes, *, step: int) -> tuple[bytes, bytes, bool]:
    """(content, rest, whether it ended), fed `step` bytes at a time."""
    chunked, content = ChunkedContent(), b""
    for at in range(0, len(raw), step):
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
def test_the_content_is_the_same_however_it_is_cut(raw: bytes, content: bytes, step: int) -> None:
    assert read(raw, step=step) == (content, b"", True)
    assert read(raw + b"HTTP/1.1 200", step=step) == (content, b"HTTP/1.1 200", True)
    for end in range(len(raw)):
        assert read(raw[:end], step=step)[2] is False


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
def test_whatever_breaks_the_grammar_is_no_http(raw: bytes, step: int) -> None:
    with pytest.raises(NotHttp):
        read(raw, step=step)


@pytest.mark.parametrize(
    "raw",
    [
        b"1;" + b"x" * UNUSED_BYTES,
        b"1" + b" " * (UNUSED_BYTES + 1),
        b"1;xx\r\na\r\n" * (UNUSED_BYTES // 3 + 1),
        b"0\r\n" + b"A: b\r\n" * (UNUSED_BYTES // 6 + 1),
        b"0\r\nA: " + b"b" * UNUSED_BYTES,
    ],
    ids=["one extension", "spaces", "many extensions", "trailers", "one trailer"],
)
@pytest.mark.parametrize("step", [1, 64 * 1024])
def test_what_nobody_looks_at_is_bounded(raw: bytes, step: int) -> None:
    with pytest.raises(NotHttp):
        read(raw + b"\r\n", step=step)


def test_content_is_handed_on_before_its_chunk_has_ended() -> None:
    chunked = ChunkedContent()
    assert chunked.feed(b"ffffffffffffffff\r\nabc") == (b"abc", b"", False)
    assert chunked.feed(b"def") == (b"def", b"", False)
