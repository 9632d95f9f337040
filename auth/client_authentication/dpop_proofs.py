"""DPoP (RFC 9449): tokens that are bound to a key, and the proof, one for each request, that its sender has that key.

    DPoP: <a JWT, signed by the key in its own header, about this method and this address, now, once>

A proof at /token or /par counts once in the store; one at a resource once in this process, since a write for every call would
cost more than the call, and where there are others once among all of them (auth/tokens/dpop_replays.py). What counted in a process that was alone
and ran before this one is not known: a proof that may be so old needs a `nonce` (§8, §9), which says when it was made by our clock. From
all others none is demanded: it would cost every client a second round trip, and a proof is good for a minute at most. Whether a token is
bound, and to what, is auth/tokens/access_token_verifier.py's.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from typing import Any, Final

import msgspec

from auth.clients import client_registry as clients
from auth.jose import jws
from auth.jose.base64url import pack, unpack
from auth.jose.jws import BadJws, number_in, text_in
from auth.jose.public_keys import ALGORITHMS, BadKeys, PublicKey, read_key, thumbprint
from auth.values.database import Db
from auth.values.identity_model import Millis
from auth.values.issuer_and_resources import Site, normalise
from auth.values.oauth_errors import OAuthRefusal

TYPE: Final = "dpop+jwt"
LONGEST: Final = 8 * 1_024  # one with an RSA key of 8 192 bits has about 3 KiB
BACK_SECONDS: Final = 60  # how old a proof may be: clocks differ, and requests wait
AHEAD_SECONDS: Final = 10
JTI_LENGTH: Final = 256
NONCE_PURPOSE: Final = "dpop-nonces"
# Proofs that are remembered, about 200 bytes each. One costs some tenths of a millisecond to check: a minute has room for few more.
REMEMBERED: Final = 100_000

_TIME_BYTES: Final = 8
_MAC_BYTES: Final = 16
_NONCE_LENGTH: Final = 32  # of both, written as base64url
# No client has this id: those that are entered by hand have no colon, the others are addresses or begin with cli_.
_OWNER: Final = "dpop:"


class BadProof(BadJws):
    """Why a proof proves nothing, for its client: the text continues "DPoP proof: …"."""


class DpopProof(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to say of it: that it counts for the first time."""

    jkt: str  # the thumbprint of its key
    id_hash: str  # of key and jti
    issued_at: int  # seconds
    nonce: str = ""  # as it stands there; one that cannot be ours is none

    @property
    def expires_at(self) -> Millis:
        """From then on it is too old anyway."""
        return (self.issued_at + BACK_SECONDS + 1) * 1_000


def read(
    text: str,
    *,
    method: str,
    urls: Collection[str],
    now: Millis,
    token: str | None = None,
    jkt: str | None = None,
) -> DpopProof:
    """§4.3, all but the single use. `urls`: how the request's address may be written. `token`: the access token that came with
    it, `jkt` the key that this one is bound to. Raises `BadJws`."""
    proof = jws.read(text, longest=LONGEST)
    header, claims = proof.header, proof.claims
    if text_in(header, "typ").lower() != TYPE:
        raise BadProof(f"has another typ than {TYPE}")
    if "crit" in header:
        raise BadProof("has critical extensions, which are not understood")
    algorithm = text_in(header, "alg")
    if algorithm not in ALGORITHMS:
        raise BadProof(f"has an alg that is none of {', '.join(ALGORITHMS)}")
    key, found = _key(header.get("jwk"))
    if jkt is not None and not _same(found, jkt):
        raise BadProof("is by another key than the token's")
    _check_request(claims, method, urls)
    issued_at = number_in(claims, "iat")
    seconds = now // 1_000
    if not seconds - BACK_SECONDS <= issued_at <= seconds + AHEAD_SECONDS:
        raise BadProof("is too old" if issued_at < seconds else "is from the future")
    jti = text_in(claims, "jti")
    if len(jti) > JTI_LENGTH:
        raise BadProof(f"has a jti of more than {JTI_LENGTH} characters")
    if token is not None and not _same(text_in(claims, "ath"), _hash(token)):
        raise BadProof("is for another access token")
    # Last, since it costs most.
    try:
        signed = key.is_signed(proof.signed, proof.signature, algorithm)
    except BadJws:
        signed = False
    if not signed:
        raise BadProof("is not signed by the key in its header")
    return DpopProof(
        jkt=found,
        id_hash=hashlib.sha256(f"{found} {jti}".encode("utf-8", "surrogatepass")).hexdigest(),
        issued_at=issued_at,
        nonce=nonce if isinstance(nonce := claims.get("nonce"), str) and len(nonce) == _NONCE_LENGTH else "",
    )


