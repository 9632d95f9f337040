"""Dynamic registration (RFC 7591): a program becomes a client of a server that it has not met before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from server import __version__
from server.lib.json_objects import positive
from server.lib.oauth_client.asking import Ask, OAuthFailure
from server.lib.oauth_client.client_identity import METHODS, NONE, ClientIdentity, method_for
from server.lib.oauth_client.server_metadata import ServerMetadata
from server.lib.oauth_client.token_requests import read_refusal
from server.lib.secret import Secret

MAX_CREDENTIAL: Final = 4096


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """The client that a server made of us."""

    identity: ClientIdentity
    expires_at: int | None = None  # in milliseconds


async def register(ask: Ask, server: ServerMetadata, wanted: Mapping[str, Any], *, scope: str) -> Registered:
    """Register as a client, and return what the server made of us, which may be something else than was `wanted`.

    Raise `OAuthFailure`."""
    endpoint = server.registration_endpoint
    assert endpoint is not None
    body = msgspec.json.encode(
        {**wanted, "software_version": __version__, **({"scope": scope} if scope else {})}
    )
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    answer = await ask("POST", endpoint, headers, body)
    if answer.status in (200, 201):
        return _read(answer.json_object(), server)
    outcome = "does not register this server"
    refusal = read_refusal(answer, endpoint, outcome=outcome)
    raise OAuthFailure(
        f"{outcome} ({refusal.word or f'status {answer.status}'})",
        reason="refused",
        place=endpoint,
        status=answer.status,
        error=refusal.error,
        description=refusal.description,
    )


def _read(said: Mapping[str, Any], server: ServerMetadata) -> Registered:
    """Read the answer to a registration (RFC 7591 §3.2.1)."""
    client_id, secret = _credential(said.get("client_id")), _credential(said.get("client_secret"))
    # Left out: what was asked for, or the default of §2 where a secret came along.
    method = said.get("token_endpoint_auth_method") or method_for(
        server.auth_methods, secret=secret is not None
    )
    if client_id is None or method not in METHODS or (method != NONE and secret is None):
        raise OAuthFailure("registered this server in a way that cannot be used", reason="unusable client")
    # Never read as a time in the past: zero says that it does not end.
    ends = positive(said.get("client_secret_expires_at")) if secret is not None else None
    kept = None if secret is None or method == NONE else Secret(secret)
    return Registered(
        identity=ClientIdentity(client_id=client_id, secret=kept, method=str(method)),
        expires_at=None if ends is None else int(ends * 1000),
    )


def _credential(value: object) -> str | None:
    # RFC 6749 appendix A.1, A.2: visible ASCII and blanks.
    if isinstance(value, str) and 0 < len(value) <= MAX_CREDENTIAL and all(" " <= c <= "~" for c in value):
        return value
    return None
