"""server/transport/http/server_tls.py and TLS connections."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from loopback_server import GOOD, Echo, respond, running, time_passes, until

from server.transport.http.connection_limits import HttpLimits
from server.transport.http.server_tls import Tls, TlsError
from tests.made_certificates import trusting, write_certificate


async def test_a_tls_client_is_served_over_one_connection_and_the_scheme_says_https(tmp_path: Path) -> None:
    app = Echo()
    certificate, key = write_certificate(tmp_path, "one")
    async with running(app, tls=Tls(certificate, key)) as server:
        assert server.urls[0] == f"https://127.0.0.1:{server.port}"
        async with await server.connect(tls=trusting(certificate)) as peer:
            for _ in range(2):
                assert (await peer.ask(GOOD)).body == b"POST /good hi"
        assert app.scopes[0]["scheme"] == "https"


async def test_a_client_that_offers_h2_too_gets_http_1_1(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "one")
    async with (
        running(Echo(), tls=Tls(certificate, key)) as server,
        await server.connect(tls=trusting(certificate, alpn=("h2", "http/1.1"))) as peer,
    ):
        assert isinstance(peer.stream, trio.SSLStream)
        assert peer.stream.selected_alpn_protocol() == "http/1.1"
        assert (await peer.ask(GOOD)).status == 200


async def test_the_end_of_a_connection_is_announced_so_that_a_cut_can_be_told_from_it(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "one")
    async with (
        running(Echo(), tls=Tls(certificate, key)) as server,
        await server.connect(tls=trusting(certificate)) as peer,
    ):
        await peer.ask(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        with trio.fail_after(60):
            assert await peer.stream.receive_some(10) == b""  # close_notify; a bare end raises


async def test_old_tls_plain_http_and_garbage_are_refused_and_the_server_lives(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "one")
    tls = Tls(certificate, key)
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    defaults = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).options
    assert tls.context.options & defaults == defaults
    async with running(Echo(), tls=tls) as server:
        for sent in (GOOD, b"\x16\x03\x01\x00\x05hello", b"\x00" * 1000):
            async with await server.connect() as peer:
                await peer.send(sent)
                await peer.to_end()
        old = trusting(certificate)
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(trio.BrokenResourceError):
            await server.connect(tls=old)
        async with await server.connect(tls=trusting(certificate)) as peer:
            assert (await peer.ask(GOOD)).status == 200
        assert server.events() == []


async def test_a_handshake_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "one")
    limits = HttpLimits(tick_seconds=0.02, handshake_seconds=0.1)
    async with running(Echo(), limits, tls=Tls(certificate, key)) as server, await server.connect() as peer:
        assert await peer.to_end() == b""
        assert server.counters.late == 1


async def test_reloading_serves_the_new_certificate_to_new_connections_and_keeps_the_old_ones(
    tmp_path: Path,
) -> None:
    certificate, key = write_certificate(tmp_path, "one")
    tls = Tls(certificate, key)
    async with running(Echo(), tls=tls) as server:
        first = trusting(certificate)
        async with await server.connect(tls=first) as before:
            await before.ask(GOOD)
            write_certificate(tmp_path, "two")
            tls.reload_tls()
            async with await server.connect(tls=trusting(certificate)) as after:
                assert (await after.ask(GOOD)).status == 200
                assert isinstance(after.stream, trio.SSLStream)
                assert dict(after.stream.getpeercert()["subject"][0])["commonName"] == "two"
            with pytest.raises(trio.BrokenResourceError):
                await server.connect(tls=first)
            assert (await before.ask(GOOD)).status == 200


async def test_a_reload_that_fails_changes_nothing(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "one")
    tls = Tls(certificate, key)
    context = trusting(certificate)
    key.write_text("not a key")
    with pytest.raises(TlsError):
        tls.reload_tls()
    async with running(Echo(), tls=tls) as server, await server.connect(tls=context) as peer:
        assert (await peer.ask(GOOD)).status == 200


def test_files_that_cannot_be_used_are_named_and_nothing_asks_for_a_passphrase(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "one", password=b"correct")
    Tls(certificate, key, key_password="correct")
    for password in (None, "wrong"):
        with pytest.raises(TlsError) as refused:
            Tls(certificate, key, key_password=password)
        assert "wrong" not in str(refused.value)
    with pytest.raises(TlsError, match=r"missing\.pem"):
        Tls(tmp_path / "missing.pem", key)


async def test_a_stalled_tls_reader_is_cut_and_a_slow_one_is_not(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    certificate, key = write_certificate(tmp_path, "one")
    size = 4_000_000

    async def app(scope: Any, receive: Any, send: Any) -> None:
        return await respond(send, 200, b"x" * size)

    limits = HttpLimits(tick_seconds=0.02, write_stall_seconds=0.5)
    async with (
        running(app, limits, tls=Tls(certificate, key)) as server,
        await server.connect(tls=trusting(certificate), receive_buffer=65536) as slow,
    ):
        await slow.send(GOOD)
        async with await server.connect(tls=trusting(certificate), receive_buffer=4096) as stalled:
            await stalled.send(GOOD)
            received = 0
            with trio.fail_after(60):
                while received < size:
                    data = await slow.stream.receive_some(65536)
                    assert data, "cut"
                    received += len(data)
                    await trio.testing.wait_all_tasks_blocked()
                    mock_clock.jump(0.01)
            async with time_passes(mock_clock):
                await until(lambda: server.counters.stalled == 1)


async def test_an_early_refusal_of_an_upload_can_be_read_over_tls(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "one")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/good":
            return await Echo()(scope, receive, send)
        return await respond(send, 401, b"no")

    async with (
        running(app, tls=Tls(certificate, key)) as server,
        await server.connect(tls=trusting(certificate)) as peer,
    ):
        await peer.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        for _ in range(20):
            await peer.send(b"x" * 50_000)
        assert (await peer.answer()).status == 401
