"""Proxies: which one the environment names for an address, and what is said to one and made of its answers."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio
import trio.testing

from auth.clients.client_identifier_urls import CannotFetch
from server.lib.http_client.dialing import CONNECT_SECONDS
from server.lib.http_client.failures import BadCertificate, FetchFailed, NotConnected, ProxyFailed
from server.lib.http_client.fetch import Fetcher
from server.lib.http_client.proxies import Proxy, proxy_for
from server.run.pinned_fetcher import make_fetch
from tests.free_ports import free_port
from tests.lib.http_client.raw_upstream import (
    RawUpstream,
    Visitor,
    answer,
    ask,
    leading_to,
    raw_upstream,
)
from tests.made_certificates import write_certificate
from tests.stranger import HOST, PUBLIC, Stranger, a_stranger

PROXY = "http://proxy.example:3128"
OTHER = "http://other.example:3128"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"

# ---------------------------------------------------------------- the environment


def chosen(url: str, **environment: str) -> Proxy | None:
    return proxy_for(urlsplit(url), environment)


def name_of(url: str, **environment: str) -> str:
    """Return the first label of the proxy's host, or nothing."""
    proxy = chosen(url, **environment)
    return proxy.host.partition(".")[0] if proxy else ""


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("https://a.example", {}, ""),
        ("https://a.example", {"HTTPS_PROXY": PROXY}, "proxy"),
        ("https://a.example", {"https_proxy": PROXY, "HTTPS_PROXY": OTHER}, "proxy"),
        ("https://a.example", {"https_proxy": "", "HTTPS_PROXY": OTHER}, "other"),
        ("https://a.example", {"HTTPS_PROXY": ""}, ""),
        ("https://a.example", {"HTTP_PROXY": PROXY}, ""),
        ("http://a.example", {"HTTPS_PROXY": PROXY}, ""),
        ("http://a.example", {"HTTP_PROXY": PROXY}, "proxy"),
        ("http://a.example", {"http_proxy": PROXY, "HTTP_PROXY": OTHER}, "proxy"),
        ("https://a.example", {"ALL_PROXY": PROXY}, "proxy"),
        ("http://a.example", {"all_proxy": PROXY, "ALL_PROXY": OTHER}, "proxy"),
        ("https://a.example", {"ALL_PROXY": OTHER, "HTTPS_PROXY": PROXY}, "proxy"),
        # a CGI program, whose caller can set HTTP_PROXY
        ("http://a.example", {"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, ""),
        ("http://a.example", {"HTTP_PROXY": OTHER, "ALL_PROXY": PROXY, "REQUEST_METHOD": "GET"}, "proxy"),
        ("http://a.example", {"http_proxy": PROXY, "REQUEST_METHOD": "GET"}, "proxy"),
        ("https://a.example", {"HTTPS_PROXY": PROXY, "REQUEST_METHOD": "GET"}, "proxy"),
    ],
)
def test_a_variable_for_the_scheme_comes_before_one_for_all_and_small_letters_before_capitals(
    url: str, environment: dict[str, str], proxy: str
) -> None:
    assert name_of(url, **environment) == proxy


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1", "2130706433", "0x7f.1"],
)  # fmt: skip
def test_this_machine_is_never_called_through_a_proxy(host: str) -> None:
    assert name_of(f"https://{host}:8443", ALL_PROXY=PROXY) == ""


