"""Trouble on the network, as a person at a terminal is told it: each kind from a socket that makes it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from server.client.client_errors import BadAnswer, ClientError, Unreachable
from server.client.http_exchange import exchange, network_trouble, open_client
from server.lib.http_client.failures import TooManyConnections
from tests.free_ports import free_port
from tests.lib.http_client.raw_upstream import Visitor, answer, raw_upstream
from tests.made_certificates import write_certificate


async def trouble(url: str) -> ClientError:
    async with open_client() as client:
        with pytest.raises(ClientError) as raised:
            await exchange(client, "GET", url)
    return raised.value


async def trouble_with(raw: bytes, *, tls: ssl.SSLContext | None = None) -> ClientError:
    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        await visitor.send(raw)
        visitor.hang_up()
        await visitor.wait_gone()

    async with raw_upstream(play, tls=tls) as upstream:
        return await trouble(upstream.url)


async def test_a_port_on_which_nothing_listens() -> None:
    error = await trouble(f"http://127.0.0.1:{free_port()}/")
    assert isinstance(error, Unreachable)
    assert not error.sent
    assert "nothing answers" in str(error)
    assert "ostiary serve" in str(error.hint)


async def test_a_name_that_nobody_knows() -> None:
    error = await trouble("http://nobody.invalid/")
    assert isinstance(error, Unreachable)
    assert not error.sent
    assert "nobody.invalid is not known" in str(error)


async def test_a_port_at_which_no_tls_is_spoken() -> None:
    async def in_clear(visitor: Visitor) -> None:
        await visitor.send(b"HTTP/1.1 400 Bad\r\n\r\n")
        await visitor.wait_gone()

    async with raw_upstream(in_clear) as upstream:
        error = await trouble(upstream.url.replace("http:", "https:"))
    assert isinstance(error, Unreachable)
    assert not error.sent
    assert "speaks no TLS" in str(error)


async def test_a_certificate_of_an_unknown_authority(tmp_path: Path) -> None:
    chain, key = write_certificate(tmp_path, "upstream", host="localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)
    error = await trouble_with(answer(b""), tls=context)
    assert isinstance(error, Unreachable)
    assert not error.sent
    assert "SSL_CERT_FILE" in str(error.hint)


async def test_a_connection_that_breaks_off() -> None:
    error = await trouble_with(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
    assert isinstance(error, Unreachable)
    assert error.sent
    assert "broke off" in str(error)


async def test_what_is_no_http() -> None:
    error = await trouble_with(b"220 mail.example ESMTP\r\n")
    assert isinstance(error, Unreachable)
    assert error.sent
    assert "did not answer in HTTP" in str(error)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (answer(b"x" * (1024 * 1024 + 1)), "more than 1024 KiB"),
        (answer(b"x", b"Content-Encoding: gzip"), "compressed"),
    ],
    ids=["too large", "compressed"],
)
async def test_an_answer_that_is_not_read(raw: bytes, words: str) -> None:
    error = await trouble_with(raw)
    assert isinstance(error, BadAnswer)
    assert words in str(error)


async def test_an_address_that_is_none() -> None:
    assert isinstance(await trouble("http://a b/"), BadAnswer)


def test_more_calls_at_once_than_are_allowed_are_not_a_server_that_is_away() -> None:
    with pytest.raises(Unreachable) as raised, network_trouble("https://a.example/mcp"):
        raise TooManyConnections("is busy: 100 calls are running")
    assert not raised.value.sent
    assert str(raised.value) == "a.example is busy: 100 calls are running"
