"""Access tokens (RFC 9068) and the answer of the token endpoint; revocation (RFC 7009).

Signing happens after the job that allowed it is committed. Checking a token lives in access_token_verifier.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from auth.audit import audit_trail
from auth.context.identity_parts import Parts
from auth.grants import refresh_tokens
from auth.grants.login_records import revoke
from auth.grants.token_request import Issue
from auth.jose.base64url import pack
from auth.jose.es256 import sign
from auth.keys.signing_keys import SigningKey
from auth.values.compact_json import json_bytes
from auth.values.database import Db
from auth.values.entropy import SEED_BYTES, identifier
from auth.values.identity_model import Client, Millis
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import TokenPolicy
from auth.values.oauth_errors import OAuthRefusal
from auth.values.requester import Requester

TOKEN_TYPE: Final = "at+jwt"


def mint(issue: Issue, *, site: Site, policy: TokenPolicy, key: SigningKey, seed: bytes) -> tuple[str, int]:
    """Make a signed access token; return it and the seconds it lives. Raise LookupError if the issue's server is not configured."""
    audience = site.audience(issue.server)
    if audience is None:
        raise LookupError(issue.server)
    issued_at = issue.issued_at // 1_000
    expires_at = min(issue.issued_at + policy.access_ms, issue.ends_at) // 1_000
    claims: dict[str, Any] = {
        "iss": site.issuer,
        "sub": issue.subject,
        "aud": audience,
        "client_id": issue.client_id,
        "scope": issue.scope,
        "iat": issued_at,
        "exp": expires_at,
        "jti": identifier("at", seed),
        "sid": issue.grant_id,
        "auth_time": issue.auth_time // 1_000,
    }
    if issue.jkt is not None:
        claims["cnf"] = {"jkt": issue.jkt}
    signed = f"{_header(key.algorithm, key.kid)}.{pack(json_bytes(claims))}".encode()
    return sign(signed, key.key).decode(), expires_at - issued_at


@lru_cache(maxsize=8)  # of a pure function: few keys sign, one at a time
def _header(algorithm: str, kid: str) -> str:
    return pack(json_bytes({"alg": algorithm, "kid": kid, "typ": TOKEN_TYPE}))


def answer(parts: Parts, issue: Issue) -> dict[str, Any]:
    """Sign what was issued, and make the answer (RFC 6749 §5.1). `scope` is always there: some clients die without it."""
    token, lives = mint(
        issue,
        site=parts.site,
        policy=parts.policy.tokens,
        key=parts.keys.ring.signing(issue.issued_at),
        seed=parts.entropy(SEED_BYTES),
    )
    body: dict[str, Any] = {
        "access_token": token,
        "token_type": "Bearer" if issue.jkt is None else "DPoP",
        "expires_in": lives,
        "scope": issue.scope,
    }
    if issue.counter is not None:
        link = refresh_tokens.ChainLink(grant_id=issue.grant_id, counter=issue.counter)
        body["refresh_token"] = refresh_tokens.write(parts.keys.refresh.newest(), link)
    return body


class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a revocation: the answer is 200 whether or not there was anything to revoke (§2.2)."""

    known: bool


def revoke_by_token(
    db: Db, client: Client, grant_id: str | None, *, requester: Requester, now: Millis
) -> Revoked | OAuthRefusal:
    """End the login that a token belongs to, as a job. `grant_id` was read from a token of ours, None for any other text."""
    row = None if grant_id is None else db.fetch_one("SELECT client_id FROM grants WHERE id = ?", grant_id)
    refused, ended = "", False
    if row is None or grant_id is None:
        refused = "unknown token"
    elif row["client_id"] != client.id:
        refused = "token of another client"
    else:
        ended = revoke(db, grant_id, reason="revoked by its client", by=f"client:{client.id}", now=now)
    audit_trail.record_client(
        db,
        now,
        "token.revoked",
        client.id,
        requester,
        reason="" if ended else "was over already",
        refused=refused,
        grant_id=None if row is None else grant_id,
    )
    if row is not None and refused:
        # §2.1: the client is told, since it holds a token that is not its own.
        return OAuthRefusal(error="invalid_grant", description="this token was issued to another client")
    return Revoked(known=row is not None)
