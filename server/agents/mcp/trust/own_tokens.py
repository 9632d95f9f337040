"""Short-lived tokens of ours for an upstream: who calls, by which program, signed with the keys that this server publishes.

The upstream needs no secret of ours: it reads `/.well-known/jwks.json` (RFC 9068; `act` of RFC 8693 §4.1). A token is for one audience, which is never
one of our own servers: what an upstream is sent must be worth nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from auth.jose.base64url import pack
from auth.jose.es256 import sign
from auth.keys.signing_keys import SigningKey
from auth.values.compact_json import json_bytes
from auth.values.entropy import IDENTIFIER_BYTES, identifier
from auth.values.identity_model import Millis
from auth.values.issuer_and_resources import normalise
from server.agents.base.backend import AgentRequest
from server.lib.secret import Secret

ACCESS_TOKEN: Final = "at+jwt"
ID_JAG: Final = "oauth-id-jag+jwt"
OURSELVES: Final = "ostiary"  # the program, where the caller names none


class TokenIssuer:
    """The signer of our tokens."""

    def __init__(
        self,
        issuer: str,
        signing_key: Callable[[], SigningKey],
        *,
        ours: Collection[str],
        clock: Callable[[], Millis],
        entropy: Callable[[int], bytes],
    ) -> None:
        """Prepare to sign as `issuer`; `ours` are the audiences of our own servers, and our issuer."""
        self.issuer = issuer
        self._signing_key = signing_key
        self._ours = {normalise(each) or each for each in ours}
        self._clock = clock
        self._entropy = entropy

    def check_audience(self, audience: str) -> None:
        """Refuse an audience that is this server's own, with `ValueError`."""
        if (normalise(audience) or audience) in self._ours:
            raise ValueError(
                f"{audience} is this server's own: a token for it would let the upstream in here"
            )

    def mint(
        self, audience: str, *, seconds: int, kind: str = ACCESS_TOKEN, claims: Mapping[str, Any]
    ) -> Secret:
        """Sign a token about a caller, or an assertion, that ends in so many seconds."""
        issued, key = self._clock() // 1_000, self._signing_key()
        said = {
            **claims,
            "iss": self.issuer,
            "aud": audience,
            "iat": issued,
            "exp": issued + seconds,
            "jti": identifier("ut", self._entropy(IDENTIFIER_BYTES)),
        }
        header = {"alg": key.algorithm, "kid": key.kid, "typ": kind}
        signed = f"{pack(json_bytes(header))}.{pack(json_bytes(said))}".encode()
        return Secret(sign(signed, key.key).decode())


def subject_of(call: AgentRequest | None, server: str) -> str:
    """Name the subject for whom a call is made; None is the server's own doing, such as asking what there is."""
    if call is None or call.caller is None:
        return f"server:{server}"
    return person_of(call) or call.caller.subject


def person_of(call: AgentRequest | None) -> str | None:
    """Return the account in whose name a call is made; None where no person stands behind it."""
    if call is None or call.caller is None:
        return None
    caller = call.caller
    return caller.subject if caller.kind == "user" else caller.user


def claims_of(call: AgentRequest | None, server: str) -> dict[str, Any]:
    subject = subject_of(call, server)
    program = None if call is None or call.caller is None else call.caller.client_id
    claims: dict[str, Any] = {"sub": subject, "client_id": program or OURSELVES}
    if program is not None and program != subject:
        claims["act"] = {"sub": program}
    return claims


def whose(call: AgentRequest | None, server: str) -> str:
    """Return the text by which tokens are told apart: the person, and the program that acts for them."""
    claims = claims_of(call, server)
    return f"{claims['sub']} {claims['client_id']}"
