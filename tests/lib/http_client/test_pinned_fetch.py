"""Fetching what strangers name: over real sockets and TLS, in an outside whose names the tests decide."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from auth.clients.client_identifier_urls import CannotFetch, FetchedDocument
from server.lib.http_client.trusted_roots import system_trust
from server.run.pinned_fetcher import (
    CONNECT_SECONDS,
    DOCUMENT_BYTES,
    EXCHANGE_SECONDS,
    EXCHANGES,
    KEY_SET_BYTES,
    OVERHEAD_BYTES,
    Reach,
    connect_to,
    make_fetch,
)
from tests.stranger import HOST, PUBLIC, Stranger, a_stranger, answer, says

URL = f"https://{HOST}/client.json"
JSON = "Content-Type: application/json"


async def fetch(stranger: Stranger, url: str = URL) -> FetchedDocument:
    return await make_fetch(stranger.reach())(url)


async def failure(stranger: Stranger, url: str = URL) -> CannotFetch:
    with pytest.raises(CannotFetch) as raised:
        await fetch(stranger, url)
    assert HOST not in str(raised.value)
    return raised.value


async def test_a_document_is_fetched_with_a_plain_request_to_the_address_that_was_checked(
    tmp_path: Path,
) -> None:
    cached = answer(b'{"a":1}', headers=(JSON, "Cache-Control: public, Max-Age=300"))
    async with a_stranger(tmp_path, says(cached)) as stranger:
        assert await fetch(stranger, URL + "?v=1") == FetchedDocument(body=b'{"a":1}', max_age_seconds=300)
        assert stranger.resolved == [HOST]
        assert stranger.connected == [(PUBLIC, 443)]
        assert stranger.server_names == [HOST]
        head = stranger.requests[0].decode().split("\r\n")
        assert head[0] == "GET /client.json?v=1 HTTP/1.1"
        names = {line.partition(":")[0].lower(): line.partition(": ")[2] for line in head[1:-2]}
        assert names.pop("user-agent").startswith("ostiary/")
        assert names == {
            "host": HOST,
            "accept": "application/json",
            "accept-encoding": "identity",
            "connection": "close",
        }


# ---------------------------------------------------------------- where it goes


async def test_a_name_that_leads_elsewhere_the_second_time_leads_nowhere_else(tmp_path: Path) -> None:
    """Rebinding: what was checked is what is connected to, because nothing looks the name up again."""
    async with a_stranger(tmp_path) as stranger:
        stranger.names[HOST] = [[PUBLIC], ["127.0.0.1"]]
        await fetch(stranger)
        assert (stranger.resolved, stranger.connected) == ([HOST], [(PUBLIC, 443)])
        problem = await failure(stranger)
        assert not problem.definite
        assert (len(stranger.resolved), len(stranger.connected), len(stranger.requests)) == (2, 1, 1)


async def test_what_connects_takes_an_address_and_asks_no_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The production half of the same: no name ever gets to it."""

    def never(*arguments: Any, **named: Any) -> Any:
        flags = named.get("flags", arguments[5] if len(arguments) > 5 else 0)
        assert flags & socket.AI_NUMERICHOST, "a name was to be looked up"
        return real(*arguments, **named)

    real = socket.getaddrinfo
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    monkeypatch.setattr(socket, "getaddrinfo", never)
    with trio.fail_after(60):
        port = listeners[0].socket.getsockname()[1]
        stream = await connect_to(ip_address("127.0.0.1"), port)
        accepted = await listeners[0].accept()
        assert isinstance(stream, trio.SocketStream)
        assert stream.socket.getpeername() == ("127.0.0.1", port)
        await stream.aclose()
        await accepted.aclose()
        await listeners[0].aclose()


async def test_the_systems_resolver_is_given_the_whole_name_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def look_up(host: Any, port: Any, **named: Any) -> Any:
        asked.append(host)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443)),
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1%lo", 443, 0, 1)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert [str(found) for found in await Reach.system().resolve(HOST)] == ["93.184.216.34", "fe80::1%lo"]
    assert asked == [b"app.example."]  # no search domain, no translation


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.0.0.7"],
        ["169.254.169.254"],
        ["168.63.129.16"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["fe80::1%1"],
        [PUBLIC, "127.0.0.1"],
        ["192.168.1.1", PUBLIC],
        ["2606:4700:4700::1111", PUBLIC, "fd00::1"],
        [],
    ],
)
async def test_nothing_is_connected_to_unless_every_address_is_public(
    tmp_path: Path, addresses: list[str]
) -> None:
    async with a_stranger(tmp_path) as stranger:
        stranger.names[HOST] = [addresses]
        assert not (await failure(stranger)).definite
        assert stranger.connected == []


