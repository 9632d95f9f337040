"""A program that proves a key with every request, by a library that is not ours, and the world that it does so in."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc.jwk import ECKey

from auth.clients.client_registry import CLI_CLIENT_ID
from auth.identity import Identity
from auth.tokens.presented_credentials import PresentedProof, present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.http_messages import WireReply, WireRequest
from auth.values.identity_model import DEVICE_CODE, REFRESH_TOKEN, Principal
from tests.auth.assertion_fakes import SECONDS, Signer
from tests.auth.identity_fakes import ORIGIN, b64, post
from tests.sealing import by_hand

TOKEN = ORIGIN + "/token"
ENDPOINT = ORIGIN + "/mcp"


@dataclass
class Prover:
    key: Any = field(default_factory=lambda: ECKey.generate_key("P-256"))
    algorithm: str = "ES256"
    count: int = 0
    seconds: int = SECONDS

    @property
    def jwk(self) -> dict[str, Any]:
        return {name: value for name, value in self.key.as_dict(private=False).items() if name != "kid"}

    @property
    def jkt(self) -> str:
        return self.key.thumbprint()

    def claims(self, token: str | None = None, **changed: Any) -> dict[str, Any]:
        self.count += 1
        usual: dict[str, Any] = {
            "jti": f"{id(self)}-{self.count}",
            "htm": "POST",
            "htu": TOKEN if token is None else ENDPOINT,
            "iat": self.seconds,
        }
        if token is not None:
            usual["ath"] = b64(hashlib.sha256(token.encode()).digest())
        return {name: value for name, value in {**usual, **changed}.items() if value is not None}

    def head(self, **changed: Any) -> dict[str, Any]:
        usual = {"typ": "dpop+jwt", "alg": self.algorithm, "jwk": self.jwk}
        return {name: value for name, value in {**usual, **changed}.items() if value is not None}

    def proof(self, token: str | None = None, *, head: dict[str, Any] | None = None, **changed: Any) -> str:
        return self.sign(self.claims(token, **changed), self.head(**(head or {})))

    def sign(self, claims: dict[str, Any] | bytes, head: dict[str, Any]) -> str:
        """Any header and any payload. Libraries refuse to sign some of them."""
        payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
        if self.algorithm != "ES256":
            return Signer("", self.key, self.algorithm).sign(payload, head)
        signed = f"{b64(json.dumps(head).encode())}.{b64(payload)}"
        r, s = decode_dss_signature(self.key.private_key.sign(signed.encode(), ECDSA(SHA256())))
        return f"{signed}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def shown(self, token: str, method: str = "POST", **changed: Any) -> PresentedProof:
        return PresentedProof(self.proof(token, htm=method, **changed), method)


def with_proof(request: WireRequest, proof: str | None) -> WireRequest:
    return request if proof is None else replace(request, headers={**request.headers, "dpop": proof})


async def sent(identity: Identity, request: WireRequest, proof: str | None) -> WireReply:
    reply = await identity.handle(with_proof(request, proof))
    assert reply is not None
    return reply


async def approved_code(identity: Identity, client_id: str = CLI_CLIENT_ID) -> str:
    """A device code that the owner has said yes to."""
    asked = await identity.handle(post("/device_authorization", client_id=client_id))
    assert asked is not None
    device_code: str = json.loads(asked.body)["device_code"]
    await identity.parts.store.write(
        by_hand(
            "UPDATE device_codes SET state = 'approved', granted_scope = 'mcp', decided_by = 'local:0', decided_at = ?,"
            " subject = (SELECT id FROM users) WHERE state = 'pending'",
            identity.parts.clock(),
        )
    )
    return device_code


def redeeming(code: str, client_id: str = CLI_CLIENT_ID, **form: str) -> WireRequest:
    return post("/token", client_id=client_id, grant_type=DEVICE_CODE, device_code=code, **form)


def refreshing(token: str, client_id: str = CLI_CLIENT_ID, **form: str) -> WireRequest:
    return post("/token", client_id=client_id, grant_type=REFRESH_TOKEN, refresh_token=token, **form)


async def bound(identity: Identity, prover: Prover, **form: str) -> dict[str, Any]:
    """A login whose tokens are bound to the prover's key."""
    reply = await sent(identity, redeeming(await approved_code(identity), **form), prover.proof())
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


async def call(
    identity: Identity,
    authorization: str,
    proof: PresentedProof | None = None,
    *,
    origin: str = ORIGIN,
    path: str | None = "/mcp",
    server: str = "agent",
) -> Principal | BearerRefusal:
    return await identity.check(present(authorization, server=server, origin=origin, path=path, proof=proof))
