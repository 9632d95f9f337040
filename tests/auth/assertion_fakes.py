"""A program that proves itself with a signature, made by a library that is not ours."""

from __future__ import annotations

import hmac
import json
import warnings
from dataclasses import dataclass, field
from typing import Any

from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey

from auth.clients import client_registry as clients
from auth.clients.client_registry import ASSERTION_TYPE, ClientRegistration
from auth.identity import Identity
from auth.values.http_messages import WireRequest
from tests.auth.identity_fakes import ORIGIN, START, b64, post

SECONDS = START // 1_000
TOKEN = ORIGIN + "/token"

KEYS: dict[str, Any] = {
    "ES256": ECKey.generate_key("P-256", {"kid": "ES256"}),
    "RS256": RSAKey.generate_key(2_048, {"kid": "RS256"}),
    "EdDSA": OKPKey.generate_key("Ed25519", {"kid": "EdDSA"}),
}
KEYS["PS256"], KEYS["Ed25519"] = KEYS["RS256"], KEYS["EdDSA"]


def public(*keys: Any) -> dict[str, Any]:
    return {"keys": [dict(key.as_dict(private=False)) for key in keys]}


@dataclass
class Signer:
    """The owner of a client id and a key."""

    client_id: str
    key: Any = field(default_factory=lambda: KEYS["ES256"])
    algorithm: str = "ES256"
    count: int = 0

    def claims(self, **changed: Any) -> dict[str, Any]:
        self.count += 1
        claims = {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": ORIGIN,
            "jti": f"jti-{self.count}",
            "iat": SECONDS,
            "exp": SECONDS + 60,
        }
        return {name: value for name, value in {**claims, **changed}.items() if value is not None}

    def head(self, **changed: Any) -> dict[str, Any]:
        head = {"alg": self.algorithm, "kid": self.key.kid, "typ": "JWT"}
        return {name: value for name, value in {**head, **changed}.items() if value is not None}

    def assertion(self, *, head: dict[str, Any] | None = None, **changed: Any) -> str:
        return self.sign(json.dumps(self.claims(**changed)).encode(), self.head(**(head or {})))

    def sign(self, payload: bytes, head: dict[str, Any]) -> str:
        """Any header and any payload, signed as its owner's algorithm has it."""
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", SecurityWarning
            )  # EdDSA has a newer name, which not everybody writes
            return self._serialized(payload, head)

    def _serialized(self, payload: bytes, head: dict[str, Any]) -> str:
        return jws.serialize_compact(
            head,
            payload,
            self.key,
            registry=jws.JWSRegistry(algorithms=[self.algorithm], strict_check_header=False),
        )

    def request(self, path: str = "/token", assertion: str | None = None, **form: str) -> WireRequest:
        shown = self.assertion() if assertion is None else assertion
        return post(path, client_assertion=shown, client_assertion_type=ASSERTION_TYPE, **form)

    def ask(self, assertion: str | None = None, **form: str) -> WireRequest:
        return self.request(assertion=assertion, grant_type="client_credentials", **form)


def unsigned(claims: dict[str, Any], **head: Any) -> str:
    parts = (b64(json.dumps(part).encode()) for part in ({"alg": "none", **head}, claims))
    return ".".join([*parts, "AA"])


def with_public_key_as_secret(claims: dict[str, Any], secret: bytes) -> str:
    """The old trick: HS256 with what everybody knows. By hand, since libraries refuse to help."""
    parts = (b64(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": "ES256"}, claims))
    signed = ".".join(parts)
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), 'sha256'))}"


async def machine(identity: Identity, algorithm: str = "ES256", **fields: Any) -> Signer:
    """A client that the operator added with a public key."""
    key = KEYS[algorithm]
    values: dict[str, Any] = {
        "name": "Nightly job",
        "auth_method": "private_key_jwt",
        "grant_types": ("client_credentials",),
        "jwks": json.dumps(public(key)),
    }
    registration = ClientRegistration(**{**values, **fields})
    assert registration.check(identity.parts.site.scopes) == []
    added = await identity.parts.store.write(
        lambda db: clients.add(
            db, registration, seed=identity.parts.entropy(32), by="local:0", now=identity.parts.clock()
        )
    )
    assert added is not None
    assert added.secret is None
    return Signer(added.client.id, key, algorithm)
