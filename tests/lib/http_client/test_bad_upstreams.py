"""Upstreams that answer badly, late, too much, twice or never: what a call makes of them, and what becomes of the connection."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trio

from server.lib.http_client.failures import BrokenOff, DeadlinePassed, FetchFailed, NotHttp, TooLarge
from server.lib.http_client.response_head import HEAD_BYTES
from tests.lib.http_client import raw_upstream as upstreams
from tests.lib.http_client.raw_upstream import LIMIT, Visitor, answer, ask, calling, raw_upstream
from tests.made_certificates import write_certificate

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
IN_CHUNKS = CHUNKED + b"2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nDigest: x\r\n\r\n"
TO_ITS_END = b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nhello"
COUNTED = answer(b"hello", b"Content-Type: text/plain")
AFTER_HINTS = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + COUNTED


@pytest.fixture(params=["straight", "by proxy"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to the upstream."""
    if request.param == "by proxy":
        monkeypatch.setitem(globals(), "calling", upstreams.calling_by_proxy)


either_way = pytest.mark.usefixtures("route")


def tls(directory: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's, with a certificate that callers trust from now on."""
    authority, key = write_certificate(directory, "upstream", host="localhost", others=["upstream.example"])
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority, key)
    return context


async def failure(raw: bytes) -> FetchFailed:
    """What is made of these bytes, after which the upstream hangs up."""

    async def play(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.send(raw)
        visitor.hang_up()
        await visitor.wait_gone()

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        with pytest.raises(FetchFailed) as raised:
            await ask(fetcher)
        await upstream.wait_until_nobody_is_left()
        assert upstream.connections == 1  # nothing is sent again
        return raised.value


# ---------------------------------------------------------------- in pieces


@either_way
@pytest.mark.parametrize("raw", [COUNTED, IN_CHUNKS, AFTER_HINTS, TO_ITS_END])
@pytest.mark.parametrize("secure", [False, True])
async def test_an_answer_that_comes_byte_by_byte_is_the_same_answer(
    raw: bytes, secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(visitor: Visitor) -> None:
        while await visitor.request() is not None:
            await visitor.drip(raw)
            if raw is TO_ITS_END:
                return

    context = tls(tmp_path, monkeypatch) if secure else None
    async with raw_upstream(play, tls=context) as upstream, calling(upstream) as fetcher:
        assert await ask(fetcher) == (200, b"hello")
        assert await ask(fetcher) == (200, b"hello")
        assert upstream.connections <= 2


async def test_only_http_1_1_is_offered_and_an_idle_connection_ends_with_a_goodbye(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocols: list[str | None] = []
    said_goodbye = trio.Event()

    async def play(visitor: Visitor) -> None:
        assert isinstance(visitor.stream, trio.SSLStream)
        strict = visitor.stream = trio.SSLStream(visitor.plain, context, server_side=True)
        await visitor.request()
        protocols.append(strict.selected_alpn_protocol())  # pyright: ignore
        await visitor.send(COUNTED)
        assert not await strict.receive_some(1)  # a bare end would be an error here
        said_goodbye.set()

    context = tls(tmp_path, monkeypatch)
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with raw_upstream(play, tls=context) as upstream:
        async with calling(upstream) as fetcher:
            assert await ask(fetcher) == (200, b"hello")
        await said_goodbye.wait()
        assert protocols == ["http/1.1"]


# ---------------------------------------------------------------- broken off


@either_way
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("raw", [COUNTED, IN_CHUNKS, AFTER_HINTS], ids=["counted", "chunks", "interim"])
async def test_an_answer_that_ends_early_is_none_wherever_it_ends(raw: bytes, reset: bool) -> None:
    ends = range(len(raw))

    async def play(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.send(raw[: ends[visitor.number]])
        if reset:
            visitor.reset()
        else:
            visitor.hang_up()
            await visitor.wait_gone()

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        for end in ends:
            with pytest.raises(BrokenOff, match=r"^closed the connection before it had answered in full$"):
                await ask(fetcher)
            assert upstream.connections == end + 1
        await upstream.wait_until_nobody_is_left()


async def test_a_body_that_ends_with_its_connection_does_not_end_with_a_reset() -> None:
    seen = trio.Event()

    async def play(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.send(TO_ITS_END)
        await seen.wait()
        visitor.reset()

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        deadline = trio.current_time() + 10
        async with fetcher.open(fetcher.prepare("POST", ()), b"", deadline=deadline, limit=LIMIT) as reply:
            chunks = reply.chunks()
            assert await anext(chunks) == b"hello"
            seen.set()
            with pytest.raises(BrokenOff):
                await anext(chunks)


# ---------------------------------------------------------------- no HTTP


@either_way
@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"\r\n" + COUNTED,
        b"<html>\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + COUNTED,
        CHUNKED + b"zz\r\n",
        CHUNKED + b"-1\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"5\r\nhello!\r\n0\r\n\r\n",
        CHUNKED + b"5\r\nhello\r\n0\r\nbroken\r\n\r\n",
        CHUNKED + b"5;" + b"x" * 70_000,
        CHUNKED + b"1;" + b"x" * 1000 + (b"\r\na\r\n1;" + b"x" * 1000) * 70,
        CHUNKED + b"5\r\nhello\r\n0\r\n" + b"A: b\r\n" * 12_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (HEAD_BYTES // 6),
        b"HTTP/1.1 100 Continue\r\n\r\n" * (HEAD_BYTES // 25 + 1),
        (b"HTTP/1.1 103 Early Hints\r\nLink: " + b"a" * 1000 + b"\r\n\r\n") * 100,
    ],
)
async def test_what_is_no_answer_in_http_is_said_to_be_none(raw: bytes) -> None:
    problem = await failure(raw)
    assert isinstance(problem, NotHttp)
    assert str(problem) == "did not answer in HTTP"


@either_way
@pytest.mark.parametrize(
    ("head", "again", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"a" * 10_000, NotHttp),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 1000, NotHttp),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, NotHttp),
        (b"", b"\x00" * 1000, NotHttp),
        (CHUNKED + b"1;", b"x" * 10_000, NotHttp),
        (CHUNKED, b"1;" + b"x" * 1000 + b"\r\na\r\n", NotHttp),
        (CHUNKED + b"0\r\n", b"A: b\r\n" * 1000, NotHttp),
        (CHUNKED, b"1\r\na\r\n" * 1000, TooLarge),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 10_000, TooLarge),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", b"a" * 10_000, TooLarge),
    ],
)
async def test_what_never_ends_is_cut_off(head: bytes, again: bytes, kind: type[FetchFailed]) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.send(head)
        while True:
            await visitor.send(again)

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        with pytest.raises(kind):
            await ask(fetcher)
        await upstream.wait_until_nobody_is_left()


@either_way
async def test_a_body_that_is_announced_as_too_long_is_not_waited_for() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LIMIT + 1))
        await visitor.wait_gone()

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        with pytest.raises(TooLarge, match=r"^answered with more than 64 KiB$"):
            await ask(fetcher)
        await upstream.wait_until_nobody_is_left()


