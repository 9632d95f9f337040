"""server/transport/http/identity_http.py: what identity is told of a request, and how its reply goes out."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import running

from auth.values import http_messages
from server.transport.http.identity_http import FORM_BYTES, FORM_FIELDS, _pairs, form_handler

HEAD = b"%s /token?a=1&a=2&c=%%C3%%A4 HTTP/1.1\r\nHost: LOCALHOST:80\r\nContent-Type: %s\r\nX-Twice: 1\r\nX-Twice: 2\r\nContent-Length: %d\r\n\r\n"
FORM = b"application/x-www-form-urlencoded; charset=UTF-8"


class Asked:
    def __init__(self) -> None:
        self.requests: list[http_messages.WireRequest] = []
        self.resolve = form_handler(self.answer)

    async def answer(self, request: http_messages.WireRequest) -> http_messages.WireReply:
        self.requests.append(request)
        return http_messages.WireReply(status=201, headers=(("x-a", "1"),), body=b"made")


async def test_a_form_arrives_as_plain_values_apart_from_the_query() -> None:
    asked = Asked()
    body = b"grant_type=x&scope=&b=%20+&b=2"
    async with running(resolve=asked.resolve) as server, await server.connect() as peer:
        answer = await peer.ask(HEAD % (b"POST", FORM, len(body)) + body)
    assert (answer.status, answer.body) == (201, b"made")
    (request,) = asked.requests
    assert request.form == (("grant_type", "x"), ("scope", ""), ("b", "  "), ("b", "2"))
    assert request.query == (("a", "1"), ("a", "2"), ("c", "ä"))
    assert (request.path, request.origin, request.ip) == ("/token", "http://localhost", "127.0.0.1")
    assert request.headers["x-twice"] == "1, 2"


@pytest.mark.parametrize(
    ("verb", "content_type"), [(b"POST", b"application/json"), (b"PUT", FORM), (b"GET", FORM)]
)
async def test_only_a_posted_form_is_a_form(verb: bytes, content_type: bytes) -> None:
    asked = Asked()
    async with running(resolve=asked.resolve) as server, await server.connect() as peer:
        await peer.ask(HEAD % (verb, content_type, 3) + b"a=1")
    assert asked.requests[0].form == ()


@pytest.mark.parametrize("body", [b"a=" + b"x" * FORM_BYTES, b"&".join([b"a=1"] * (FORM_FIELDS + 1))])
async def test_a_form_larger_than_any_of_ours_is_refused_before_identity_sees_it(body: bytes) -> None:
    asked = Asked()
    async with running(resolve=asked.resolve) as server, await server.connect() as peer:
        answer = await peer.ask(HEAD % (b"POST", FORM, len(body)) + body)
    assert answer.status == 413
    assert answer.headers["access-control-allow-origin"] == "*"
    assert b"invalid_request" in answer.body
    assert not asked.requests


@given(st.text(alphabet="ab=&;.~%+ä1", max_size=24).map(str.encode))
def test_a_form_is_read_as_the_standard_library_reads_it(text: bytes) -> None:
    assert _pairs(text) == tuple(parse_qsl(text.decode(), keep_blank_values=True))