@pytest.mark.parametrize(
    ("exceptions", "direct", "proxied"),
    [
        ("*", ["a.example", "10.0.0.1", "[fd00::1]"], []),
        ("b.example, *", ["a.example"], []),
        ("a.example", ["a.example", "A.Example", "a.example.", "www.a.example"], ["ba.example", "a.example.org"]),
        (".a.example", ["a.example", "www.a.example"], ["ba.example"]),
        ("*.a.example", ["a.example", "www.a.example"], ["ba.example"]),
        ("a.example.", ["a.example"], []),
        ("a.example:8443", ["a.example:8443", "www.a.example:8443"], ["a.example", "a.example:8444"]),
        ("a.example:443", ["a.example", "a.example:443"], ["a.example:8443"]),
        ("b.example a.example", ["a.example", "b.example"], ["c.example"]),
        (" b.example ,\ta.example,,", ["a.example", "b.example"], ["c.example"]),
        ("10.1.2.3", ["10.1.2.3", "10.1.2.3:99", "[::ffff:10.1.2.3]"], ["10.1.2.4", "a10.1.2.3"]),
        ("10.1.2.3:99", ["10.1.2.3:99"], ["10.1.2.3"]),
        ("10.0.0.0/8", ["10.1.2.3", "10.255.0.1:99"], ["11.0.0.1", "[fd00::1]", "a.example"]),
        ("10.1.2.3/8", ["10.9.9.9"], ["11.0.0.1"]),
        ("fd00::/8", ["[fd00::1]", "[fdff::1]:99"], ["[fe00::1]", "10.0.0.1"]),
        ("fd00::1", ["[fd00::1]", "[fd00:0::1]:99"], ["[fd00::2]"]),
        ("[fd00::1]", ["[fd00::1]", "[fd00::1]:99"], ["[fd00::2]"]),
        ("[fd00::]/8", ["[fd00::1]"], ["[fe00::1]"]),
        ("bücher.example", ["xn--bcher-kva.example", "www.xn--bcher-kva.example"], ["bucher.example"]),
        ("[fd00::1]:99", ["[fd00::1]:99"], ["[fd00::1]"]),
        (f"10.0.0.0/99,.,:1,[],[x,a/b,a:{'9' * 5000}", [], ["10.0.0.1", "a.example", "[fd00::1]", "a"]),
        ("", [], ["a.example"]),
    ],
)  # fmt: skip
def test_what_no_proxy_lists_is_called_directly(
    exceptions: str, direct: list[str], proxied: list[str]
) -> None:
    for variable in ("NO_PROXY", "no_proxy"):
        environment = {"HTTPS_PROXY": PROXY, variable: exceptions}
        assert [host for host in direct if name_of(f"https://{host}/x", **environment)] == []
        assert [host for host in proxied if not name_of(f"https://{host}/x", **environment)] == []


def test_no_proxy_in_small_letters_wins() -> None:
    both = {"HTTPS_PROXY": PROXY, "no_proxy": "b.example", "NO_PROXY": "a.example"}
    assert (name_of("https://a.example", **both), name_of("https://b.example", **both)) == ("proxy", "")


@pytest.mark.parametrize(
    ("text", "place", "secure", "login"),
    [
        ("http://p.example:3128", "p.example:3128", False, None),
        ("http://p.example:3128/", "p.example:3128", False, None),
        (" p.example:3128\n", "p.example:3128", False, None),
        ("p.example", "p.example:80", False, None),
        ("HTTP://P.Example", "p.example:80", False, None),
        ("https://p.example", "p.example:443", True, None),
        ("https://p.example:8443", "p.example:8443", True, None),
        ("http://[fd00::1]:3128", "[fd00::1]:3128", False, None),
        ("http://127.0.0.1:3128", "127.0.0.1:3128", False, None),
        ("http://me:secret@p.example:1", "p.example:1", False, b"me:secret"),
        ("me:secret@p.example:1", "p.example:1", False, b"me:secret"),
        ("http://me@p.example:1", "p.example:1", False, b"me:"),
        ("http://me:s%40%2F%3a@p.example:1", "p.example:1", False, b"me:s@/:"),
        ("http://me:s@cret@p.example:1", "p.example:1", False, b"me:s@cret"),
    ],
)
def test_a_proxy_is_read_from_a_url_or_from_host_and_port(
    text: str, place: str, secure: bool, login: bytes | None
) -> None:
    proxy = chosen("https://a.example", HTTPS_PROXY=text)
    assert proxy is not None
    assert (proxy.place, proxy.secure, proxy.problem) == (place, secure, "")
    assert proxy.authorization == ("" if login is None else f"Basic {b64encode(login).decode()}")
    assert repr(proxy) == f"<Proxy {place}>"


