"""Whose certificate a database server shows, when it was not accepted: for whoever has to find out why. Nothing is told to it, and nothing of
what it shows is believed.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

SECONDS: Final = 3.0
# PostgreSQL, "SSL Session Encryption": sent before anything else; one letter comes back.
_SSL_REQUEST: Final = struct.pack("!II", 8, 80_877_103)
_MOST_NAMES: Final = 3


def shown_certificate(parameters: Mapping[str, str]) -> str:
    """In words; "" where none is shown, or it cannot be read. For a thread."""
    names = parameters.get("host", "").split(",")
    places = parameters.get("hostaddr", "").split(",")
    ports = parameters.get("port", "").split(",")
    for at, name in enumerate(names):
        place = places[at] if len(places) == len(names) and places[at] else name
        port = ports[at if len(ports) == len(names) else 0] or "5432"
        try:
            return _described(_asked(place, int(port), name))
        except (OSError, ValueError):  # nobody there, no TLS, or nothing that can be read
            continue
    return ""


def _asked(place: str, port: int, name: str) -> x509.Certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((place, port), timeout=SECONDS) as plain:
        plain.sendall(_SSL_REQUEST)
        if plain.recv(1) != b"S":
            raise ValueError("no TLS")
        with context.wrap_socket(plain, server_hostname=name) as encrypted:
            return x509.load_der_x509_certificate(encrypted.getpeercert(binary_form=True) or b"")


def _described(certificate: x509.Certificate) -> str:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = [
            *extension.value.get_values_for_type(x509.DNSName),
            *map(str, extension.value.get_values_for_type(x509.IPAddress)),
        ]
    except x509.ExtensionNotFound:
        names = []
    whose = ", ".join(names[:_MOST_NAMES]) or _name(certificate.subject)
    signed = (
        "signed by itself"
        if certificate.issuer == certificate.subject
        else f"from the authority {_name(certificate.issuer)}"
    )
    ended = certificate.not_valid_after_utc
    over = f", and ran out on {ended:%Y-%m-%d}" if ended < datetime.now(UTC) else ""
    return f"the certificate is for {whose}, {signed}{over}"


def _name(name: x509.Name) -> str:
    for oid in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME):
        for attribute in name.get_attributes_for_oid(oid):
            return f'"{attribute.value}"'
    return "nobody"
