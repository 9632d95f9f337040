"""The login through a browser: where the browser is sent, and what may come back (RFC 6749 §4.1, RFC 7636, RFC 9207)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit, urlunsplit

from server.lib.oauth_client.issuer_metadata import S256
from server.lib.oauth_client.token_requests import AUTHORIZATION_CODE


def authorization_link(
    endpoint: str,
    *,
    client_id: str,
    redirect_uri: str,
    state: str,
    verifier: str,
    more: Mapping[str, str],
) -> str:
    """Return the address at which a login begins; those of `more` that are empty are left out."""
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": S256,
        **{name: value for name, value in more.items() if value},
    }
    parts = urlsplit(endpoint)
    # RFC 6749 §3.1: a query that the endpoint has already is kept.
    joined = "&".join(part for part in (parts.query, urlencode(asked)) if part)
    return urlunsplit(parts._replace(query=joined))


def comes_from(issuer: str, iss: str | None, *, always: bool) -> bool:
    """Tell whether an answer may be this issuer's (RFC 9207 §2.4): one that another server sent would carry that one's name.

    `always`: this one says that each of its answers carries its own."""
    if iss is None:
        return not always
    return hmac.compare_digest(iss.encode(errors="replace"), issuer.encode())


def code_form(*, code: str, redirect_uri: str, verifier: str, resource: str = "") -> dict[str, str]:
    """Return the form that exchanges a code for tokens (RFC 6749 §4.1.3, RFC 7636 §4.5)."""
    return {
        "grant_type": AUTHORIZATION_CODE,
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
        **({"resource": resource} if resource else {}),
    }
