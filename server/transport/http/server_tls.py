"""The server's side of TLS: one context from two files, replaced whole when they are renewed. A certificate that an authority
gives while the server runs is issued_tls.py's."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Protocol

import trio

from .socket_stream import PeerStream


class TlsError(Exception):
    """The certificate or the key cannot be used; `str(error)` names the file and holds no secret."""


class SecureStream(Protocol):
    """What a connection needs of `trio.SSLStream`, and its errors."""

    async def do_handshake(self) -> None: ...

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...

    async def send_all(self, data: bytes | bytearray | memoryview) -> None: ...

    async def aclose(self) -> None: ...


class Secures(Protocol):
    """Begins TLS on a connection that was accepted. The handshake is whoever's who reads from it."""

    def secured(self, wire: PeerStream) -> SecureStream: ...


def new_context() -> ssl.SSLContext:
    """Everything but the certificate."""
    # Hypercorn's create_ssl_context assigns `options` and so loses the defaults made here; we only ever add.
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # of TLS 1.2; those of 1.3 are all sound
    context.set_alpn_protocols(["http/1.1"])
    return context


class Tls:
    """Implements `Secures`. `context` is the one for the next handshake. Connections that stand keep the certificate they began with."""

    def __init__(self, certificate: Path, key: Path, *, key_password: str | None = None) -> None:
        """Raises `TlsError`."""
        self._certificate = certificate
        self._key = key
        self._key_password = key_password
        self.served = b""  # the certificates of `context`, in PEM
        self.context = self._load()

    @property
    def files(self) -> tuple[Path, Path]:
        return self._certificate, self._key

    def secured(self, wire: PeerStream) -> SecureStream:
        return trio.SSLStream(wire, self.context, server_side=True)

    def reload_tls(self) -> None:
        """Read both files again. Raises `TlsError`, and then the old certificate stays in use."""
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        context = new_context()
        try:
            # A password argument is always given: without one OpenSSL would ask for it on the terminal, and wait.
            context.load_cert_chain(self._certificate, self._key, password=self._key_password or "")
            self.served = self._certificate.read_bytes()
        except ssl.SSLError as error:
            raise TlsError(
                f"{self._certificate} and {self._key} are not a certificate and its key ({error.reason})"
            ) from None
        except OSError as error:
            raise TlsError(f"cannot read {error.filename or self._certificate}: {error.strerror}") from None
        return context