@pytest.mark.parametrize(
    "text",
    [
        "http://me:se/cret@p.example:1",
        "http://me:se?cret@p.example:1",
        "http://me:se#cret@p.example:1",
        "http://me:se cret@p.example:1",
        "http://me:secret@p.example:port",
        "http://me:secret@p.example:0",
        "http://me:secret@p.example:99999",
        "http://me:secret@[p.example",
        "http://me:secret@",
        "http://me:secret@\u2100.example",
        "ftp://me:secret@p.example",
        "secret://p.example",
        "socks5://me:secret@p.example:1080",
        "SOCKS5H://me:secret@p.example:1080",
    ],
)
async def test_what_cannot_be_used_is_told_when_it_is_needed_and_never_repeated(text: str) -> None:
    fetcher = Fetcher("https://a.example", connections=1, environment={"ALL_PROXY": text})
    with pytest.raises(ProxyFailed) as raised:
        await ask(fetcher)
    said = str(raised.value) + repr(chosen("https://a.example", ALL_PROXY=text))
    assert "ALL_PROXY" in said
    assert ("SOCKS" in said and "NO_PROXY" in said) == text.lower().startswith("socks")
    assert not any(word in said for word in ("secret", "se/", "se?", "cret", "me:"))


# ---------------------------------------------------------------- through it

AGENT = "agent.example"


def agent_url(upstream: RawUpstream) -> str:
    """Return the address of the upstream by a name that only a proxy leads to."""
    return upstream.url.replace("localhost", AGENT)


def tls_of(directory: Path, host: str) -> tuple[ssl.SSLContext, Path]:
    directory.mkdir(exist_ok=True)
    certificate, key = write_certificate(directory, "upstream", host=host)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context, certificate


async def echo(visitor: Visitor) -> None:
    """Answer each request with its body."""
    while (body := await visitor.request()) is not None:
        await visitor.send(answer(body))


def by(proxy: RawUpstream, login: str = "") -> Mapping[str, str]:
    scheme, _, rest = proxy.url.partition("://")
    return {"all_proxy": f"{scheme}://{login}{rest.partition('/')[0]}"}