async def test_a_name_that_nobody_knows_is_no_answer(tmp_path: Path) -> None:
    async with a_stranger(tmp_path) as stranger:
        stranger.names.clear()
        problem = await failure(stranger)
        assert ("name is not known" in str(problem), problem.definite) == (True, False)


BAD_URLS = (
    "",
    "http://app.example/c",
    "HTTPS://app.example/c",
    "ftp://app.example/c",
    "file:///etc/passwd",
    "https:app.example/c",
    "https:/app.example/c",
    "https:///c",
    "https://app.example:443/c",
    "https://app.example:8443/c",
    "https://app.example:/c",
    "https://user@app.example/c",
    "https://user:word@app.example/c",
    "https://@app.example/c",
    "https://app.example/c#",
    "https://app.example/c#x",
    "https://app.example\\@other.example/c",
    "https://app.example/a\\b",
    "https://app.example/a b",
    "https://app.example/a\tb",
    "https://app.example/a\r\nHost: other.example",
    "https://app.example/\x00",
    "https://app.example/\x7f",
    "https://app.example/ä",
    "https://äpp.example/c",
    "https://app。example/c",
    "https://ａpp.example/c",
    "https://app.example/%",
    "https://app.example/%2",
    "https://app.example/%zz",
    'https://app.example/"',
    "https://app.example/<c>",
    "https://App.example/c",
    "https://app.example./c",
    "https://.app.example/c",
    "https://app..example/c",
    "https://-app.example/c",
    "https://app-.example/c",
    "https://app_.example/c",
    "https://*.example/c",
    "https://localhost/c",
    "https://localhost./c",
    "https://app.localhost/c",
    "https://intranet/c",
    "https://127.0.0.1/c",
    "https://127.1/c",
    "https://2130706433/c",
    "https://0x7f000001/c",
    "https://0x7f.0.0.1/c",
    "https://0177.0.0.1/c",
    "https://127.0.0.0x1/c",
    "https://app.0x7f/c",
    "https://app.1/c",
    "https://93.184.216.34/c",
    "https://[::1]/c",
    "https://[2606:4700:4700::1111]/c",
    "https://[::ffff:127.0.0.1]/c",
    "https://[v1.x]/c",
    "https://127.0.0.1.:443/c",
    "https://app%2eexample/c",
    "https://app.example%00/c",
    "https://" + "a" * 64 + ".example/c",
    "https://" + "a." * 127 + "example/c",
    "https://app.example/" + "a" * 2048,
)


@pytest.mark.parametrize("url", BAD_URLS)
async def test_an_address_that_could_be_read_in_two_ways_is_not_even_looked_up(
    tmp_path: Path, url: str
) -> None:
    async with a_stranger(tmp_path) as stranger:
        stranger.names = {name: [[PUBLIC]] for name in (HOST, "127.0.0.1", "localhost", "other.example")}
        with pytest.raises(CannotFetch) as raised:
            await fetch(stranger, url)
        assert raised.value.definite
        assert stranger.resolved == []


async def test_a_name_in_punycode_is_a_name_like_any_other(tmp_path: Path) -> None:
    name = "xn--pp-eka.example"
    async with a_stranger(tmp_path, host=name) as stranger:
        stranger.names = {name: [[PUBLIC]]}
        await fetch(stranger, f"https://{name}/c")
        assert stranger.server_names == [name]