# ---------------------------------------------------------------- in its own time


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        CHUNKED + b"ffff\r\n",
        CHUNKED + b"1;",
        CHUNKED + b"0\r\nA: ",
    ],
)
async def test_who_drips_is_given_up_on_at_the_deadline(first: bytes) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.send(first)
        rest = b"HTTP/1.1 200 OK\r\nX: " if not first else b""
        for at in range(10_000):
            await visitor.send(rest[at : at + 1] or b"x")
            await trio.sleep(0.01)

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        with pytest.raises(DeadlinePassed):
            await ask(fetcher, seconds=0.2, limit=1_000_000)
        await upstream.wait_until_nobody_is_left()


async def test_who_does_not_read_the_request_is_given_up_on_at_the_deadline() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        await trio.sleep_forever()

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        with pytest.raises(DeadlinePassed):
            await ask(fetcher, b"x" * 50_000_000, seconds=0.5)


@pytest.mark.parametrize("secure", [False, True])
async def test_an_answer_to_half_a_request_is_an_answer_and_its_connection_is_closed(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        if visitor.number == 0:
            await visitor.send(answer(b"no", status=413))
        else:
            visitor.received.clear()
            await visitor.send(answer(b"yes"))
        await visitor.stream.receive_some(1)
        await trio.sleep_forever()

    context = tls(tmp_path, monkeypatch) if secure else None
    async with raw_upstream(play, tls=context) as upstream, calling(upstream) as fetcher:
        assert await ask(fetcher, b"x" * 50_000_000) == (413, b"no")
        assert await ask(fetcher) == (200, b"yes")
        assert upstream.connections == 2


async def test_an_interim_answer_does_not_end_a_long_request() -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        await visitor.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while (body := await visitor.request()) is not None:
            await visitor.send(answer(b"%d" % len(body)))

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        assert await ask(fetcher, b"x" * 5_000_000) == (200, b"5000000")
        assert await ask(fetcher, b"x") == (200, b"1")
        assert upstream.connections == 1


@either_way
@pytest.mark.parametrize("secure", [False, True])
async def test_an_answer_that_begins_before_a_long_request_has_ended_gets_the_rest_of_it(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        await visitor.send(CHUNKED)
        body = await visitor.request()
        assert body is not None
        await visitor.send(b"7\r\n%d\r\n0\r\n\r\n" % len(body))
        assert await visitor.request() is not None
        await visitor.send(answer(b"again"))

    context = tls(tmp_path, monkeypatch) if secure else None
    async with raw_upstream(play, tls=context) as upstream, calling(upstream) as fetcher:
        assert await ask(fetcher, b"x" * 5_000_000) == (200, b"5000000")
        assert await ask(fetcher) == (200, b"again")
        assert upstream.connections == 1


# ---------------------------------------------------------------- more than was asked for

TWICE = answer(b"not yours")


@pytest.mark.parametrize(
    "raw",
    [
        answer(b"hello"),
        IN_CHUNKS,
        answer(b"", status=204),
        b"HTTP/1.1 204 So\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
)
@pytest.mark.parametrize("extra", [b"\r\n", b"x", TWICE])
@pytest.mark.parametrize("secure", [False, True])
async def test_after_an_answer_with_something_behind_it_the_connection_is_not_used_again(
    raw: bytes, extra: bytes, secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.request()
        if visitor.number == 0:
            await visitor.send(raw + extra)
        else:
            await visitor.send(answer(b"yours"))
        await visitor.wait_gone()

    context = tls(tmp_path, monkeypatch) if secure else None
    async with raw_upstream(play, tls=context) as upstream, calling(upstream) as fetcher:
        await ask(fetcher)
        assert await ask(fetcher) == (200, b"yours")
        assert upstream.connections == 2


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("extra", [TWICE, b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"])
async def test_what_comes_over_an_idle_connection_is_nobodys_answer(
    extra: bytes, secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more, sent = trio.Event(), trio.Event()

    async def play(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.send(answer(b"yours"))
        if visitor.number == 0:
            await more.wait()
            await visitor.send(extra)
            sent.set()
        await visitor.wait_gone()

    context = tls(tmp_path, monkeypatch) if secure else None
    async with raw_upstream(play, tls=context) as upstream, calling(upstream) as fetcher:
        assert await ask(fetcher) == (200, b"yours")
        more.set()
        await sent.wait()
        assert await ask(fetcher) == (200, b"yours")
        assert upstream.connections == 2


async def test_what_lies_behind_an_answer_in_a_tls_record_of_its_own_is_seen_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both records arrive together: the second was read from the socket, and nobody has looked into it."""

    async def play(visitor: Visitor) -> None:
        await visitor.request()
        if visitor.number == 0:
            tls_stream = visitor.stream
            assert isinstance(tls_stream, trio.SSLStream)
            held = bytearray()
            send_all = visitor.plain.send_all

            async def hold(data: bytes) -> None:
                held.extend(data)

            monkeypatch.setattr(visitor.plain, "send_all", hold)
            await visitor.send(answer(b"yours"))
            await visitor.send(TWICE)
            await send_all(bytes(held))
        else:
            await visitor.send(answer(b"yours"))
        await visitor.wait_gone()

    async with (
        raw_upstream(play, tls=tls(tmp_path, monkeypatch)) as upstream,
        calling(upstream) as fetcher,
    ):
        assert await ask(fetcher) == (200, b"yours")
        assert await ask(fetcher) == (200, b"yours")
        assert upstream.connections == 2


@pytest.mark.parametrize(
    "raw",
    [
        answer(b"hello", b"Connection: close"),
        COUNTED.replace(b"HTTP/1.1", b"HTTP/1.0"),
        COUNTED.replace(b"\r\n", b"\n"),
        answer(b"hello", b"X: a\r\n b"),
    ],
)
async def test_a_connection_whose_next_answer_could_be_misread_is_not_used_again(raw: bytes) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.request()
        await visitor.send(raw)
        await visitor.wait_gone()

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        for _ in range(2):
            assert await ask(fetcher) == (200, b"hello")
        assert upstream.connections == 2
        await upstream.wait_until_nobody_is_left()


async def test_an_answer_that_was_not_read_to_its_end_ends_its_connection() -> None:
    async def play(visitor: Visitor) -> None:
        while await visitor.request() is not None:
            await visitor.send(answer(b"x" * 5000, status=500))

    async with raw_upstream(play) as upstream, calling(upstream) as fetcher:
        deadline = trio.current_time() + 10
        head = fetcher.prepare("POST", [])
        for number in range(3):
            beginning = (10_000, 10, 10_000)[number]
            await fetcher.exchange(head, b"", deadline=deadline, limit=LIMIT, beginning=beginning)
        assert upstream.connections == 1  # it came in one piece
        async with fetcher.open(head, b"", deadline=deadline, limit=LIMIT) as reply:
            assert reply.status == 500
        assert await ask(fetcher) == (500, b"x" * 5000)
        assert upstream.connections == 2