@pytest.mark.parametrize("proxy_speaks_tls", [False, True])
async def test_https_goes_through_a_tunnel_in_which_the_proxy_sees_nothing(
    proxy_speaks_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target_tls, authority = tls_of(tmp_path / "target", AGENT)
    proxy_tls = None
    if proxy_speaks_tls:
        proxy_tls, proxy_authority = tls_of(tmp_path / "proxy", "localhost")
        monkeypatch.setenv("SSL_CERT_FILE", str(proxy_authority))
    heads: list[bytes] = []
    async with (
        raw_upstream(echo, tls=target_tls) as upstream,
        raw_upstream(leading_to(upstream, heads), tls=proxy_tls) as proxy,
    ):
        url = agent_url(upstream)
        fetcher = Fetcher(url, connections=1, ca_file=authority, environment=by(proxy, "me:secret@"))
        assert await ask(fetcher, b"one") == (200, b"one")
        assert await ask(fetcher, b"x" * 300_000, limit=300_000) == (200, b"x" * 300_000)
        place = urlsplit(url).netloc
        login = b64encode(b"me:secret").decode()
        assert heads == [
            f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\nProxy-Authorization: Basic {login}\r\n\r\n".encode()
        ]
        assert upstream.connections == 1
        await fetcher.aclose()
        await upstream.wait_until_nobody_is_left()
        await proxy.wait_until_nobody_is_left()


async def test_the_target_proves_who_it_is_through_a_tunnel_as_well(tmp_path: Path) -> None:
    target_tls, authority = tls_of(tmp_path, "elsewhere.example")
    async with (
        raw_upstream(echo, tls=target_tls) as upstream,
        raw_upstream(leading_to(upstream, [])) as proxy,
    ):
        url = agent_url(upstream)
        with pytest.raises(BadCertificate):
            await ask(Fetcher(url, connections=1, ca_file=authority, environment=by(proxy)))
        await proxy.wait_until_nobody_is_left()


async def test_a_proxy_that_cannot_prove_who_it_is_learns_neither_target_nor_login(tmp_path: Path) -> None:
    proxy_tls, _ = tls_of(tmp_path, "localhost")
    heads: list[bytes] = []

    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        heads.append(bytes(visitor.received))

    async with raw_upstream(play, tls=proxy_tls) as proxy:
        url = f"https://{AGENT}/"
        with pytest.raises(ProxyFailed, match="certificate"):
            await ask(Fetcher(url, connections=1, environment=by(proxy, "me:secret@")))
        await proxy.wait_until_nobody_is_left()
    assert heads == []


async def test_plain_http_is_asked_for_by_its_whole_address() -> None:
    heads: list[bytes] = []
    async with raw_upstream(echo) as upstream, raw_upstream(leading_to(upstream, heads)) as proxy:
        url = agent_url(upstream)
        fetcher = Fetcher(url, connections=1, environment=by(proxy, "me:secret@"))
        assert await ask(fetcher, b"one") == (200, b"one")
        assert await ask(fetcher, b"two") == (200, b"two")
        assert proxy.connections == 1
        first, host, *_ = heads[0].decode().split("\r\n")
        assert (first, host) == (f"POST {url} HTTP/1.1", f"Host: {urlsplit(url).netloc}")
        assert f"Proxy-Authorization: Basic {b64encode(b'me:secret').decode()}" in heads[0].decode()
        other = fetcher.prepare("GET", [], target="/other?x=1")
        assert other.startswith(f"GET http://{urlsplit(url).netloc}/other?x=1 HTTP/1.1\r\n".encode())
        await fetcher.aclose()


def test_neither_the_login_nor_the_whole_address_goes_to_anybody_but_a_proxy() -> None:
    for url in ("https://a.example/x", "http://b.example/x", "http://localhost/x"):
        environment = {"all_proxy": "http://me:secret@p.example", "no_proxy": "b.example"}
        head = Fetcher(url, connections=1, environment=environment).prepare("GET", [])
        assert head.startswith(b"GET /x HTTP/1.1\r\n")
        assert b"Proxy-Authorization" not in head


@pytest.mark.parametrize(("host", "place"), [("[fd00::1]", b"[fd00::1]:443"), (AGENT, b"agent.example:443")])
async def test_a_tunnel_is_asked_for_by_host_and_port(host: str, place: bytes) -> None:
    heads: list[bytes] = []

    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        heads.append(bytes(visitor.received))

    async with raw_upstream(play) as proxy:
        with pytest.raises(ProxyFailed):
            await ask(Fetcher(f"https://{host}/x", connections=1, environment=by(proxy)))
    assert heads == [b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (place, place)]


# ---------------------------------------------------------------- proxies that fail


async def refusal(raw: bytes, login: str = "", scheme: str = "https") -> str:
    """Return what is said of a proxy that answers with these bytes, and hangs up."""

    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        await visitor.send(raw)
        visitor.hang_up()
        await visitor.wait_gone()

    async with raw_upstream(play) as proxy:
        fetcher = Fetcher(f"{scheme}://{AGENT}/x", connections=1, environment=by(proxy, login))
        with pytest.raises(FetchFailed) as raised:
            await ask(fetcher)
        await fetcher.aclose()
        await proxy.wait_until_nobody_is_left()
        assert proxy.connections == 1
        assert isinstance(raised.value, ProxyFailed) == (scheme == "https")
        said = str(raised.value)
        assert "secret" not in said
        assert urlsplit(by(proxy)["all_proxy"]).netloc in said
        return said


WANTS_A_LOGIN = (
    b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"
)


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_where_a_proxy_wants_a_login_it_is_said_where_that_is_written(scheme: str) -> None:
    assert "all_proxy=http://user:password@localhost:" in await refusal(WANTS_A_LOGIN, scheme=scheme)
    assert "does not accept the login" in await refusal(WANTS_A_LOGIN, "me:secret@", scheme)


@pytest.mark.parametrize(
    ("raw", "fact"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno!!", "status 403"),
        (b"HTTP/1.0 502 Bad Gateway\r\n\r\n<html>", "status 502"),
        (b"HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\n\r\n", "status 302"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "did not answer in HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "did not answer in HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "did not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000, "did not answer in HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 5000, "did not answer in HTTP"),
        (ESTABLISHED + b"x", "more than an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "more than an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nx", "more than an answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "more than an answer"),
    ],
)
async def test_a_proxy_that_does_not_lead_on_is_told_with_its_reason(raw: bytes, fact: str) -> None:
    assert fact in await refusal(raw)


@pytest.mark.parametrize("end", range(len(ESTABLISHED)))
async def test_a_proxy_that_hangs_up_in_its_answer_is_told(end: int) -> None:
    assert "closed the connection" in await refusal(ESTABLISHED[:end])


@pytest.mark.parametrize(
    "established",
    [
        ESTABLISHED,
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 204 X\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n",
        b"HTTP/1.1 200 OK\nVia: x\n\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + ESTABLISHED,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n",
    ],
)
async def test_after_a_good_answer_comes_no_body_whatever_it_says(established: bytes, tmp_path: Path) -> None:
    target_tls, authority = tls_of(tmp_path, AGENT)
    async with (
        raw_upstream(echo, tls=target_tls) as upstream,
        raw_upstream(leading_to(upstream, [], established)) as proxy,
    ):
        url = agent_url(upstream)
        fetcher = Fetcher(url, connections=1, ca_file=authority, environment=by(proxy))
        assert await ask(fetcher, b"one") == (200, b"one")
        await fetcher.aclose()


async def test_a_proxy_that_hangs_at_any_byte_can_be_left() -> None:
    hangs = trio.Event()
    send = ESTABLISHED

    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        await visitor.send(send)
        hangs.set()
        await visitor.wait_gone()

    async with raw_upstream(play) as proxy:
        fetcher = Fetcher(f"https://{AGENT}/x", connections=1, environment=by(proxy))
        for end in range(len(ESTABLISHED)):
            hangs, send = trio.Event(), ESTABLISHED[:end]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, fetcher)
                await hangs.wait()
                nursery.cancel_scope.cancel()
            await proxy.wait_until_nobody_is_left()
        assert proxy.connections == len(ESTABLISHED)


