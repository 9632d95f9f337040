"""server/transport/http/issued_tls.py: certificates that come and change while the server listens, and an authority that looks at a name."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest
import trio
import trio.testing
from loopback_server import GOOD, PATIENCE, Echo, Peer, Running, running, time_passes

from server.certificates.certificate_troubles import TLS_ALPN
from server.certificates.name_proofs import Proofs
from server.transport.http.connection_limits import HttpLimits
from server.transport.http.issued_tls import IssuedTls
from server.transport.http.server_tls import TlsError
from tests.certificates.fake_authority import fit_proof, proof_client
from tests.made_certificates import trusting, write_certificate

NAME = "localhost"
AUTHORIZED = "token.thumbprint"


def in_one_file(directory: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    certificate, key = write_certificate(directory, name)
    both = directory / f"{name}.pem"
    both.write_bytes(b"# from https://ca.test/directory\n" + key.read_bytes() + certificate.read_bytes())
    return both, trusting(certificate)


async def proof_at(server: Running, name: str = NAME) -> bytes:
    """What is shown to whoever speaks the authority's protocol; raises where nothing is."""
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with trio.SSLStream(stream, proof_client(), server_hostname=name) as secure:
        with trio.fail_after(PATIENCE):
            await secure.do_handshake()
            assert secure.selected_alpn_protocol() == "acme-tls/1"
            shown = secure.getpeercert(binary_form=True)
            assert await secure.receive_some(1) == b"", "after the handshake nothing is said (RFC 8737 §3)"
        return shown


async def test_before_there_is_a_certificate_whoever_comes_is_told_so_and_the_first_one_is_taken_at_once(
    tmp_path: Path,
) -> None:
    tls = IssuedTls(Proofs())
    file, trust = in_one_file(tmp_path, "one")
    async with running(Echo(), tls=tls) as server:
        async with await server.connect() as peer:
            client = trust.wrap_bio(ssl.MemoryBIO(), hello := ssl.MemoryBIO(), server_hostname=NAME)
            with pytest.raises(ssl.SSLWantReadError):
                client.do_handshake()
            await peer.send(hello.read())
            assert await peer.to_end() == b"\x15\x03\x03\x00\x02\x02\x70"  # unrecognized_name, fatal
        with pytest.raises(trio.BrokenResourceError):
            await server.connect(tls=trust)
        tls.take(file)
        async with await server.connect(tls=trust) as peer:
            assert (await peer.ask(GOOD)).status == 200
        assert server.events() == []


async def test_an_authority_is_shown_the_proof_and_everybody_else_the_certificate(tmp_path: Path) -> None:
    proofs = Proofs()
    tls = IssuedTls(proofs)
    file, trust = in_one_file(tmp_path, "one")
    tls.take(file)
    async with running(Echo(), tls=tls) as server:
        async with proofs.shown():
            await proofs.show(TLS_ALPN, NAME, "token", AUTHORIZED)
            assert fit_proof(await proof_at(server), NAME, AUTHORIZED)
            assert proofs.was_seen(NAME)
            async with await server.connect(tls=trust) as peer:
                assert (await peer.ask(GOOD)).status == 200
                assert (await peer.ask(GOOD)).status == 200
            with pytest.raises(trio.BrokenResourceError):
                await proof_at(server, "another.example")
        async with await server.connect(tls=trust) as peer:
            assert (await peer.ask(GOOD)).status == 200
        assert server.events() == []


async def test_a_client_that_says_hello_in_small_pieces_is_heard_out(tmp_path: Path) -> None:
    proofs = Proofs()
    tls = IssuedTls(proofs)
    async with proofs.shown():
        await proofs.show(TLS_ALPN, NAME, "token", AUTHORIZED)
        async with running(Echo(), tls=tls) as server, await server.connect() as peer:
            answers, hello = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = proof_client().wrap_bio(answers, hello, server_hostname=NAME)
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    for byte in hello.read():
                        await peer.send(bytes([byte]))
                    assert await peer.more()
                    answers.write(peer.buffer)
                    peer.buffer = b""
            shown = client.getpeercert(binary_form=True)
            assert shown is not None
            assert fit_proof(shown, NAME, AUTHORIZED)


async def test_what_is_not_tls_or_says_nothing_is_not_waited_for_and_ends_nothing(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    tls = IssuedTls(Proofs())
    limits = HttpLimits(tick_seconds=0.02, handshake_seconds=0.1)
    async with running(Echo(), limits, tls=tls) as server:
        for sent in (
            GOOD,
            b"\x16\x03\x01\x00\x05hello",
            b"\x00" * 1000,
            b"\x16\x03\x01\x00\x00",
            b"\x16\x03",
            b"",
        ):
            async with await server.connect() as peer:
                if sent:
                    await peer.send(sent)
                async with time_passes(mock_clock):
                    assert await peer.to_end() == b""
        huge = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + b"x" * (0x4000 - 4)
        async with await server.connect() as peer:
            for _ in range(8):
                with contextlib.suppress(trio.BrokenResourceError):
                    await peer.send(huge)
            async with time_passes(mock_clock):
                assert await peer.to_end() == b""
        file, trust = in_one_file(tmp_path, "one")
        tls.take(file)
        async with await server.connect(tls=trust) as peer:
            assert (await peer.ask(GOOD)).status == 200
        assert server.events() == []


async def test_a_file_that_will_not_do_keeps_what_is_served(tmp_path: Path) -> None:
    tls = IssuedTls(Proofs())
    file, trust = in_one_file(tmp_path, "one")
    tls.take(file)
    (tmp_path / "bad.pem").write_text("-----BEGIN CERTIFICATE-----\nx\n", "ascii")
    for bad in (tmp_path / "bad.pem", tmp_path / "missing.pem"):
        with pytest.raises(TlsError, match=bad.name):
            tls.take(bad)
    async with running(Echo(), tls=tls) as server, await server.connect(tls=trust) as peer:
        assert isinstance(peer, Peer)
        assert (await peer.ask(GOOD)).status == 200
