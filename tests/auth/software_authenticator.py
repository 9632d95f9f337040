"""An authenticator made of software: what a phone or a security key answers, byte by byte, and every way to answer wrongly."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

UP, UV, AT = 0x01, 0x04, 0x40


def text_of(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def bytes_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def cbor(value: Any) -> bytes:
    """As much of CBOR as an attestation needs, written down here so that no library checks itself."""

    def head(kind: int, count: int) -> bytes:
        if count < 24:
            return bytes([kind << 5 | count])
        if count < 256:
            return bytes([kind << 5 | 24, count])
        return bytes([kind << 5 | 25]) + struct.pack(">H", count)

    match value:
        case int():
            return head(0, value) if value >= 0 else head(1, -1 - value)
        case bytes():
            return head(2, len(value)) + value
        case str():
            return head(3, len(value)) + value.encode()
        case dict():
            return head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())
        case _:
            raise TypeError(type(value))


@dataclass(kw_only=True)
class SoftwareAuthenticator:
    """One credential. Attributes may be changed between answers, to lie."""

    origin: str
    rp_id: str
    credential_id: bytes = b"credential-of-a-test"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    count: int = 0
    counts: bool = True
    flags: int = UP | UV
    user_handle: bytes = b""
    client_data: dict[str, Any] = field(default_factory=dict[str, Any])  # laid over what would be said
    algorithm: int = -7

    def make(self, options: dict[str, Any]) -> str:
        """The answer to `navigator.credentials.create`."""
        self.user_handle = bytes_of(options["user"]["id"])
        attestation = cbor({"fmt": "none", "attStmt": {}, "authData": self._data(with_key=True)})
        return self._answer(
            attestationObject=text_of(attestation),
            clientDataJSON=text_of(self._client_data("webauthn.create", options["challenge"])),
        )

    def answer(self, options: dict[str, Any]) -> str:
        """The answer to `navigator.credentials.get`."""
        if self.counts:
            self.count += 1
        said = self._client_data("webauthn.get", options["challenge"])
        data = self._data()
        signature = self.key.sign(data + hashlib.sha256(said).digest(), ec.ECDSA(SHA256()))
        return self._answer(
            authenticatorData=text_of(data),
            clientDataJSON=text_of(said),
            signature=text_of(signature),
            userHandle=text_of(self.user_handle),
        )

    def _answer(self, **response: str) -> str:
        return json.dumps({"type": "public-key", "rawId": text_of(self.credential_id), "response": response})

    def _client_data(self, kind: str, challenge: str) -> bytes:
        said = {"type": kind, "challenge": challenge, "origin": self.origin, "crossOrigin": False}
        return json.dumps(said | self.client_data).encode()

    def _data(self, *, with_key: bool = False) -> bytes:
        flags = self.flags | (AT if with_key else 0)
        data = hashlib.sha256(self.rp_id.encode()).digest() + struct.pack(">BI", flags, self.count)
        if with_key:
            numbers = self.key.public_key().public_numbers()
            cose = {1: 2, 3: self.algorithm, -1: 1, -2: numbers.x.to_bytes(32), -3: numbers.y.to_bytes(32)}
            data += bytes(16) + struct.pack(">H", len(self.credential_id)) + self.credential_id + cbor(cose)
        return data
