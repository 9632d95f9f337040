"""A self-signed certificate for loopback, and a client that trusts it; and an authority that issues them for names."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificate(
    directory: Path,
    name: str,
    *,
    password: bytes | None = None,
    host: str = "localhost",
    others: Sequence[str] = (),
    ends_in_hours: float = 1,
) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(hours=ends_in_hours))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(each) for each in (host, *others)]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    certificate_file, key_file = directory / "cert.pem", directory / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    return certificate_file, key_file


class Authority:
    """Its own certificate is in `file`."""

    def __init__(self, directory: Path, name: str = "an authority of the tests") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._issued = 0
        self.file = directory / "authority.pem"
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self.file.write_bytes(_pem(self._signed(self._name, self._key.public_key(), basic)))

    def issue(self, host: str) -> tuple[Path, Path]:
        """Certificate and key."""
        self._issued += 1
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        files = (
            self._directory / f"issued-{self._issued}.pem",
            self._directory / f"issued-{self._issued}.key",
        )
        files[0].write_bytes(_pem(self._signed(subject, key.public_key(), names)))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=2))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
            .sign(self._key, hashes.SHA256())
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def trusting(certificate: Path, *, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificate))
    if alpn:
        context.set_alpn_protocols(alpn)
    return context
