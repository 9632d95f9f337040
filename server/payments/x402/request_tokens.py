"""A token for each request to a facilitator that wants one, as Coinbase's does: a JWT that is good for one method at one address, for a minute.

Signed with the key that the facilitator gave out: of P-256 (ES256), or of Ed25519 (EdDSA). How such a key is written and what the token says:
docs.cdp.coinbase.com, "JWT authentication". RFC 7515, RFC 7519, RFC 8037.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

# Twice as long would be taken; a clock of ours that is behind by less than this does no harm, and one that is ahead by so much neither.
TOKEN_SECONDS: Final = 60
EARLY_SECONDS: Final = 30
NONCE_BYTES: Final = 16
MOST_ID_CHARACTERS: Final = 300
ISSUER: Final = "cdp"
_SEED_BYTES: Final = 32
_COORDINATE_BYTES: Final = 32
_encode: Final = msgspec.json.Encoder().encode
_NO_KEY: Final = "is neither a private key in PEM, of P-256 or Ed25519, nor the base64 of one of Ed25519"


class RequestTokens:
    """Of one key."""

    def __init__(
        self, key_id: str, secret: str, *, clock: Callable[[], int], entropy: Callable[[int], bytes]
    ) -> None:
        """`clock` tells milliseconds since 1970. Raises `ValueError`, whose text continues a sentence about the key and repeats nothing
        of it."""
        if not (0 < len(key_id) <= MOST_ID_CHARACTERS and key_id.isprintable()):
            raise ValueError("has an id that is none")
        self._key_id = key_id
        self._key = _key_in(secret)
        self._clock = clock
        self._entropy = entropy

    def __repr__(self) -> str:
        return "<RequestTokens>"

    def token(self, method: str, host: str, path: str) -> str:
        """For one request: `host` as its header has it, `path` without a query."""
        now = self._clock() // 1000
        uri = f"{method} {host}{path}"
        header = {
            "alg": "ES256" if isinstance(self._key, ec.EllipticCurvePrivateKey) else "EdDSA",
            "typ": "JWT",
            "kid": self._key_id,
            "nonce": self._entropy(NONCE_BYTES).hex(),
        }
        claims = {
            "iss": ISSUER,
            "sub": self._key_id,
            "iat": now,
            "nbf": now - EARLY_SECONDS,
            "exp": now + TOKEN_SECONDS,
            # By either name: the documents have the first, newer programs the second.
            "uri": uri,
            "uris": [uri],
        }
        signed = f"{_pack(_encode(header))}.{_pack(_encode(claims))}"
        return f"{signed}.{_pack(self._signature(signed.encode()))}"

    def _signature(self, signed: bytes) -> bytes:
        if isinstance(self._key, Ed25519PrivateKey):
            return self._key.sign(signed)
        r, s = decode_dss_signature(self._key.sign(signed, ec.ECDSA(SHA256())))
        return r.to_bytes(_COORDINATE_BYTES, "big") + s.to_bytes(_COORDINATE_BYTES, "big")


def _key_in(secret: str) -> ec.EllipticCurvePrivateKey | Ed25519PrivateKey:
    """A variable of the environment often has its line ends written out."""
    text = secret.replace("\\n", "\n").strip()
    if text.startswith("-----BEGIN"):
        return _pem_key(text)
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(_NO_KEY) from None
    if len(raw) not in (_SEED_BYTES, 2 * _SEED_BYTES):
        raise ValueError(_NO_KEY)
    key = Ed25519PrivateKey.from_private_bytes(raw[:_SEED_BYTES])
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    if raw[_SEED_BYTES:] not in (b"", public):
        raise ValueError("has two halves that do not belong together")
    return key


def _pem_key(text: str) -> ec.EllipticCurvePrivateKey | Ed25519PrivateKey:
    try:
        key = load_pem_private_key(text.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError(_NO_KEY) from None
    if isinstance(key, Ed25519PrivateKey):
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    raise ValueError(_NO_KEY)


def _pack(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")
