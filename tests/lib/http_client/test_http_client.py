from __future__ import annotations

import math
import ssl
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from server.lib.http_client.failures import (
    NoTrust,
    Silent,
    TooLarge,
    UnusableAddress,
    UnusableHeader,
)
from server.lib.http_client.http_client import ORIGINS, HttpClient, exchange_once, written
from tests.lib.http_client.raw_upstream import PATIENCE, RawUpstream, Visitor, answer, raw_upstream
from tests.made_certificates import write_certificate


async def says_its_target(visitor: Visitor) -> None:
    """Answer each request with its first line."""
    while line := await first_line(visitor):
        await visitor.send(answer(line))


async def first_line(visitor: Visitor) -> bytes:
    """Return the first line of the next request without a body; nothing where none comes."""
    while b"\r\n\r\n" not in visitor.received:
        more = bytes(await visitor.stream.receive_some(65536))
        if not more:
            return b""
        visitor.received += more
    line = bytes(visitor.received).partition(b"\r\n")[0]
    visitor.received.clear()
    return line


async def asked(client: HttpClient, url: str, *, silence: float = math.inf) -> bytes:
    async with client.open("GET", url, silence_seconds=silence) as found:
        return await found.read(1024)


def elsewhere(upstream: RawUpstream, path: str) -> str:
    return upstream.url.partition("/chat")[0] + path


async def test_addresses_of_one_origin_share_a_connection() -> None:
    client = HttpClient()
    async with raw_upstream(says_its_target) as upstream:
        assert await asked(client, elsewhere(upstream, "")) == b"GET / HTTP/1.1"
        assert await asked(client, elsewhere(upstream, "/a/b?c=d&e")) == b"GET /a/b?c=d&e HTTP/1.1"
        assert upstream.connections == 1
        await client.aclose()
        await upstream.wait_until_nobody_is_left()


async def test_an_exchange_by_itself_keeps_no_connection_and_reads_no_more_than_its_limit() -> None:
    async with raw_upstream(says_its_target) as upstream:
        found = await exchange_once("GET", elsewhere(upstream, "/a"), limit=15, seconds=PATIENCE)
        assert (found.status, found.body, found.json_object()) == (200, b"GET /a HTTP/1.1", None)
        assert "GET" not in repr(found)
        await upstream.wait_until_nobody_is_left()
        with pytest.raises(TooLarge):
            await exchange_once("GET", elsewhere(upstream, "/a"), limit=14, seconds=PATIENCE)
        await upstream.wait_until_nobody_is_left()


async def test_an_exchange_ends_at_its_deadline_and_takes_its_connection_with_it() -> None:
    async def hang(visitor: Visitor) -> None:
        await visitor.wait_gone()

    async with raw_upstream(hang) as upstream:
        with pytest.raises(Silent):
            await exchange_once("GET", upstream.url, limit=1, seconds=0)
        await upstream.wait_until_nobody_is_left()


async def test_an_authority_that_cannot_be_read_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(NoTrust, match="nowhere"):
        await exchange_once(
            "GET", "https://localhost:1/", limit=1, seconds=PATIENCE, ca_file=tmp_path / "nowhere.pem"
        )


async def test_the_connections_of_the_origin_used_first_give_way_to_those_of_many_others() -> None:
    client = HttpClient()
    async with AsyncExitStack() as stack:
        upstreams = [
            await stack.enter_async_context(raw_upstream(says_its_target)) for _ in range(ORIGINS + 1)
        ]
        for upstream in upstreams[:-1]:
            await asked(client, upstream.url)
        assert all(upstream.open_now == 1 for upstream in upstreams[:-1])
        await asked(client, upstreams[-1].url)
        await upstreams[0].wait_until_nobody_is_left()
        await client.aclose()
        for upstream in upstreams:
            await upstream.wait_until_nobody_is_left()


@pytest.mark.parametrize(
    "url", ["", "ftp://a.example/", "http://", "http://a b/", "http://u:p@a.example/", "http://[::1/", "http://a.example/" + "x" * 16384]
)  # fmt: skip
async def test_what_is_no_address_is_not_asked(url: str) -> None:
    with pytest.raises(UnusableAddress):
        await asked(HttpClient(), url)


async def test_a_line_that_would_be_more_than_a_header_is_not_sent() -> None:
    async with raw_upstream(says_its_target) as upstream:
        with pytest.raises(UnusableHeader):
            async with HttpClient().open("GET", upstream.url, headers={"A": "b\r\nC: d"}):
                pass
        assert upstream.connections == 0