def _key(jwk: Any) -> tuple[PublicKey, str]:
    try:
        key = read_key(jwk)
    except BadKeys as problem:
        raise BadProof(f"has a jwk that {problem}") from None
    if key is None:
        raise BadProof("has a jwk of a kind that is not used here")
    return key, thumbprint(jwk)


def _check_request(claims: dict[str, Any], method: str, urls: Collection[str]) -> None:
    if text_in(claims, "htm") != method:
        raise BadProof("is for another method")
    address = text_in(claims, "htu")
    # §4.3: in their normal form, without query and fragment.
    named = normalise(address) if address.isascii() and address.isprintable() else None
    if named is None or named not in {normalise(url) for url in urls}:
        raise BadProof("is for another address")


def _hash(token: str) -> str:
    return pack(hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode())


def urls_of(site: Site, origin: str, path: str) -> tuple[str, str]:
    """How a caller who came by `origin` may write the address of `path`: as it was typed, or as it is called in public."""
    return site.issuer + path, origin + path


def refusal(problem: str) -> OAuthRefusal:
    return OAuthRefusal(error="invalid_dpop_proof", description=f"DPoP proof: {problem}")


# ---------------------------------------------------------------- once


def use_up(db: Db, proof: DpopProof) -> bool:
    """Part of a job: False if this proof was used before."""
    return clients.use_up(db, _OWNER, proof.id_hash, proof.expires_at)


class ProofNonces:
    """Which proofs may have been used at a resource before this process began, and what they must have in them to count all the same:
    a time of ours, with a MAC. For a process that is alone: what several have seen is in the store, also after a restart."""

    def __init__(self, key: bytes, began: Millis) -> None:
        self._key = key
        self._began = began
        # A clock that is as far ahead as it may be has made them before.
        self._doubtful_until = began // 1_000 + AHEAD_SECONDS

    def wanted(self, proof: DpopProof) -> bool:
        """It may be older than this process is."""
        return proof.issued_at <= self._doubtful_until and self._made_at(proof.nonce) < self._began

    def make(self, now: Millis) -> str:
        # Not before the beginning, where the clock was set back since.
        said = max(now, self._began).to_bytes(_TIME_BYTES, "big")
        return pack(said + self._mac(said))

    def _made_at(self, nonce: str) -> Millis:
        """0 for what is none of ours."""
        try:
            raw = unpack(nonce)
        except ValueError:
            return 0
        said = raw[:_TIME_BYTES]
        return int.from_bytes(said, "big") if hmac.compare_digest(raw[_TIME_BYTES:], self._mac(said)) else 0

    def _mac(self, said: bytes) -> bytes:
        return hmac.digest(self._key, said, "sha256")[:_MAC_BYTES]


class ProofWindow:
    """The proofs that resources have seen in the last minute, by the second in which they were made. One per process; what it
    has forgotten, for its age or for want of room, it refuses."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._seen: dict[int, set[str]] = {}
        self._count = 0
        self._forgotten = 0  # the youngest second whose proofs are not all remembered

    def use_up(self, proof: DpopProof, now: Millis) -> bool:
        """False if this proof was used before, or may have been."""
        oldest = now // 1_000 - BACK_SECONDS
        for second in [each for each in self._seen if each < oldest]:
            self._count -= len(self._seen.pop(second))
            # Or else a clock that is set back would let them in again.
            self._forgotten = max(self._forgotten, second)
        if proof.issued_at <= self._forgotten:
            return False
        seen = self._seen.setdefault(proof.issued_at, set())
        if proof.id_hash in seen:
            return False
        seen.add(proof.id_hash)
        self._count += 1
        while self._count > self._remembered:
            self._forgotten = min(self._seen)
            self._count -= len(self._seen.pop(self._forgotten))
        return True

    def __len__(self) -> int:
        return self._count
