"""ES256 (RFC 7518 §3.4) over compact JWS (RFC 7515 §7.1): one algorithm, made and checked. Tokens are taken apart
in jws.py, and their headers judged by whoever reads them.

By hand on `cryptography`: a general JOSE library brings twenty algorithms that this server must never use, and takes longer to load
than the rest of identity. The tests check every signature with such a library, as clients will.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from auth.jose.base64url import pack, unpack

ALGORITHM: Final = "ES256"
_CURVE: Final = ec.SECP256R1()
_SCHEME: Final = ec.ECDSA(SHA256())
_BYTES: Final = 32  # of a coordinate, and of each half of a signature

PrivateKey = ec.EllipticCurvePrivateKey
PublicKeyEC = ec.EllipticCurvePublicKey


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


def sign(signed: bytes, key: PrivateKey) -> bytes:
    """A compact JWS. `signed` is header and payload, packed and joined with a dot."""
    r, s = decode_dss_signature(key.sign(signed, _SCHEME))
    return signed + b"." + pack(r.to_bytes(_BYTES, "big") + s.to_bytes(_BYTES, "big")).encode()


def is_signed(token: str, key: PrivateKey) -> bool:
    """Whether the signature of a compact JWS is this key's. Anything but exactly 64 bytes is none."""
    signed, _, signature = token.rpartition(".")
    try:
        return verifies(key.public_key(), signed.encode(), unpack(signature))
    except ValueError:
        return False


def verifies(key: PublicKeyEC, signed: bytes, signature: bytes) -> bool:
    """Whether `signature` over `signed` is this key's: r and s side by side (§3.4), never DER."""
    if len(signature) != 2 * _BYTES:
        return False
    r, s = int.from_bytes(signature[:_BYTES], "big"), int.from_bytes(signature[_BYTES:], "big")
    try:
        key.verify(encode_dss_signature(r, s), signed, _SCHEME)
    except InvalidSignature:
        return False
    return True


def _number(value: int) -> str:
    return pack(value.to_bytes(_BYTES, "big"))
