"""Dynamic registration (RFC 7591): a program becomes a client of a server that it has not met before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from server import __version__
from server.lib.json_objects import positive
from server.lib.oauth_client.client_identity import METHODS, NONE, KnownClient, method_for
from server.lib.oauth_client.issuer_metadata import ServerMetadata
from server.lib.oauth_client.oauth_answers import Ask, OAuthFailure
from server.lib.oauth_client.proof_key import Millis
from server.lib.oauth_client.token_requests import read_refusal
from server.lib.secret import Secret

MAX_CREDENTIAL: Final = 4096


class Registered(KnownClient, frozen=True, kw_only=True):
    """The client that a server made of us, for one redirect address."""

    redirect_uri: str | None = None
    expires_at: Millis | None = None  # of the secret


async def register(
    ask: Ask, server: ServerMetadata, wanted: Mapping[str, Any], *, redirect_uri: str | None, scope: str
) -> Registered:
    """Register as a client, and return what the server made of us, which may be something else than was `wanted`.

    Raise `OAuthFailure`."""
    endpoint = server.registration_endpoint
    assert endpoint is not None
    asked = {
        **wanted,
        "response_types": [] if redirect_uri is None else ["code"],
        "software_version": __version__,
        **({} if redirect_uri is None else {"redirect_uris": [redirect_uri]}),
        **({"scope": scope} if scope else {}),
    }
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    answer = await ask("POST", endpoint, headers, msgspec.json.encode(asked))
    if answer.status not in (200, 201):
        refusal = read_refusal(answer)
        raise OAuthFailure(
            f"does not register us ({refusal.word or f'status {answer.status}'})",
            reason="refused",
            error=refusal.error,
            description=refusal.description,
        )
    said = answer.json_object()
    client_id, secret = _credential(said.get("client_id")), _credential(said.get("client_secret"))
    # Left out: what was asked for, or the default of §2 where a secret came along.
    method = said.get("token_endpoint_auth_method") or method_for(
        server.auth_methods, secret=secret is not None
    )
    if client_id is None or method not in METHODS or (method != NONE and secret is None):
        raise OAuthFailure("registered us in a way that cannot be used", reason="unusable client")
    # Never read as a time in the past: zero says that it does not end.
    ends = positive(said.get("client_secret_expires_at")) if secret is not None else None
    return Registered(
        issuer=server.issuer,
        client_id=client_id,
        client_secret=None if secret is None or method == NONE else Secret(secret),
        auth_method=str(method),
        redirect_uri=redirect_uri,
        expires_at=None if ends is None else int(ends * 1000),
    )


def _credential(value: object) -> str | None:
    # RFC 6749 appendix A.1, A.2: visible ASCII and blanks.
    if isinstance(value, str) and 0 < len(value) <= MAX_CREDENTIAL and all(" " <= c <= "~" for c in value):
        return value
    return None
