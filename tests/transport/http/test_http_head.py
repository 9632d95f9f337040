"""server/transport/http/request_head.py: what a request head may look like. The corpus holds what two servers could read differently."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.transport.http.connection_limits import HttpLimits
from server.transport.http.connection_refusals import RequestRefused
from server.transport.http.request_head import CHUNKED, Heads, read_head, refuse_unfinished

LIMITS = HttpLimits()


def head(*lines: bytes, first: bytes = b"POST /mcp HTTP/1.1", host: bool = True) -> bytes:
    return b"\r\n".join((first, *((b"Host: a",) if host else ()), *lines, b"", b""))


REFUSED = {
    "content-length and chunked": head(b"Content-Length: 3", b"Transfer-Encoding: chunked"),
    "chunked and content-length": head(b"Transfer-Encoding: chunked", b"Content-Length: 3"),
    "two different lengths": head(b"Content-Length: 3", b"Content-Length: 4"),
    "two equal lengths": head(b"Content-Length: 3", b"Content-Length: 3"),
    "a list of lengths": head(b"Content-Length: 3, 3"),
    "a signed length": head(b"Content-Length: +3"),
    "a negative length": head(b"Content-Length: -3"),
    "a hexadecimal length": head(b"Content-Length: 0x3"),
    "a length with a space inside": head(b"Content-Length: 1 1"),
    "a length with an underscore": head(b"Content-Length: 1_0"),
    "an empty length": head(b"Content-Length:"),
    "a length in other digits": head("Content-Length: ٣".encode()),
    "a length beyond 64 bits": head(b"Content-Length: 18446744073709551617"),
    "a length of a thousand digits": head(b"Content-Length: " + b"9" * 1000),
    "coding not ending in chunked": head(b"Transfer-Encoding: chunked, gzip"),
    "coding gzip": head(b"Transfer-Encoding: gzip"),
    "coding gzip, chunked": head(b"Transfer-Encoding: gzip, chunked"),
    "chunked twice in one line": head(b"Transfer-Encoding: chunked, chunked"),
    "chunked in two lines": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    "chunked and identity": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
    "coding xchunked": head(b"Transfer-Encoding: xchunked"),
    "coding quoted": head(b'Transfer-Encoding: "chunked"'),
    "coding with a vertical tab": head(b"Transfer-Encoding: \x0bchunked"),
    "coding with a parameter": head(b"Transfer-Encoding: chunked;a=b"),
    "an empty coding": head(b"Transfer-Encoding:"),
    "chunked in HTTP/1.0": head(b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.0"),
    "a space before the colon": head(b"Content-Length : 3"),
    "a tab before the colon": head(b"Transfer-Encoding\t: chunked"),
    "a folded line": head(b"X: a", b" b"),
    "a folded line with a tab": head(b"X: a", b"\tb"),
    "a first header that is folded": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "a line ending in LF": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "a header ending in LF": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "a head ending in LF LF inside": b"GET / HTTP/1.1\r\nHost: a\n\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a bare CR in a value": head(b"X: a\rb"),
    "a bare CR ending a line": b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
    "NUL in a value": head(b"X: a\x00b"),
    "NUL in a name": head(b"X\x00: a"),
    "a control character in a value": head(b"X: a\x01b"),
    "DEL in a value": head(b"X: a\x7fb"),
    "no colon": head(b"X"),
    "an empty name": head(b": a"),
    "a name that is no token": head(b"X(: a"),
    "a name that is not ASCII": head(b"X\xff: a"),
    "two hosts": head(b"Host: b"),
    "two equal hosts": head(b"Host: a"),
    "no host": head(host=False),
    "an empty host": head(b"Host:", host=False),
    "a host that is not ASCII": head(b"Host: \xff", host=False),
    "a host with a path": head(b"Host: a/b", host=False),
    "a host with a user": head(b"Host: u@a", host=False),
    "a host with a space": head(b"Host: a b", host=False),
    "a host list": head(b"Host: a, b", host=False),
    "a host with a port that is no number": head(b"Host: a:b", host=False),
    "two expectations": head(b"Expect: 100-continue", b"Expect: 100-continue"),
    "two spaces in the request line": head(first=b"GET  / HTTP/1.1"),
    "a tab in the request line": head(first=b"GET\t/ HTTP/1.1"),
    "a space in the target": head(first=b"GET /a b HTTP/1.1"),
    "a space before the request line": head(first=b" GET / HTTP/1.1"),
    "a space after the request line": head(first=b"GET / HTTP/1.1 "),
    "no version": head(first=b"GET /"),
    "HTTP/0.9": head(first=b"GET / HTTP/0.9"),
    "HTTP/2": head(first=b"GET / HTTP/2.0"),
    "HTTP/1.2": head(first=b"GET / HTTP/1.2"),
    "another protocol": head(first=b"GET / ICE/1.0"),
    "the h2 preface": b"PRI * HTTP/2.0\r\n\r\n",
    "a method in lower case": head(first=b"get / HTTP/1.1"),
    "an unknown method": head(first=b"FROBNICATE / HTTP/1.1"),
    "absolute form of another host": head(first=b"GET http://b/ HTTP/1.1"),
    "absolute form of another port": head(first=b"GET http://a:81/ HTTP/1.1"),
    "absolute form without a host": head(first=b"GET http:/// HTTP/1.1"),
    "absolute form with a user": head(first=b"GET http://u@a/ HTTP/1.1"),
    "absolute form, no Host": head(first=b"GET http://a/ HTTP/1.1", host=False),
    "absolute form of another scheme": head(first=b"GET ftp://a/ HTTP/1.1"),
    "absolute form with a fragment": head(first=b"GET http://a/#b HTTP/1.1"),
    "absolute form behind a backslash": head(first=b"GET http://a\\b/ HTTP/1.1"),
    "authority form": head(first=b"CONNECT a:80 HTTP/1.1"),
    "CONNECT with a path": head(first=b"CONNECT / HTTP/1.1"),
    "asterisk form of another method": head(first=b"GET * HTTP/1.1"),
    "a target without a slash": head(first=b"GET a HTTP/1.1"),
    "a target with a fragment": head(first=b"GET /#a HTTP/1.1"),
    "a target that is not ASCII": head(first="GET /ä HTTP/1.1".encode()),
    "a target that is not UTF-8": head(first=b"GET /%ff HTTP/1.1"),
    "an encoded NUL": head(first=b"GET /%00 HTTP/1.1"),
    "an encoded line break": head(first=b"GET /a%0d%0aX:%20b HTTP/1.1"),
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=list(REFUSED))
def test_an_ambiguous_head_is_refused_with_400(raw: bytes) -> None:
    with pytest.raises(RequestRefused) as refused:
        read_head(raw, LIMITS)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"http://a/b?c", "/b", b"c"),
        (b"https://A/", "/", b""),
        (b"http://a", "/", b""),
        (b"http://a?c", "/", b"c"),
        (b"http://a//b/http://c", "//b/http://c", b""),
    ],
)
def test_a_target_in_absolute_form_is_its_path(target: bytes, path: str, query: bytes) -> None:
    read = read_head(head(first=b"GET %b HTTP/1.1" % target), LIMITS)
    assert (read.path, read.raw_path.decode(), read.query) == (path, path, query)


def test_an_ordinary_head_is_read_with_names_in_lower_case_and_values_without_spaces_around() -> None:
    read = read_head(
        b"POST /a%20b/%C3%A4?x=%20y HTTP/1.1\r\nHost: LocalHost:8420\r\nX-Thing: \t a  b \t\r\ncontent-length:  3 \r\n\r\n",
        LIMITS,
    )
    assert (read.method, read.version, read.length) == ("POST", "1.1", 3)
    assert (read.path, read.raw_path, read.query) == ("/a b/ä", b"/a%20b/%C3%A4", b"x=%20y")
    assert read.headers == ((b"host", b"LocalHost:8420"), (b"x-thing", b"a  b"), (b"content-length", b"3"))
    assert read.keep_alive


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"Connection: X, Close\r\n", False),
        (b"1.1", b"Connection: x\r\nConnection: close\r\n", False),
        (b"1.1", b"Connection: closed\r\n", True),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
        (b"1.0", b"Connection: keep-alive, close\r\n", False),
    ],
)
def test_whether_the_connection_stays_follows_version_and_connection_header(
    version: bytes, connection: bytes, keeps: bool
) -> None:
    raw = b"GET / HTTP/" + version + b"\r\nHost: a\r\n" + connection + b"\r\n"
    assert read_head(raw, LIMITS).keep_alive is keeps


def test_an_old_client_may_leave_the_host_out() -> None:
    assert read_head(b"GET / HTTP/1.0\r\n\r\n", LIMITS).path == "/"


@pytest.mark.parametrize(
    "host", [b"a", b"A.b-c:1", b"127.0.0.1:65535", b"[::1]", b"[fe80::1]:80", b"a_b.local"]
)
def test_names_and_addresses_are_hosts(host: bytes) -> None:
    assert read_head(head(b"Host: " + host, host=False), LIMITS).headers == ((b"host", host),)


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked", b" chunked "])
def test_chunked_is_recognised_in_any_case(coding: bytes) -> None:
    assert read_head(head(b"Transfer-Encoding:" + coding), LIMITS).length == CHUNKED


@pytest.mark.parametrize(
    "lines",
    [
        (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: !!!"),
        (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: x", b"Content-Length: 5"),
    ],
)
def test_an_offered_upgrade_is_as_if_it_were_not_there(lines: tuple[bytes, ...]) -> None:
    read = read_head(head(*lines), LIMITS)
    assert read.keep_alive
    assert not {b"upgrade", b"http2-settings"} & {name for name, _ in read.headers}
    assert read.length == (5 if b"Content-Length: 5" in lines else 0)


@pytest.mark.requirement("safety.head")
def test_size_caps_have_their_own_statuses() -> None:
    def status(raw: bytes) -> int:
        with pytest.raises(RequestRefused) as refused:
            read_head(raw, LIMITS)
        return refused.value.status

    assert status(head(first=b"GET /" + b"a" * LIMITS.target_bytes + b" HTTP/1.1")) == 414
    assert status(head(b"X: " + b"a" * LIMITS.head_bytes)) == 431
    assert status(head(first=b"GET /" + b"a" * LIMITS.head_bytes + b" HTTP/1.1")) == 414
    assert status(head(*(b"X-%d: a" % number for number in range(LIMITS.header_count)))) == 431
    read_head(head(*(b"X-%d: a" % number for number in range(LIMITS.header_count - 1))), LIMITS)
    read_head(head(first=b"GET /" + b"a" * (LIMITS.target_bytes - 1) + b" HTTP/1.1"), LIMITS)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /" + b"a" * 40_000, 414),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000, 431),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"\n", 400),
    ],
)
def test_a_head_that_no_further_byte_could_mend_is_refused_at_once(raw: bytes, status: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        refuse_unfinished(raw, LIMITS)
    assert refused.value.status == status


@pytest.mark.parametrize("size", range(1, 38))
def test_a_good_head_is_waited_for_wherever_it_is_cut(size: int) -> None:
    refuse_unfinished(b"GET /path HTTP/1.1\r\nHost: localhost\r\n\r\n"[:size], LIMITS)


PIECES = st.sampled_from(
    [
        b"GET",
        b"POST",
        b" ",
        b"/",
        b"*",
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"\r\n",
        b"\n",
        b"\r",
        b"\t",
        b"Host",
        b":",
        b"a",
        b"\x00",
        b"Content-Length",
        b"Transfer-Encoding",
        b"chunked",
        b"3",
        b",",
        b"\xff",
        b"%",
        b"%ff",
        b"Upgrade",
        b"Connection",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES | st.binary(max_size=4), max_size=40).map(b"".join))
def test_whatever_is_sent_a_head_is_read_or_refused_and_nothing_else(noise: bytes) -> None:
    statuses: set[int] = set()
    for raw in (noise + b"\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n" + noise + b"\r\n\r\n"):
        try:
            read = read_head(raw, LIMITS)
        except RequestRefused as refused:
            statuses.add(refused.status)
        else:
            assert read.path.startswith(("/", "*"))
            assert not any(b"\n" in value or b"\r" in value for _, value in read.headers)
    assert statuses <= {400, 414, 431}


def test_a_head_that_comes_again_is_not_read_again_and_the_memory_of_heads_is_bounded() -> None:
    heads = Heads(HttpLimits(), kept=2)
    one, two, three = (b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number for number in (1, 2, 3))
    first = heads.read(one)
    assert heads.read(one) is first
    heads.read(two)
    heads.read(three)
    assert heads.read(one) is not first
    large = b"GET / HTTP/1.1\r\nHost: localhost\r\nx: " + b"a" * 8000 + b"\r\n\r\n"
    assert heads.read(large) is not heads.read(large)


def test_a_bad_head_is_refused_as_often_as_it_comes() -> None:
    heads = Heads(HttpLimits())
    for _ in range(2):
        with pytest.raises(RequestRefused):
            heads.read(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
