"""The server's side of TLS: one context from two files, replaced whole when they are renewed."""

from __future__ import annotations

import ssl
from pathlib import Path


class TlsError(Exception):
    """The certificate or the key cannot be used; `str(error)` names the file and holds no secret."""


class Tls:
    """`context` is the one for the next handshake. Connections that stand keep the certificate they began with."""

    def __init__(self, certificate: Path, key: Path, *, key_password: str | None = None) -> None:
        """Raises `TlsError`."""
        self._certificate = certificate
        self._key = key
        self._key_password = key_password
        self.context = self._load()

    def reload_tls(self) -> None:
        """Read both files again. Raises `TlsError`, and then the old certificate stays in use."""
        self.context = self._load()

    def _load(self) -> ssl.SSLContext:
        # Hypercorn's create_ssl_context assigns `options` and so loses the defaults made here; we only ever add.
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # of TLS 1.2; those of 1.3 are all sound
        context.set_alpn_protocols(["http/1.1"])
        try:
            # A password argument is always given: without one OpenSSL would ask for it on the terminal, and wait.
            context.load_cert_chain(self._certificate, self._key, password=self._key_password or "")
        except ssl.SSLError as error:
            raise TlsError(
                f"{self._certificate} and {self._key} are not a certificate and its key ({error.reason})"
            ) from None
        except OSError as error:
            raise TlsError(f"cannot read {error.filename or self._certificate}: {error.strerror}") from None
        return context
