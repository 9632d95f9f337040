"""Access tokens made by hand, right and wrong, with our own key over any bytes."""

from __future__ import annotations

import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jws
from joserfc.jwk import ECKey

from auth.grants.token_request import Issue
from auth.keys import signing_keys as keys
from auth.keys.signing_keys import Keys, SealedKey, SigningKey
from auth.tokens import access_tokens as tokens
from tests.auth.identity_fakes import MINUTE, ORIGIN, POLICY, SECOND, SITE, START, b64, subkey

NOW = START
SECONDS = NOW // SECOND


def sealed_key(nonce: int = 1) -> dict[str, Any]:
    made = keys.generate(subkey(keys.SEAL_PURPOSE), nonce=bytes([nonce] * 12), now=START)
    return {name: getattr(made, name) for name in SealedKey.__slots__}


def make_key(nonce: int = 1) -> SigningKey:
    return keys.unseal(sealed_key(nonce), subkey(keys.SEAL_PURPOSE))


ROW = sealed_key()
KEY = keys.unseal(ROW, subkey(keys.SEAL_PURPOSE))
RING = Keys(([ROW], ()), subkey=subkey)
ISSUE = Issue(
    grant_id="grt_1",
    subject="usr_1",
    client_id="cli_1",
    server="agent",
    scope="mcp",
    auth_time=START - MINUTE,
    issued_at=START,
    ends_at=START + 1_000 * MINUTE,
    counter=1,
)


def mint(issue: Issue = ISSUE, key: SigningKey = KEY) -> str:
    token, _ = tokens.mint(issue, site=SITE, policy=POLICY.tokens, key=key, seed=b"s" * 32)
    return token


def parts_of(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    decoded = jws.deserialize_compact(
        token.encode(), ECKey.import_key(dict(KEY.public)), algorithms=["ES256"]
    )
    assert decoded.payload is not None
    return dict(decoded.headers()), json.loads(decoded.payload)


HEAD: dict[str, Any] = {"alg": "ES256", "kid": KEY.kid, "typ": "at+jwt"}
CLAIMS: dict[str, Any] = {
    "iss": ORIGIN,
    "sub": "usr_1",
    "aud": ORIGIN + "/mcp",
    "client_id": "cli_1",
    "scope": "mcp",
    "iat": SECONDS,
    "exp": SECONDS + 3_600,
    "jti": "at_1",
    "sid": "grt_1",
    "auth_time": SECONDS,
}


def signed(head: str | None = None, payload: str | None = None, key: SigningKey = KEY) -> str:
    """Our own key over any bytes, duplicates and all."""
    body = f"{b64((head or json.dumps(HEAD)).encode())}.{b64((payload or json.dumps(CLAIMS)).encode())}"
    private = key.key
    assert private is not None
    r, s = decode_dss_signature(private.sign(body.encode(), ECDSA(SHA256())))
    return f"{body}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def claims(**changes: Any) -> str:
    return json.dumps({name: value for name, value in {**CLAIMS, **changes}.items() if value is not None})


def head(**changes: Any) -> str:
    return json.dumps({name: value for name, value in {**HEAD, **changes}.items() if value is not None})