async def test_an_address_that_does_not_pick_up_leaves_time_for_the_other_family(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with a_stranger(tmp_path) as stranger, trio.open_nursery() as nursery:

        async def ring() -> None:
            while not stranger.connected:
                await trio.lowlevel.checkpoint()
            mock_clock.jump(CONNECT_SECONDS)

        nursery.start_soon(ring)
        stranger.names[HOST] = [["2606:4700::1", "2606:4700::2", PUBLIC]]
        stranger.deaf = {"2606:4700::1"}
        await fetch(stranger)
        assert stranger.connected == [("2606:4700::1", 443), (PUBLIC, 443)]


async def test_only_so_many_addresses_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.run.pinned_fetcher.CONNECT_SECONDS", 0.01)
    async with a_stranger(tmp_path) as stranger:
        many = [f"93.184.216.{number}" for number in range(1, 60)]
        stranger.names[HOST], stranger.deaf = [many], set(many)
        problem = await failure(stranger)
        assert ("nobody picked up" in str(problem), problem.definite) == (True, False)
        assert len(stranger.connected) == 4


# ---------------------------------------------------------------- TLS


async def test_a_certificate_that_nobody_vouches_for_is_not_accepted(tmp_path: Path) -> None:
    async with a_stranger(tmp_path) as stranger:
        with pytest.raises(CannotFetch, match="certificate that is not accepted") as raised:
            await make_fetch(stranger.reach(trust=system_trust))(URL)
        assert not raised.value.definite
        assert stranger.requests == []


async def test_a_certificate_for_another_name_is_not_accepted(tmp_path: Path) -> None:
    async with a_stranger(tmp_path, host="elsewhere.example") as stranger:
        assert "certificate" in str(await failure(stranger))
        assert stranger.requests == []


async def test_a_server_that_speaks_no_tls_is_not_asked(tmp_path: Path) -> None:
    async with a_stranger(tmp_path) as stranger:

        async def plain(stream: trio.abc.Stream, _: Any) -> None:
            async with stream:
                await stream.send_all(b"HTTP/1.1 400 X\r\n\r\n")

        stranger.serve = plain  # type: ignore[method-assign]
        problem = await failure(stranger)
        assert ("TLS" in str(problem), problem.definite) == (True, False)


# ---------------------------------------------------------------- what it answers


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 300, 304])
async def test_no_redirect_is_followed(tmp_path: Path, status: int) -> None:
    elsewhere = answer(b"", status=status, headers=(f"Location: https://{HOST}/other.json",))
    async with a_stranger(tmp_path, says(elsewhere)) as stranger:
        problem = await failure(stranger)
        assert (str(problem), problem.definite) == ("sent us elsewhere", True)
        assert (len(stranger.requests), len(stranger.resolved)) == (1, 1)


@pytest.mark.parametrize(
    ("status", "definite"),
    [
        (201, True),
        (204, True),
        (206, True),
        (400, True),
        (404, True),
        (405, True),
        (410, True),
        (451, True),
        # About us, not about the document: challenges to data centres, limits.
        (401, False),
        (403, False),
        (407, False),
        (408, False),
        (425, False),
        (429, False),
        (500, False),
        (502, False),
        (503, False),
        (599, False),
    ],
)
async def test_only_200_is_an_answer_and_only_some_others_are_the_last_word(
    tmp_path: Path, status: int, definite: bool
) -> None:
    async with a_stranger(tmp_path, says(answer(b"" if status == 204 else b"{}", status=status))) as stranger:
        problem = await failure(stranger)
        assert (str(problem), problem.definite) == (f"answered with status {status}", definite)


@pytest.mark.parametrize(
    "media",
    [
        "application/json",
        "Application/JSON ; charset=utf-8",
        "application/oauth-client+json",
        "application/x.y-z+json",
    ],
)
async def test_json_by_any_of_its_names_is_taken(tmp_path: Path, media: str) -> None:
    async with a_stranger(tmp_path, says(answer(headers=(f"Content-Type: {media}",)))) as stranger:
        assert (await fetch(stranger)).body == b"{}"


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Content-Type: text/html",),
        ("Content-Type: text/json",),
        ("Content-Type: text/plain; application/json",),
        ("Content-Type: application/jsonp",),
        ("Content-Type: application/x+jsonx",),
        ("Content-Type: image/svg+json",),
        (JSON, "Content-Type: text/html"),
    ],
)
async def test_nothing_else_is(tmp_path: Path, headers: Sequence[str]) -> None:
    async with a_stranger(tmp_path, says(answer(headers=headers))) as stranger:
        problem = await failure(stranger)
        assert ("else than JSON" in str(problem), problem.definite) == (True, True)


@pytest.mark.parametrize(
    ("cache_control", "seconds"),
    [
        ("max-age=60", 60),
        ("no-cache, MAX-AGE = 7", 7),
        ('max-age="9"', 9),
        ("max-age=99999999999999", 9_999_999_999),
        ("max-age=-1", None),
        ("max-age=soon", None),
        ("no-store", None),
    ],
)
async def test_how_long_it_may_be_kept_is_read(
    tmp_path: Path, cache_control: str, seconds: int | None
) -> None:
    reply = answer(headers=(JSON, f"Cache-Control: {cache_control}"))
    async with a_stranger(tmp_path, says(reply)) as stranger:
        assert (await fetch(stranger)).max_age_seconds == seconds


