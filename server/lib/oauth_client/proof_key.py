"""The key of a login whose tokens are bound to one (DPoP, RFC 9449): kept beside them, and proven with every request.

A token that is caught on its way is then worth nothing. One that is printed for a script is not either, which is why a login
has a key only where that was asked for.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from server.lib.http_client.response_head import ResponseHead
from server.lib.oauth_client.addresses import origin
from server.lib.oauth_client.challenge import wants_nonce
from server.lib.secret import Secret

# The RFC demands none of servers; this is the one that all of them have.
ALGORITHM: Final = "ES256"
NONCE_HEADER: Final = "dpop-nonce"
# RFC 9449 §8.1: what may go into a proof as it came.
MAX_NONCE: Final = 512
_BYTES: Final = 32

Millis = int


class UnusableKey(ValueError):
    """The error of a stored key that cannot be read."""


class ProofKey:
    def __init__(self, key: Any) -> None:
        self._key = key

    @classmethod
    def new(cls) -> ProofKey:
        from cryptography.hazmat.primitives.asymmetric import ec  # not free to load, and seldom needed

        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def of(cls, kept: Secret) -> ProofKey:
        """Return the key that was stored. Raise `UnusableKey`."""
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            return cls(ec.derive_private_key(int(kept.reveal(), 16), ec.SECP256R1()))
        except ValueError as error:
            raise UnusableKey from error

    @property
    def kept(self) -> Secret:
        """The private key as the token file has it."""
        return Secret(f"{self._key.private_numbers().private_value:064x}")

    @property
    def jwk(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        return {"crv": "P-256", "kty": "EC", "x": _pack_number(numbers.x), "y": _pack_number(numbers.y)}

    @property
    def thumbprint(self) -> str:
        return _hash(msgspec.json.encode(self.jwk))  # RFC 7638: these members, in this order

    def proof(
        self, method: str, url: str, *, now: Millis, token: str | None = None, nonce: str | None = None
    ) -> str:
        """Return a proof for one request (§4.2)."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": urlsplit(url)._replace(query="", fragment="").geturl(),
            "iat": now // 1000,
        }
        if token is not None:
            claims["ath"] = _hash(token.encode())
        if nonce is not None:
            claims["nonce"] = nonce
        header = {"typ": "dpop+jwt", "alg": ALGORITHM, "jwk": self.jwk}
        signed = f"{_pack(msgspec.json.encode(header))}.{_pack(msgspec.json.encode(claims))}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        return f"{signed}.{_pack(r.to_bytes(_BYTES, 'big') + s.to_bytes(_BYTES, 'big'))}"


class BoundToken(Secret):
    """An access token that counts only with a proof of its key. `nonces`: what servers want to find in it, by origin."""

    __slots__ = ("_key", "_nonces", "_now")

    def __init__(
        self, text: str, key: ProofKey, *, now: Callable[[], Millis], nonces: dict[str, str]
    ) -> None:
        super().__init__(text)
        self._key = key
        self._now = now
        self._nonces = nonces

    def headers(self, method: str, url: str) -> dict[str, str]:
        token, nonce = self.reveal(), self._nonces.get(origin(url))
        proof = self._key.proof(method, url, now=self._now(), token=token, nonce=nonce)
        return {"Authorization": f"DPoP {token}", "DPoP": proof}

    def learn(self, url: str, nonce: str) -> bool:
        """Remember the nonce that a server wants. Return False for one that was known, which is no reason to try again."""
        known = self._nonces.get(origin(url))
        self._nonces[origin(url)] = nonce
        return known != nonce


def headers_of(token: Secret | None, method: str, url: str) -> dict[str, str]:
    """Return the headers in which a request shows this token."""
    if token is None:
        return {}
    if isinstance(token, BoundToken):
        return token.headers(method, url)
    return {"Authorization": f"Bearer {token.reveal()}"}


def only_wants_nonce(token: Secret | None, url: str, head: ResponseHead) -> bool:
    """Return whether a 401 asks for nothing but another nonce (§9), which the next proof then has."""
    nonce = read_nonce(head)
    return (
        isinstance(token, BoundToken)
        and nonce is not None
        and wants_nonce(head.values(b"www-authenticate"))
        and token.learn(url, nonce)
    )


def read_nonce(head: ResponseHead) -> str | None:
    return usable_nonce(head.value(NONCE_HEADER.encode()))


def usable_nonce(nonce: str) -> str | None:
    """Return a nonce that can go into a proof, or None."""
    # §8.1: printable, without quotes and backslashes.
    good = 0 < len(nonce) <= MAX_NONCE and all("!" <= c <= "~" and c not in '"\\' for c in nonce)
    return nonce if good else None


def _hash(data: bytes) -> str:
    return _pack(hashlib.sha256(data).digest())


def _pack(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _pack_number(value: int) -> str:
    return _pack(value.to_bytes(_BYTES, "big"))
