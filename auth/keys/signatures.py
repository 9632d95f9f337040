"""ES256 (RFC 7518 §3.4) over compact JWS (RFC 7515 §7.1): one algorithm, made and checked. Headers are judged in tokens/verify.py.

By hand on `cryptography`: a general JOSE library brings twenty algorithms that this server must never use, and takes longer to load
than the rest of identity. The tests check every signature with such a library, as clients will.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

ALGORITHM: Final = "ES256"
_CURVE: Final = ec.SECP256R1()
_SCHEME: Final = ec.ECDSA(SHA256())
_BYTES: Final = 32  # of a coordinate, and of each half of a signature
_MEMBERS: Final = MappingProxyType(
    {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}
)

PrivateKey = ec.EllipticCurvePrivateKey


def generate() -> PrivateKey:
    return ec.generate_private_key(_CURVE)


def public_jwk(key: PrivateKey) -> dict[str, str]:
    """RFC 7518 §6.2.1: the members that make the key, and no others."""
    numbers = key.public_key().public_numbers()
    return {"crv": "P-256", "kty": "EC", "x": _number(numbers.x), "y": _number(numbers.y)}


def private_jwk(key: PrivateKey) -> dict[str, str]:
    """With the secret member; for sealing only."""
    return {**public_jwk(key), "d": _number(key.private_numbers().private_value)}


def load(jwk: Mapping[str, Any]) -> PrivateKey:
    """The key of a `private_jwk`. Raises ValueError if its members do not belong together."""
    key = ec.derive_private_key(int.from_bytes(unpack(jwk["d"]), "big"), _CURVE)
    if private_jwk(key) != dict(jwk):
        raise ValueError("the members of this key do not belong together")
    return key


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """RFC 7638, RFC 8037 §2: a name for the key that follows from the key. Raises KeyError for a kind that is not used here."""
    members = {name: jwk[name] for name in _MEMBERS[jwk["kty"]]}
    return pack(hashlib.sha256(json.dumps(members, separators=(",", ":"), sort_keys=True).encode()).digest())


def sign(signed: bytes, key: PrivateKey) -> bytes:
    """A compact JWS. `signed` is header and payload, packed and joined with a dot."""
    r, s = decode_dss_signature(key.sign(signed, _SCHEME))
    return signed + b"." + pack(r.to_bytes(_BYTES, "big") + s.to_bytes(_BYTES, "big")).encode()


def is_signed(token: str, key: PrivateKey) -> bool:
    """Whether the signature of a compact JWS is this key's. Anything but exactly 64 bytes is none."""
    signed, _, signature = token.rpartition(".")
    try:
        halves = unpack(signature)
    except ValueError:
        return False
    if len(halves) != 2 * _BYTES:
        return False
    der = encode_dss_signature(int.from_bytes(halves[:_BYTES], "big"), int.from_bytes(halves[_BYTES:], "big"))
    try:
        key.public_key().verify(der, signed.encode(), _SCHEME)
    except InvalidSignature:
        return False
    return True


def pack(data: bytes) -> str:
    """base64url without padding (RFC 7515 §2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unpack(text: str) -> bytes:
    """Only the one spelling that `pack` gives: a token has one form. Raises ValueError."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError("not base64url") from error
    if pack(data) != text:
        raise ValueError("not base64url in its one form")
    return data


def _number(value: int) -> str:
    return pack(value.to_bytes(_BYTES, "big"))
