from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from server.lib.http_client.dialing import CONNECT_SECONDS
from server.lib.http_client.failures import (
    BadCertificate,
    ConnectTimeout,
    DeadlinePassed,
    NobodyAnswers,
    NotConnected,
    NotTls,
    TlsFailed,
    TooLarge,
    TooManyConnections,
    UnknownName,
)
from server.lib.http_client.fetch import Fetcher
from tests.agents.python.fake_agent import PATIENCE, FakeAgent, Silent, certificate, fake_agent, says
from tests.free_ports import free_port

LIMIT = 1024


def server_tls(tmp_path: Path, name: str = "localhost") -> tuple[ssl.SSLContext, Path]:
    chain, key = certificate(name)
    chain_file, key_file = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain_file.write_bytes(chain)
    key_file.write_bytes(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain_file, key_file)
    return context, chain_file


def fetcher(agent: FakeAgent, **options: Any) -> Fetcher:
    return Fetcher(agent.url, connections=options.pop("connections", 2), **options)


async def post(under_test: Fetcher, *, seconds: float = PATIENCE) -> bytes:
    deadline = trio.current_time() + seconds
    async with under_test.open(
        under_test.prepare("POST", []), b"{}", deadline=deadline, limit=LIMIT
    ) as answer:
        return await answer.read()


async def test_a_certificate_of_the_configured_authority_is_trusted(tmp_path: Path) -> None:
    tls, authority = server_tls(tmp_path)
    async with fake_agent(says(b"ok"), tls=tls) as agent:
        under_test = fetcher(agent, ca_file=authority)
        assert await post(under_test) == b"ok"
        await under_test.aclose()


async def test_a_certificate_of_an_unknown_authority_is_not_accepted(tmp_path: Path) -> None:
    tls, _ = server_tls(tmp_path)
    async with fake_agent(says(b"ok"), tls=tls) as agent:
        with pytest.raises(
            BadCertificate, match=r"^cannot be reached: its TLS certificate is not accepted \(self-signed"
        ):
            await post(fetcher(agent))
        assert agent.requests == []


async def test_a_certificate_for_another_name_is_not_accepted_and_the_name_not_shown(tmp_path: Path) -> None:
    tls, authority = server_tls(tmp_path, "elsewhere.example")
    async with fake_agent(says(b"ok"), tls=tls) as agent:
        with pytest.raises(BadCertificate) as raised:
            await post(fetcher(agent, ca_file=authority))
        assert (
            str(raised.value) == "cannot be reached: its TLS certificate is not accepted (Hostname mismatch)"
        )


async def test_an_https_address_at_which_plain_http_is_spoken_makes_no_tls_connection() -> None:
    async with fake_agent(says(b"ok")) as agent:
        agent.scheme = "https"

        async def answer_anything(stream: trio.abc.Stream, _: int = 0) -> None:
            async with stream:
                await stream.send_all(b"HTTP/1.1 400 X\r\n\r\n")

        agent.serve_connection = answer_anything  # type: ignore[method-assign]
        with pytest.raises(NotTls, match=r"^cannot be reached: no TLS connection can be made$"):
            await post(fetcher(agent))


async def test_cancelling_during_the_tls_handshake_closes_the_connection() -> None:
    came, gone = trio.Event(), trio.Event()

    async def listen_only(stream: trio.abc.Stream) -> None:
        async with stream:
            while await stream.receive_some(4096):
                came.set()
            gone.set()

    async with fake_agent(says(b"ok")) as agent:
        agent.scheme = "https"
        agent.serve_connection = listen_only  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post, fetcher(agent))
            await came.wait()
            nursery.cancel_scope.cancel()
        await gone.wait()


@pytest.mark.parametrize("content", [None, b"not a certificate"])
def test_a_ca_file_that_cannot_be_used_is_named_at_the_start(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=r"ca\.pem"):
        Fetcher("https://localhost/", connections=1, ca_file=file)


def test_an_address_that_cannot_be_called_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="must begin with http"):
        Fetcher("file:///etc/passwd", connections=1)


async def test_a_call_waits_for_a_free_connection_but_not_for_ever() -> None:
    silent = Silent()
    async with fake_agent(silent) as agent:
        under_test = fetcher(agent, connections=1, slot_seconds=0.01)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post, under_test)
            await silent.came.wait()
            with pytest.raises(TooManyConnections, match=r"^is busy: 1 call is running$"):
                await post(under_test)
            nursery.cancel_scope.cancel()
        agent.handler = says(b"ok")
        assert await post(under_test) == b"ok"
        await under_test.aclose()


