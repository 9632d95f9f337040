"""Heads of answers: what is read, what is forgiven, and what is no HTTP."""

from __future__ import annotations

import pytest

from server.lib.http_client.failures import NotHttp
from server.lib.http_client.response_head import (
    CHUNKED,
    HEAD_BYTES,
    HEAD_END,
    UNTIL_CLOSE,
    read_response_head,
    refuse_unfinished_head,
)

OK = b"HTTP/1.1 200 OK\r\n"


def framing(fields: bytes, *, first: bytes = OK) -> tuple[int, bool]:
    head = read_response_head(first + fields + b"\r\n")
    return head.length, head.keep_alive


@pytest.mark.parametrize(
    ("fields", "length", "kept"),
    [
        (b"Content-Length: 5\r\n", 5, True),
        (b"content-LENGTH:5\t \r\n", 5, True),
        (b"Content-Length: 0\r\n", 0, True),
        (b"Content-Length: 00005\r\n", 5, True),
        (b"Content-Length: 5\r\nContent-Length: 5\r\n", 5, True),
        (b"Content-Length: 5, 5 ,05\r\n", 5, True),
        (b"Content-Length: 99999999999999999999\r\n", 99999999999999999999, True),
        (b"Transfer-Encoding: chunked\r\n", CHUNKED, True),
        (b"Transfer-Encoding: CHUNKED\r\n", CHUNKED, True),
        (b"", UNTIL_CLOSE, False),
        (b"Connection: keep-alive\r\n", UNTIL_CLOSE, False),
        (b"Content-Length: 5\r\nConnection: close\r\n", 5, False),
        (b"Content-Length: 5\r\nConnection: X, Close\r\n", 5, False),
        (b"Content-Length: 5\r\nConnection: a\r\nConnection: CLOSE ,b\r\n", 5, False),
        (b"Content-Length: 5\r\nConnection: closed\r\n", 5, True),
    ],
)
def test_where_an_answer_ends_is_said_by_its_head(fields: bytes, length: int, kept: bool) -> None:
    assert framing(fields) == (length, kept)


