"""What is sent: every byte of it."""

from __future__ import annotations

import pytest

from server.lib.http_client.fetch import USER_AGENT, Fetcher, header_line, with_body


def test_a_request_is_what_it_was_prepared_to_be_and_its_body() -> None:
    fetcher = Fetcher("http://Agent.Example:8080/api;v=1/chat?a=b&c=%20", connections=1)
    head = fetcher.prepare("POST", [("Accept", "application/json")]) + header_line("X-Request-Id", "7")
    assert with_body(head, b"{}") == (
        b"POST /api;v=1/chat?a=b&c=%20 HTTP/1.1\r\n"
        b"Host: Agent.Example:8080\r\n"
        b"User-Agent: " + USER_AGENT.encode() + b"\r\n"
        b"Accept-Encoding: identity\r\n"
        b"Accept: application/json\r\n"
        b"X-Request-Id: 7\r\n"
        b"Content-Length: 2\r\n"
        b"\r\n"
        b"{}"
    )


@pytest.mark.parametrize(
    ("url", "first", "host"),
    [
        ("http://a.example", b"GET / HTTP/1.1", b"Host: a.example"),
        ("http://[::1]:80?x", b"GET /?x HTTP/1.1", b"Host: [::1]:80"),
    ],
)
def test_an_address_without_a_path_has_the_shortest_one(url: str, first: bytes, host: bytes) -> None:
    assert Fetcher(url, connections=1).prepare("GET", []).split(b"\r\n")[:2] == [first, host]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "a\r\nY: b"),
        ("X", "a\nY: b"),
        ("X", "a\rb"),
        ("X", "a\x00"),
        ("X", ""),
        ("X", " a"),
        ("X", "a\t"),
        ("X", "ä"),
        ("X\r\nY", "a"),
        ("X:", "a"),
        ("X ", "a"),
        ("", "a"),
        ("Ä", "a"),
    ],
)
def test_a_header_that_would_be_more_than_one_line_is_not_sent(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        header_line(name, value)


@pytest.mark.parametrize("method", ["HEAD", "CONNECT", "get", "GET /", ""])
def test_no_request_is_made_whose_answer_would_end_elsewhere(method: str) -> None:
    with pytest.raises(ValueError, match="method"):
        Fetcher("http://a.example", connections=1).prepare(method, [])
