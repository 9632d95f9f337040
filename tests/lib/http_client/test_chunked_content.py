"""Chunked answers taken apart, however they are cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from server.lib.http_client.chunked import UNUSED_BYTES, ChunkedContent
from server.lib.http_client.failures import NotHttp


def read(raw: bytes, *, step: int, first: int = 0) -> tuple[bytes, bytes, bool]:
    """Return (content, rest, whether it ended), fed `first` bytes at once and then `step` at a time."""
    chunked = ChunkedContent()
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
    raw = UNUSED[shape](UNUSED_BYTES + 6) + end
    with pytest.raises(NotHttp):
        read(raw, step=step, first=len(raw) - 2 * NEAR if step == 1 else 0)


@pytest.mark.parametrize("shape", UNUSED)
@pytest.mark.parametrize("step", [1, 64 * 1024])
def test_what_nobody_looks_at_is_read_past_up_to_its_bound(shape: str, step: int) -> None:
    raw = UNUSED[shape](UNUSED_BYTES - NEAR)
    assert read(raw, step=step, first=len(raw) - 2 * NEAR if step == 1 else 0)[2] is False


def test_content_is_handed_on_before_its_chunk_has_ended() -> None:
    chunked = ChunkedContent()
    assert chunked.feed(b"ffffffffffffffff\r\nabc") == (b"abc", b"", False)
    assert chunked.feed(b"def") == (b"def", b"", False)