# ---------------------------------------------------------------- bombs


async def test_a_body_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(tmp_path: Path) -> None:
    async with a_stranger(tmp_path, says(answer(b"1" * DOCUMENT_BYTES))) as stranger:
        assert len((await fetch(stranger)).body) == DOCUMENT_BYTES
        stranger.handler = says(answer(b"1" * (DOCUMENT_BYTES + 1)))
        problem = await failure(stranger)
        assert (str(problem), problem.definite) == ("answered with more than 5 KiB", True)
        assert len((await make_fetch(stranger.reach(), limit=KEY_SET_BYTES)(URL)).body) == DOCUMENT_BYTES + 1


@pytest.mark.parametrize(
    "reply",
    [
        answer(gzip.compress(b"0" * 1_000_000), headers=(JSON, "Content-Encoding: gzip")),
        answer(b"{}", headers=(JSON, "Content-Encoding: deflate")),
        answer(b"{}", headers=(JSON, "Content-Encoding: identity, br")),
    ],
)
async def test_what_could_unfold_is_not_taken(tmp_path: Path, reply: bytes) -> None:
    async with a_stranger(tmp_path, says(reply)) as stranger:
        problem = await failure(stranger)
        assert ("compressed" in str(problem), problem.definite) == (True, True)


HEAD = f"HTTP/1.1 200 OK\r\n{JSON}\r\n".encode()
TOO_LARGE = "answered with more than 5 KiB"
TOO_MUCH = "more than anybody needs"


async def test_a_body_that_is_announced_as_too_long_is_not_waited_for(tmp_path: Path) -> None:
    async with a_stranger(tmp_path, says(HEAD + b"Content-Length: 5121\r\n\r\n")) as stranger:
        assert str(await failure(stranger)) == TOO_LARGE


def chunked(length: int) -> bytes:
    """In chunks, so that its end alone says how long it was."""
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (length, b"1" * length)


async def test_a_body_of_unknown_length_is_bounded_to_the_byte_as_well(tmp_path: Path) -> None:
    async with a_stranger(tmp_path, says(chunked(DOCUMENT_BYTES))) as stranger:
        fetch = make_fetch(stranger.reach())
        assert len((await fetch(URL)).body) == DOCUMENT_BYTES
        stranger.handler = says(chunked(DOCUMENT_BYTES + 1))
        with pytest.raises(CannotFetch, match="more than 5 KiB") as refused:
            await fetch(URL)
        assert refused.value.definite


@pytest.mark.parametrize(
    ("head", "again", "told"),
    [
        (HEAD + b"\r\n", b"1" * 1_000, TOO_LARGE),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n1\r\n" * 1_000, TOO_LARGE),
        (HEAD + b"Content-Length: 5\r\nX: ", b"a" * 10_000, TOO_MUCH),
        (HEAD, b"X: a\r\n" * 1_000, TOO_MUCH),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100, TOO_MUCH),
        (b"", b"\x00" * 10_000, "did not answer in HTTP"),
    ],
    ids=["body", "chunks", "one header", "headers", "early hints", "noise"],
)
async def test_what_never_ends_is_cut_off(tmp_path: Path, head: bytes, again: bytes, told: str) -> None:
    sent = 0

    async def endless(request: bytes, stream: trio.abc.Stream) -> None:
        nonlocal sent
        await stream.send_all(head)
        while True:
            await stream.send_all(again)
            sent += len(again)

    async with a_stranger(tmp_path, endless) as stranger:
        assert told in str(await failure(stranger))
        # What was read, and what lay in the sockets' buffers.
        assert sent < DOCUMENT_BYTES + OVERHEAD_BYTES + 20_000_000
        await wait_until_closed(stranger)


async def wait_until_closed(stranger: Stranger) -> None:
    with trio.fail_after(60):
        while stranger.open_now:
            await trio.sleep(0.001)


