"""server/transport/http/client_hello.py: what a TLS client says first, whole, in pieces, and broken in every place."""

from __future__ import annotations

import ssl

import pytest

from server.transport.http.client_hello import HELLO_BYTES, HelloListener, NotAHello, TlsHello


def hello(*protocols: str, name: str | None = "Agent.Example.org") -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(protocols)
    client = context.wrap_bio(ssl.MemoryBIO(), said := ssl.MemoryBIO(), server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return said.read()


def read_hello(said: bytes) -> TlsHello | None:
    return HelloListener().take(said)


def test_the_name_and_the_protocols_are_read() -> None:
    assert read_hello(hello("acme-tls/1")) == TlsHello(
        server_name="agent.example.org", protocols=(b"acme-tls/1",)
    )
    assert read_hello(hello("h2", "http/1.1")) == TlsHello(
        server_name="agent.example.org", protocols=(b"h2", b"http/1.1")
    )
    assert read_hello(hello(name=None)) == TlsHello()


def test_a_hello_may_come_in_records_of_any_size() -> None:
    whole = hello("acme-tls/1")
    message = whole[5:]
    for size in (1, 3, 4, 5, 100):
        pieces = [message[start : start + size] for start in range(0, len(message), size)]
        said = b"".join(b"\x16\x03\x01" + len(each).to_bytes(2, "big") + each for each in pieces)
        found = read_hello(said)
        assert found is not None
        assert found.protocols == (b"acme-tls/1",)


def test_as_long_as_some_of_it_is_missing_more_is_waited_for() -> None:
    whole = hello("acme-tls/1")
    assert {read_hello(whole[:size]) for size in range(len(whole))} == {None}
    client = HelloListener()
    *others, last = [client.take(whole[place : place + 1]) for place in range(len(whole))]
    assert {*others} == {None} and last == read_hello(whole) and client.heard == whole


def test_whatever_is_broken_in_it_is_no_hello_or_another_one_and_nothing_else() -> None:
    whole = hello("acme-tls/1")
    refused = 0
    for place in range(len(whole)):
        for value in (0x00, 0x01, 0x7F, 0xFF):
            try:
                read_hello(whole[:place] + bytes([value]) + whole[place + 1 :])
            except NotAHello:
                refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x00\x00",
        b"\x80\x2e\x01\x00\x02",
        b"\x15\x03\x03\x00\x02\x01\x00",
    ],
)
def test_what_is_not_tls_is_known_at_once(said: bytes) -> None:
    with pytest.raises(NotAHello):
        read_hello(said)


def test_one_that_never_ends_is_not_kept() -> None:
    record = b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + b"x" * (0x4000 - 4)
    more = b"\x16\x03\x01\x00\x01x"
    with pytest.raises(NotAHello):
        read_hello(record + more * HELLO_BYTES)
    client = HelloListener()
    assert client.take(record) is None
    with pytest.raises(NotAHello):
        [client.take(more) for _ in range(HELLO_BYTES)]
    with pytest.raises(NotAHello):
        read_hello(b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + b"x" * (0x4000 - 4))
