"""The authorities whose certificates are accepted: those of the system, or of one file. They are used in tls_stream.py.

SSL_CERT_FILE and SSL_CERT_DIR stand in for the system's authorities, as they do for OpenSSL's own programs.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
from pathlib import Path
from typing import Final

# Where distributions keep one file of all authorities, for an OpenSSL that was built elsewhere and looks in vain.
_BUNDLES: Final = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
_HASHED: Final = re.compile(r"[0-9a-fA-F]{8}\.\d")  # how OpenSSL names certificates in a folder of them


def system_trust() -> ssl.SSLContext:
    """Return trust in the authorities of the system. Raises `ValueError`.

    Reading them takes tens of milliseconds, so this is called when the first address needs it."""
    if file := os.environ.get("SSL_CERT_FILE"):
        return trust_in(Path(file), named_by="SSL_CERT_FILE: ")
    if folder := os.environ.get("SSL_CERT_DIR"):
        return _http_only(ssl.create_default_context(capath=folder))
    if sys.platform in ("darwin", "win32"):
        # There the system itself judges a certificate, and OpenSSL has no authorities of its own.
        import truststore

        return _http_only(truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    file, folder = _authorities()
    if file or folder:
        context.load_verify_locations(file, folder)
    return _http_only(context)


def trust_in(file: Path, *, named_by: str = "") -> ssl.SSLContext:
    """Return trust in the authorities of this file and no others. Raises `ValueError`, which begins with `named_by`."""
    try:
        return _http_only(ssl.create_default_context(cafile=file))
    except ssl.SSLError as error:
        raise ValueError(f"{named_by}the CA file {file} holds no certificate") from error
    except OSError as error:
        raise ValueError(f"{named_by}the CA file {file} cannot be read: {error.strerror}") from error


def _authorities() -> tuple[str | None, str | None]:
    """Return (file, folder) as OpenSSL was built to look for them, or the first bundle that there is."""
    built_in = ssl.get_default_verify_paths()
    file = built_in.openssl_cafile if os.path.isfile(built_in.openssl_cafile) else None
    folder = built_in.openssl_capath if os.path.isdir(built_in.openssl_capath) else None
    if folder and not file and not any(map(_HASHED.fullmatch, os.listdir(folder))):
        folder = None
    if not file and not folder:
        file = next(filter(os.path.isfile, _BUNDLES), None)
    return file, folder


def _http_only(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_alpn_protocols(["http/1.1"])
    return context
