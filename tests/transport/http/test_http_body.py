"""server/transport/http/request_body.py: chunked bodies, however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.transport.http.connection_refusals import RequestRefused
from server.transport.http.request_body import EXTENSION_BYTES, ChunkedBody


def read(*pieces: bytes, trailer_bytes: int = 8192) -> tuple[bytes, bytes, bool]:
    body = ChunkedBody(trailer_bytes)
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
        b"5;" + b"a" * (EXTENSION_BYTES + 20),
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
    with pytest.raises(RequestRefused) as refused:
        read(wire)
    assert refused.value.status == 400


@pytest.mark.parametrize("wire", [b"0\r\n" + b"X: y\r\n" * 30, b"0\r\nX: " + b"y" * 200])
def test_trailers_are_bounded(wire: bytes) -> None:
    with pytest.raises(RequestRefused) as refused:
        read(wire, trailer_bytes=100)
    assert refused.value.status == 431