@pytest.mark.parametrize("first", [b"", HEAD, HEAD + b"Content-Length: 100\r\n\r\n"])
async def test_who_drips_is_given_up_on(
    tmp_path: Path, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.run.pinned_fetcher.EXCHANGE_SECONDS", 0.2)

    async def drip(request: bytes, stream: trio.abc.Stream) -> None:
        await stream.send_all(first)
        while True:
            await stream.send_all(b"x")
            await trio.sleep(0.01)

    async with a_stranger(tmp_path, drip) as stranger:
        assert not (await failure(stranger)).definite
        await wait_until_closed(stranger)


async def test_who_never_shakes_hands_is_given_up_on(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with a_stranger(tmp_path) as stranger:
        gone = trio.Event()

        async def mute(stream: trio.abc.Stream, _: Any) -> None:
            async with stream:
                mock_clock.jump(EXCHANGE_SECONDS)
                while await stream.receive_some(4096):
                    pass
                gone.set()

        stranger.serve = mute  # type: ignore[method-assign]
        assert not (await failure(stranger)).definite
        with trio.fail_after(60):
            await gone.wait()


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        HEAD + b"Content-Length: 100\r\n\r\n{",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: \x00\r\n\r\n",
        b"HTTP/1.1 fine\r\n\r\n",
    ],
)
async def test_an_answer_that_is_broken_off_or_no_http_is_no_word(tmp_path: Path, reply: bytes) -> None:
    async def hang_up(request: bytes, stream: trio.abc.Stream) -> None:
        await stream.send_all(reply)
        await trio.aclose_forcefully(stream)

    async with a_stranger(tmp_path, hang_up) as stranger:
        assert not (await failure(stranger)).definite


# ---------------------------------------------------------------- what it does not carry along


async def test_neither_cookies_nor_credentials_go_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text(f"machine {HOST} login a password b")
    monkeypatch.setenv("HOME", str(tmp_path))
    reply = answer(headers=(JSON, "Set-Cookie: a=b; Domain=app.example"))
    async with a_stranger(tmp_path, says(reply)) as stranger:
        fetching = make_fetch(stranger.reach())
        await fetching(URL)
        await fetching(URL)
        assert len(stranger.requests) == 2
        for request in stranger.requests:
            assert b"cookie" not in request.lower()
            assert b"authorization" not in request.lower()


# ---------------------------------------------------------------- many at once


async def test_fifty_who_want_the_same_cause_one_exchange(tmp_path: Path) -> None:
    go = trio.Event()

    async def wait(request: bytes, stream: trio.abc.Stream) -> None:
        await go.wait()
        await stream.send_all(answer(b'{"a":1}'))

    async with a_stranger(tmp_path, wait) as stranger:
        fetching, found = make_fetch(stranger.reach()), list[bytes]()

        async def one() -> None:
            found.append((await fetching(URL)).body)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
            while not stranger.requests:
                await trio.sleep(0.001)
            go.set()
        assert found == [b'{"a":1}'] * 50
        assert len(stranger.requests) == 1


async def test_a_failure_is_shared_as_well(tmp_path: Path) -> None:
    async with a_stranger(tmp_path, says(answer(status=404))) as stranger:
        fetching, failed = make_fetch(stranger.reach()), list[bool]()

        async def one() -> None:
            with pytest.raises(CannotFetch) as raised:
                await fetching(URL)
            failed.append(raised.value.definite)

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)
        assert failed == [True] * 50
        assert len(stranger.requests) == 1


async def test_who_goes_away_takes_nobody_along(tmp_path: Path) -> None:
    async with a_stranger(tmp_path) as stranger:
        fetching, found = make_fetch(stranger.reach()), list[bytes]()
        stranger.deaf = {PUBLIC}  # the first one hangs

        async def one() -> None:
            found.append((await fetching(URL)).body)

        async with trio.open_nursery() as nursery:
            first = trio.CancelScope()

            async def leader() -> None:
                with first:
                    await one()

            nursery.start_soon(leader)
            while not stranger.connected:
                await trio.sleep(0.001)
            for _ in range(5):
                nursery.start_soon(one)
            await trio.testing.wait_all_tasks_blocked()
            stranger.deaf = set()
            first.cancel()
        assert found == [b"{}"] * 5
        assert len(stranger.requests) == 1


async def test_only_so_many_exchanges_go_on_at_once(tmp_path: Path) -> None:
    go = trio.Event()

    async def wait(request: bytes, stream: trio.abc.Stream) -> None:
        await go.wait()
        await stream.send_all(answer())

    async with a_stranger(tmp_path, wait) as stranger:
        fetching = make_fetch(stranger.reach())
        async with trio.open_nursery() as nursery:
            for number in range(3 * EXCHANGES):
                nursery.start_soon(fetching, f"{URL}?{number}")
            while len(stranger.requests) < EXCHANGES:
                await trio.sleep(0.001)
            await trio.testing.wait_all_tasks_blocked()
            assert len(stranger.requests) == EXCHANGES
            go.set()
        assert len(stranger.requests) == 3 * EXCHANGES
        assert stranger.most_open <= EXCHANGES
