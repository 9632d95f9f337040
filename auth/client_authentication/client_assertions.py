"""`private_key_jwt` (RFC 7523 §3, OpenID Connect Core §9): a client proves who it is with a signature of its own.

Strict, since nobody's habits are in the way yet: one form of token, our name alone as the audience, minutes of life, one use.
`prove` runs before the job and does what is slow (fetching keys, checking signatures); that an assertion counts once, and that
the keys are still the client's, is for the job to say (`clients.proves`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from auth.clients import client_registry as clients
from auth.clients.client_key_sets import NoKeys
from auth.clients.client_registry import ClientCredentials, KeyProof
from auth.context.identity_parts import Parts
from auth.jose import jws
from auth.jose import public_keys as client_keys
from auth.jose.jws import BadJws, number_in, text_in
from auth.values.identity_model import Client, Millis
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import MINUTE
from auth.values.requester import Requester

LONGEST: Final = 8 * 1_024
LIFE_SECONDS: Final = 5 * 60  # at most so far ahead
LEEWAY_SECONDS: Final = 30
JTI_LENGTH: Final = 256

# An access token, or anything else that somebody signed for another purpose, is no assertion.
_TYPES: Final = frozenset({"", "jwt", "client-authentication+jwt"})


class BadAssertion(BadJws):
    """An assertion that proves nothing. The text is for its client, and continues "client_assertion: …"."""


class ClientAssertion(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an assertion, before its signature is looked at."""

    subject: str  # a client id
    jti_hash: str
    expires_at: int  # seconds
    kid: str
    algorithm: str
    signed: bytes
    signature: bytes


def subject_of(text: str) -> str | None:
    """Return whom an assertion is about, by its own word: a request without a `client_id` is counted under that."""
    try:
        subject = jws.members(jws.split(text, longest=LONGEST)[1]).get("sub")
    except BadJws:
        return None
    return subject if isinstance(subject, str) and subject.isascii() and subject.isprintable() else None


def audiences(site: Site, origin: str, path: str) -> frozenset[str]:
    """Return how an assertion may name us: the issuer, the token endpoint, or the endpoint that it was sent to (RFC 9126 §2).

    Some libraries put a slash after a bare host, which names nobody else.
    """
    bases = {site.issuer, site.public(origin)}
    return frozenset(base + end for base in bases for end in ("", "/", "/token", path))


def read(text: str, client_id: str | None, names: Collection[str], now: Millis) -> ClientAssertion:
    """Read all but the signature. Raise `BadJws`."""
    assertion = jws.read(text, longest=LONGEST)
    header, claims = assertion.header, assertion.claims
    if "crit" in header:
        raise BadAssertion("critical extensions are not understood")
    if text_in(header, "typ", "").lower().removeprefix("application/") not in _TYPES:
        raise BadAssertion("typ is that of another kind of token")
    algorithm = text_in(header, "alg")
    if algorithm not in client_keys.ALGORITHMS:
        raise BadAssertion(f"alg is one of {', '.join(client_keys.ALGORITHMS)}")
    subject = text_in(claims, "sub")
    if not (subject.isascii() and subject.isprintable()):  # RFC 6749 appendix A.1
        raise BadAssertion("sub is no client id")
    if text_in(claims, "iss") != subject:
        raise BadAssertion("iss and sub are both the client id")
    if client_id is not None and client_id != subject:
        raise BadAssertion("sub is another client than client_id")
    _check_audience(claims.get("aud"), names)
    return ClientAssertion(
        subject=subject,
        expires_at=check_times(claims, now // 1_000, life=LIFE_SECONDS, begins=("iat", "nbf")),
        jti_hash=hash_of_jti(claims),
        kid=text_in(header, "kid", ""),
        algorithm=algorithm,
        signed=assertion.signed,
        signature=assertion.signature,
    )


def _check_audience(audience: object, names: Collection[str]) -> None:
    """Refuse a list that names anybody else: what is meant for two servers could be used at one by the other."""
    listed = cast("list[object]", audience) if isinstance(audience, list) else [audience]
    if (
        not listed
        or len(listed) > len(names)
        or not all(isinstance(one, str) and one in names for one in listed)
    ):
        raise BadAssertion("aud is this server's issuer or its token endpoint, and nobody else")


def check_times(claims: Mapping[str, Any], seconds: int, *, life: int, begins: Iterable[str]) -> int:
    """Return until when an assertion counts, at most `life` ahead. None of the times in `begins` may be to come. Raise `BadJws`."""
    expires_at = number_in(claims, "exp")
    if seconds >= expires_at + LEEWAY_SECONDS:
        raise BadAssertion("it has expired")
    if expires_at > seconds + life + LEEWAY_SECONDS:
        raise BadAssertion(f"exp is at most {life // 60} minutes ahead")
    for name in begins:
        if name in claims and number_in(claims, name) > seconds + LEEWAY_SECONDS:
            raise BadAssertion(f"{name} is in the future")
    return expires_at


def hash_of_jti(claims: Mapping[str, Any]) -> str:
    """Return what is kept of an assertion that counts once. Raise `BadJws`."""
    jti = text_in(claims, "jti")
    if len(jti) > JTI_LENGTH:
        raise BadAssertion(f"jti has at most {JTI_LENGTH} characters")
    return hashlib.sha256(jti.encode("utf-8", "surrogatepass")).hexdigest()


def proof_of(assertion: ClientAssertion, client: Client, keys: tuple[client_keys.PublicKey, ...]) -> KeyProof:
    """Make the proof of a client. Raise `BadAssertion` unless one of its keys signed it."""
    candidates = client_keys.select(keys, assertion.kid)
    if not candidates:
        raise BadAssertion("the client has no key of this kid")
    signed, signature, algorithm = assertion.signed, assertion.signature, assertion.algorithm
    if not any(key.is_signed(signed, signature, algorithm) for key in candidates):
        raise BadAssertion("the signature is not by a key of the client")
    return KeyProof(
        client_id=client.id,
        jti_hash=assertion.jti_hash,
        expires_at=(assertion.expires_at + LEEWAY_SECONDS) * 1_000,
        keys=clients.keys_of(client),
    )


async def prove(
    parts: Parts, shown: ClientCredentials, who: Requester, *, path: str, now: Millis
) -> ClientCredentials:
    """Return the credentials with a proof, or with the problem why there is none. Raise what the store raises."""
    if shown.assertion is None:
        return shown
    try:
        names = audiences(parts.site, who.origin, path)
        assertion = read(shown.assertion, shown.client_id, names, now)
        client = await parts.store.read(partial(clients.lookup, client_id=assertion.subject))
        if client is None or client.auth_method != "private_key_jwt":
            raise BadAssertion("no such client, or it shows something else")
        keys = await parts.key_sets.of(
            client,
            assertion.kid,
            fetch=parts.fetch,
            may_fetch=lambda: _may_fetch(parts, client, who, now),
            now=now,
        )
        return replace(shown, proof=proof_of(assertion, client, keys))
    except (BadJws, NoKeys) as problem:
        return replace(shown, problem=str(problem))


def _may_fetch(parts: Parts, client: Client, who: Requester, now: Millis) -> bool:
    """Count a fetch. Anybody may have us call an address: so often a minute for one network, and for all strangers together."""
    policy, throttle = parts.policy.registration, parts.throttle
    if throttle.wait_seconds(f"\nkeys {who.network}", policy.fetches_per_network, now):
        return False
    everybody = max(1, policy.fetches * MINUTE // policy.fetches_per_network_ms)
    return client.kind == "registered" or not throttle.wait_seconds("\nkeys", everybody, now)