async def test_cancelled_calls_give_their_connections_back_whenever_they_are_cancelled() -> None:
    async with fake_agent(says(b"ok")) as agent:
        under_test = fetcher(agent, connections=1)
        for steps in range(40):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(post, under_test)
                    for _ in range(steps):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
        assert await post(under_test) == b"ok"
        await under_test.aclose()


async def test_the_deadline_covers_what_is_done_with_the_answer() -> None:
    async with fake_agent(says(b"ok")) as agent:
        under_test = fetcher(agent)

        async def linger() -> None:
            deadline = trio.current_time() + 0.5
            async with under_test.open(
                under_test.prepare("POST", []), b"", deadline=deadline, limit=LIMIT
            ) as answer:
                assert answer.status == 200
                await trio.sleep_forever()

        with pytest.raises(DeadlinePassed):
            await linger()
        assert await post(under_test) == b"ok"
        await under_test.aclose()


async def test_an_answer_is_cut_off_at_the_limit() -> None:
    async with fake_agent(says(b"x" * (LIMIT + 1))) as agent:
        with pytest.raises(TooLarge, match=r"^answered with more than 1 KiB$"):
            await post(fetcher(agent))


async def test_a_connection_that_cannot_be_made_is_tried_three_times_and_the_request_sent_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = 0
    connect: Any = trio.open_tcp_stream

    async def third_time(*arguments: Any, **named: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise OSError("all attempts failed") from ConnectionRefusedError()
        return await connect(*arguments, **named)

    monkeypatch.setattr(trio, "open_tcp_stream", third_time)
    async with fake_agent(says(b"ok")) as agent:
        under_test = fetcher(agent, pauses=(0, 0))
        assert await post(under_test) == b"ok"
        assert attempts == 3
        assert len(agent.requests) == 1
        await under_test.aclose()


async def test_a_name_that_leads_nowhere_is_told_from_an_address_where_nobody_answers() -> None:
    async def problem(url: str) -> type[BaseException]:
        with pytest.raises(NotConnected) as raised:
            await Fetcher(url, connections=1, pauses=()).reach(deadline=trio.current_time() + PATIENCE)
        return raised.type

    assert await problem(f"http://localhost:{free_port()}") is NobodyAnswers
    assert await problem("http://nobody.invalid") is UnknownName
    assert await problem(f"http://{'a' * 70}.example") is UnknownName


async def test_whoever_answers_nothing_or_hangs_up_in_the_handshake_is_told_apart(
    mock_clock: trio.testing.MockClock,
) -> None:
    came = trio.Event()

    async def silent(stream: trio.abc.Stream) -> None:
        await stream.receive_some(1)
        came.set()
        await trio.sleep_forever()

    async def hangs_up(stream: trio.abc.Stream) -> None:
        await stream.receive_some(1)
        await stream.aclose()

    async with fake_agent(says(b"ok")) as agent, trio.open_nursery() as nursery:
        agent.scheme = "https"
        agent.serve_connection = hangs_up  # type: ignore[method-assign]
        with pytest.raises(TlsFailed) as raised:
            await post(fetcher(agent))
        assert raised.type is TlsFailed
        agent.serve_connection = silent  # type: ignore[method-assign]

        async def wait() -> None:
            await came.wait()
            mock_clock.jump(CONNECT_SECONDS)

        nursery.start_soon(wait)
        with pytest.raises(ConnectTimeout):
            await post(fetcher(agent), seconds=10 * CONNECT_SECONDS)


async def test_neither_credentials_nor_a_proxy_to_this_machine_are_taken_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    (tmp_path / ".netrc").write_text("machine localhost login a password b")
    monkeypatch.setenv("HOME", str(tmp_path))
    async with fake_agent(says(b"ok")) as agent:
        under_test = fetcher(agent)
        assert await post(under_test) == b"ok"
        assert "authorization" not in agent.requests[0].headers
        await under_test.aclose()


async def test_an_idle_connection_that_the_server_has_closed_is_not_used_again() -> None:
    closed = trio.Event()

    async with fake_agent(says(b"ok")) as agent:
        serve = agent.serve_connection

        async def one_request_each(stream: trio.abc.Stream) -> None:
            async def handler(exchange: Any) -> None:
                await exchange.reply(b"ok")
                await stream.aclose()
                closed.set()

            agent.handler = handler
            await serve(stream)

        agent.serve_connection = one_request_each  # type: ignore[method-assign]
        under_test = fetcher(agent)
        assert await post(under_test) == b"ok"
        await closed.wait()
        assert await post(under_test) == b"ok"
        assert agent.connections == 2
        await under_test.aclose()
