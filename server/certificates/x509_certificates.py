"""Certificates and their keys: made, asked for, read, and the one that proves a name (RFC 8737 §3). Never judged by whom they are: that is
for those who connect.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID, ObjectIdentifier

from auth.jose.base64url import pack
from auth.jose.es256 import PrivateKey

# id-pe-acmeIdentifier (RFC 8737 §3): the digest of a key authorization, as an octet string.
_ACME_IDENTIFIER: Final = ObjectIdentifier("1.3.6.1.5.5.7.1.31")
_OCTETS_32: Final = b"\x04\x20"
_PROOF_LIFE: Final = timedelta(days=1)


class BadChain(Exception):
    """What came is not the certificate that was asked for. The text continues a sentence about it."""


class CertificateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Of one certificate. Times are seconds since 1970."""

    names: tuple[str, ...]
    not_before: float
    not_after: float
    issuer: str
    serial: str  # hexadecimal
    fingerprint: str  # SHA-256
    renewal_id: str = ""  # RFC 9773 §4.1; empty where the certificate does not say whose it is

    @property
    def lifetime(self) -> float:
        return max(self.not_after - self.not_before, 1.0)


def new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: PrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def key_of(pem: str) -> PrivateKey:
    """Raises `ValueError`."""
    key = load_pem_private_key(pem.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("not a key of P-256")
    return key


def request_for(names: Sequence[str], key: PrivateKey) -> str:
    """A CSR as an order is finalized with it (RFC 8555 §7.4)."""
    # Without a subject: names are longer than a common name may be, and nobody reads it.
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
    )
    return pack(builder.sign(key, SHA256()).public_bytes(Encoding.DER))


def facts_of(chain_pem: bytes) -> CertificateFacts:
    """Of the first certificate. Raises `BadChain`."""
    try:
        leaf = x509.load_pem_x509_certificate(chain_pem)
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = tuple(extension.value.get_values_for_type(x509.DNSName))
        issuer = _name_of(leaf.issuer)
        renewal_id = _renewal_id(leaf)
    except x509.ExtensionNotFound:
        raise BadChain("is for no name at all") from None
    except ValueError:
        raise BadChain("cannot be read") from None
    return CertificateFacts(
        names=names,
        not_before=leaf.not_valid_before_utc.timestamp(),
        not_after=leaf.not_valid_after_utc.timestamp(),
        issuer=issuer,
        serial=f"{leaf.serial_number:x}",
        fingerprint=leaf.fingerprint(SHA256()).hex(),
        renewal_id=renewal_id,
    )


def checked(chain_pem: bytes, key: PrivateKey, names: Sequence[str]) -> CertificateFacts:
    """Of a chain that came for this key and these names. Raises `BadChain`."""
    facts = facts_of(chain_pem)
    if x509.load_pem_x509_certificate(chain_pem).public_key() != key.public_key():
        raise BadChain("is for another key")
    if not set(names) <= {name.lower() for name in facts.names}:
        raise BadChain("is not for all the names that were asked for")
    return facts


def der_of(chain_pem: bytes) -> bytes:
    """The first certificate. Raises `BadChain`."""
    try:
        return x509.load_pem_x509_certificate(chain_pem).public_bytes(Encoding.DER)
    except ValueError:
        raise BadChain("cannot be read") from None


def proof_context(name: str, key_authorization: str) -> ssl.SSLContext:
    """What an authority is shown that looks at `name` (RFC 8737 §3): a certificate by itself, for this name alone."""
    key = new_key()
    digest = hashlib.sha256(key_authorization.encode()).digest()
    now = datetime.now(UTC)
    whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "acme challenge")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(whose)
        .issuer_name(whose)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The authority does not look at the times.
        .not_valid_before(now - _PROOF_LIFE)
        .not_valid_after(now + _PROOF_LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.UnrecognizedExtension(_ACME_IDENTIFIER, _OCTETS_32 + digest), critical=True)
        .sign(key, SHA256())
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["acme-tls/1"])
    load_pem(context, certificate.public_bytes(Encoding.PEM), key_pem(key).encode())
    return context


def load_pem(context: ssl.SSLContext, chain_pem: bytes, key: bytes) -> None:
    """OpenSSL reads files alone; in memory nothing of it ever lies on a disk. Raises `ssl.SSLError` and `OSError`."""
    with _as_file(chain_pem) as chain_file, _as_file(key) as key_file:
        # A password argument is always given: without one OpenSSL would ask for it on the terminal, and wait.
        context.load_cert_chain(chain_file, key_file, password="")


@contextmanager
def _as_file(content: bytes) -> Generator[str]:
    memory = getattr(os, "memfd_create", None)  # of Linux
    if memory is not None:
        reader = memory("pem", os.MFD_CLOEXEC)
        writer = os.dup(reader)
    else:
        reader, writer = os.pipe()  # which has room for far more than this
    try:
        try:
            os.write(writer, content)
        finally:
            os.close(writer)
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)


def _name_of(name: x509.Name) -> str:
    parts = {attribute.oid: str(attribute.value) for attribute in name}
    said = [parts[oid] for oid in (NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME) if oid in parts]
    return " ".join(said)[:200] or "somebody without a name"


def _renewal_id(leaf: x509.Certificate) -> str:
    try:
        key_id = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    except x509.ExtensionNotFound:
        return ""
    if not key_id:
        return ""
    serial = leaf.serial_number
    # As DER has it: with a zero in front where the first bit would make it negative.
    return f"{pack(key_id)}.{pack(serial.to_bytes(serial.bit_length() // 8 + 1, 'big'))}"