async def test_a_server_that_does_not_begin_its_answer_in_time_is_left() -> None:
    async with raw_upstream(Visitor.wait_gone) as upstream:
        with pytest.raises(Silent):
            await asked(HttpClient(), upstream.url, silence=0)
        await upstream.wait_until_nobody_is_left()


async def test_silence_in_the_middle_of_an_answer_ends_it_and_closes_the_connection() -> None:
    async def halting(visitor: Visitor) -> None:
        await first_line(visitor)
        await visitor.send(b"HTTP/1.1 200 So\r\nContent-Length: 10\r\n\r\nhalf")
        await visitor.wait_gone()

    async with raw_upstream(halting) as upstream:
        async with HttpClient().open("GET", upstream.url, silence_seconds=PATIENCE) as found:
            assert await found.part() == b"half"
            found.connection.silence_seconds = 0
            with pytest.raises(Silent):
                await found.part()
        await upstream.wait_until_nobody_is_left()


async def test_the_patience_of_one_exchange_is_not_that_of_the_next_on_its_connection() -> None:
    client = HttpClient()
    async with raw_upstream(says_its_target) as upstream:
        async with client.open("GET", upstream.url, silence_seconds=PATIENCE) as found:
            await found.read()
        async with client.open("GET", upstream.url) as again:
            assert again.connection is found.connection
            assert again.connection.silence_seconds == math.inf
        await client.aclose()


async def test_an_answer_that_is_left_before_its_end_takes_its_connection_with_it() -> None:
    client = HttpClient()

    async def endless(visitor: Visitor) -> None:
        await first_line(visitor)
        await visitor.send(b"HTTP/1.1 200 So\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await visitor.wait_gone()

    async with raw_upstream(endless) as upstream:
        async with client.open("GET", upstream.url) as found:
            assert await found.part() == b"hi"
        await upstream.wait_until_nobody_is_left()
        async with client.open("GET", upstream.url) as found:
            assert await found.part() == b"hi"
        assert upstream.connections == 2


async def test_a_server_that_hangs_at_any_byte_can_be_left_and_its_connection_is_not_used_again() -> None:
    whole = b"HTTP/1.1 200 So\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhi\n\r\n0\r\n\r\n"
    client = HttpClient()
    hangs, said = trio.Event(), whole

    async def hanging(visitor: Visitor) -> None:
        await first_line(visitor)
        await visitor.send(said)
        hangs.set()
        await visitor.wait_gone()

    async with raw_upstream(hanging) as upstream:
        for size in range(len(whole)):
            hangs, said = trio.Event(), whole[:size]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asked, client, upstream.url)
                await hangs.wait()
                nursery.cancel_scope.cancel()
            await upstream.wait_until_nobody_is_left()
        assert upstream.connections == len(whole)


@pytest.mark.parametrize(
    ("url", "origin", "target"),
    [
        ("https://bücher.example/mcp", "https://xn--bcher-kva.example", "/mcp"),
        ("https://a.example/é?q=ü#part", "https://a.example", "/%C3%A9?q=%C3%BC"),
        ("https://a.example/%C3%A9?q=a%20b&r=[1]", "https://a.example", "/%C3%A9?q=a%20b&r=[1]"),
        ("https://a.example?q=a b", "https://a.example", "/?q=a%20b"),
        ("http://[::1]:8420/mcp", "http://[::1]:8420", "/mcp"),
        ("https://a.example/" + "x" * 8000, "https://a.example", "/" + "x" * 8000),
    ],
)
def test_an_address_is_written_as_a_request_has_it(url: str, origin: str, target: str) -> None:
    assert written(url) == (origin, target)


async def test_a_file_of_authorities_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    with pytest.raises(NoTrust, match=r"^SSL_CERT_FILE: the CA file /nowhere/ca\.pem"):
        await asked(HttpClient(), "https://a.invalid/")


async def test_those_who_come_at_once_share_what_is_kept_of_an_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS, where the authorities are waited for first."""
    chain, key = write_certificate(tmp_path, "upstream", host="localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(chain, key)
    client = HttpClient()
    async with raw_upstream(says_its_target, tls=tls) as upstream:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(asked, client, elsewhere(upstream, f"/{number}"))
        assert len(client._fetchers) == 1  # pyright: ignore[reportPrivateUsage]
        await client.aclose()
        await upstream.wait_until_nobody_is_left()


async def test_a_get_has_no_length_and_a_post_of_nothing_has() -> None:
    heads: list[bytes] = []

    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        heads.append(bytes(visitor.received).lower())
        await visitor.send(answer(b"", b"Connection: close"))

    async with raw_upstream(play) as upstream:
        for method in ("GET", "POST"):
            async with HttpClient().open(method, upstream.url) as found:
                await found.read()
    assert [b"content-length: 0" in head for head in heads] == [False, True]