@pytest.mark.parametrize("sent", [b"", ESTABLISHED[:20], b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_proxy_that_does_not_lead_on_in_time_is_given_up(
    sent: bytes, mock_clock: trio.testing.MockClock
) -> None:
    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        await visitor.send(sent)
        mock_clock.jump(CONNECT_SECONDS)
        await visitor.wait_gone()
        gone.set()

    gone = trio.Event()
    async with raw_upstream(play) as proxy:
        fetcher = Fetcher(f"https://{AGENT}/x", connections=1, environment=by(proxy))
        with pytest.raises(ProxyFailed, match="in time"):
            await ask(fetcher)
        await gone.wait()


async def test_a_proxy_that_is_not_there_is_tried_again_and_named() -> None:
    place = f"localhost:{free_port()}"
    environment = {"all_proxy": f"http://me:secret@{place}"}
    fetcher = Fetcher(f"https://{AGENT}/x", connections=1, environment=environment, pauses=(0, 0))
    with pytest.raises(ProxyFailed) as raised:
        await ask(fetcher)
    assert f"the proxy {place} cannot be reached: connection refused" in str(raised.value)
    assert isinstance(raised.value, NotConnected)


# ---------------------------------------------------------------- addresses that strangers name


def upstream_of(stranger: Stranger) -> RawUpstream:
    return RawUpstream(f"https://localhost:{stranger.port}/")


async def test_a_strangers_name_is_looked_up_here_and_the_proxy_asked_for_the_checked_address(
    tmp_path: Path,
) -> None:
    heads: list[bytes] = []
    async with (
        a_stranger(tmp_path) as stranger,
        raw_upstream(leading_to(upstream_of(stranger), heads)) as proxy,
    ):
        fetching = make_fetch(stranger.reach(environment=by(proxy)))
        assert (await fetching(f"https://{HOST}/a.json")).body == b"{}"
        assert heads[0].startswith(b"CONNECT %b:443 HTTP/1.1\r\n" % PUBLIC.encode())
        assert stranger.server_names == [HOST]
        assert stranger.connected == []
        stranger.names[HOST] = [["10.0.0.1"]]
        with pytest.raises(CannotFetch, match="not on the public internet"):
            await fetching(f"https://{HOST}/b.json")
        assert len(heads) == 1


async def test_a_stranger_is_not_told_which_proxy_refused(tmp_path: Path) -> None:
    tried: list[bytes] = []

    async def play(visitor: Visitor) -> None:
        await visitor.head_only()
        tried.append(bytes(visitor.received).split(b" ")[1])
        await visitor.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with a_stranger(tmp_path) as stranger, raw_upstream(play) as proxy:
        stranger.names[HOST] = [["2606:4700::1", PUBLIC]]
        with pytest.raises(CannotFetch) as raised:
            await make_fetch(stranger.reach(environment=by(proxy)))(f"https://{HOST}/a.json")
        assert "proxy" in str(raised.value)
        assert "localhost" not in str(raised.value)
        assert not raised.value.definite
        assert tried == [b"[2606:4700::1]:443", PUBLIC.encode() + b":443"]