@pytest.mark.parametrize("status", [204, 304])
@pytest.mark.parametrize("fields", [b"", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_some_answers_have_no_body_whatever_they_say(status: int, fields: bytes) -> None:
    assert framing(fields, first=b"HTTP/1.1 %d So\r\n" % status) == (0, True)


def test_two_ways_of_saying_the_length_are_one_and_the_connection_is_not_trusted_again() -> None:
    assert framing(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") == (CHUNKED, False)
    assert framing(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n") == (CHUNKED, False)


@pytest.mark.parametrize("fields", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_connection_of_http_1_0_is_not_used_again(fields: bytes) -> None:
    assert framing(fields + b"Connection: keep-alive\r\n", first=b"HTTP/1.0 200 OK\r\n")[1] is False


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 5\nX: 1\n\n",
        b"HTTP/1.1 200 OK\nContent-Length: 5\r\nX: 1\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX:\r\n 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\t \t5\r\nX: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 5\nX:\n \n\t1\n\n",
    ],
)
def test_old_ways_of_ending_and_folding_lines_are_read_but_not_trusted_again(raw: bytes) -> None:
    end = HEAD_END.search(raw)
    assert end is not None
    assert end.end() == len(raw)
    head = read_response_head(raw)
    assert (head.length, head.value(b"x"), head.keep_alive) == (5, "1", False)


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n" + OK + b"\r\n",
        b" " + OK + b"\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.10 200 OK\r\n\r\n",
        b"HTTP/1 200 OK\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"http/1.1 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1\t200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 -20 OK\r\n\r\n",
        b"HTTP/1.1 2\xb200 OK\r\n\r\n",
        b"HTTP/1.1 fine\r\n\r\n",
        b"HTTP/1.1 200 O\x00K\r\n\r\n",
        b"HTTP/1.1 200 O\rK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n more\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 200 OK\n\tmore\nContent-Length: 5\n\n",
        OK + b"A: \x00\r\n\r\n",
        OK + b"A\x00: a\r\n\r\n",
        OK + b"A: a\rContent-Length: 5\r\n\r\n",
        OK + b"A: a\r\r\nB: b\r\n\r\n",
        OK + b"A : a\r\n\r\n",
        OK + b"A\r\n\r\n",
        OK + b": a\r\n\r\n",
        OK + b"A B: a\r\n\r\n",
        OK + b"\xc3\xa4: a\r\n\r\n",
        OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        OK + b"Content-Length: 1, 2\r\n\r\n",
        OK + b"Content-Length: 5,\r\n\r\n",
        OK + b"Content-Length: \r\n\r\n",
        OK + b"Content-Length: -5\r\n\r\n",
        OK + b"Content-Length: +5\r\n\r\n",
        OK + b"Content-Length: 5_0\r\n\r\n",
        OK + b"Content-Length: 0x5\r\n\r\n",
        OK + b"Content-Length: 5.0\r\n\r\n",
        OK + b"Content-Length: 5 5\r\n\r\n",
        OK + b"Content-Length: \xb2\r\n\r\n",
        OK + b"Content-Length: " + b"1" * 21 + b"\r\n\r\n",
        OK + b"Content-Length: 5\r\nContent-Length: x\r\n\r\n",
        OK + b"Transfer-Encoding: gzip\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        OK + b"Transfer-Encoding: identity\r\n\r\n",
        OK + b"Transfer-Encoding: \x0bchunked\r\n\r\n",
        OK + b"Transfer-Encoding:\r\n\r\n",
    ],
)
def test_what_could_be_read_in_two_ways_is_not_read_at_all(raw: bytes) -> None:
    with pytest.raises(NotHttp):
        read_response_head(raw)


@pytest.mark.parametrize(
    ("fields", "encoded"),
    [
        (b"", False),
        (b"Content-Encoding: \r\n", False),
        (b"Content-Encoding: Identity\r\n", False),
        (b"Content-Encoding: gzip\r\n", True),
        (b"Content-Encoding: identity, br\r\n", True),
        (b"Content-Encoding: identity\r\nContent-Encoding: gzip\r\n", True),
    ],
)
def test_what_is_compressed_is_known_by_its_head(fields: bytes, encoded: bool) -> None:
    assert read_response_head(OK + fields + b"\r\n").encoded is encoded


def test_values_of_one_name_are_one_value_and_whatever_is_no_control_character_is_kept() -> None:
    head = read_response_head(b"HTTP/1.1 499 \xfcber\r\nA: \t x y \t\r\nB: 1\r\na:\xfc\r\n\r\n")
    assert (head.status, head.value(b"a"), head.value(b"b"), head.value(b"c")) == (499, "x y, ü", "1", "")


def test_a_status_needs_no_words() -> None:
    assert read_response_head(b"HTTP/1.1 200\r\n\r\n").status == 200
    assert read_response_head(b"HTTP/1.1 200 \r\n\r\n").status == 200


@pytest.mark.parametrize(
    "fields",
    [b"a:\r\n" * 25_000, b"A:" + b" " * 99_000 + b"b\r\n", b"A: b" + b"\t" * 99_000 + b"c \r\n"],
    ids=["many", "space before", "space within"],
)
def test_a_head_is_read_in_one_pass_whatever_is_in_it(fields: bytes) -> None:
    assert len(fields) < HEAD_BYTES
    assert read_response_head(OK + fields + b"\r\n").status == 200
    with pytest.raises(NotHttp):
        read_response_head(OK + fields + b"\x00\r\n")


@pytest.mark.parametrize(
    "raw", [b"", b"H", b"HTTP/1", b"HTTP/1.", b"HTTP/1.1 200 OK\r\nA: b", b"HTTP/1." * 10]
)
def test_a_beginning_is_waited_on(raw: bytes) -> None:
    refuse_unfinished_head(raw)


@pytest.mark.parametrize(
    "raw",
    [b"\r\n", b"S", b"SSH-2.0", b"\x15\x03\x01\x00\x02", b"<html>", b"HTTP/2", OK + b"a" * HEAD_BYTES],
)
def test_a_beginning_that_leads_to_no_head_is_not(raw: bytes) -> None:
    with pytest.raises(NotHttp):
        refuse_unfinished_head(raw)
