"""What whoever is not let in is told: the challenge of a protected resource (RFC 6750 §3, RFC 9728 §5.1, RFC 9449 §7.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from auth.jose.public_keys import ALGORITHMS
from auth.tokens.presented_credentials import Presentation
from auth.values import scopes
from auth.values.endpoint_paths import resource_metadata_url
from auth.values.issuer_and_resources import Site

INVALID: Final = "the access token is not valid (any more)"


class BearerRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """401 or 403, and the header that says how to do better. `error` is None where no token was sent. `nonce`: what the next proof of a key
    must have in it."""

    status: int
    error: str | None
    description: str
    www_authenticate: str
    nonce: str = ""


def challenge(
    site: Site,
    shown: Presentation,
    *,
    error: str | None = None,
    description: str = "sign in first",
    needed: Iterable[str] | None = None,
    status: int = 401,
) -> BearerRefusal:
    """§3: `error` only if a token was sent. `resource_metadata` is absolute and under the name that was typed. `needed`: by
    default all that an ordinary session needs, since several clients ask for exactly what stands here."""
    needed = site.scopes.ordinary if needed is None else needed
    metadata = resource_metadata_url(site, shown.server, shown.origin, shown.path)
    parts = [f'resource_metadata="{metadata}"', f'scope="{scopes.join(needed)}"']
    if error is not None:
        parts += [f'error="{error}"', f'error_description="{description}"']
    return BearerRefusal(
        status=status,
        error=error,
        description=description,
        www_authenticate="Bearer " + ", ".join(parts),
    )


def proof_challenge(
    site: Site, shown: Presentation, description: str, *, error: str = "invalid_token", used: bool = True
) -> BearerRefusal:
    """RFC 9449 §7.1, for a token that is bound to a key or was sent as if it were. Bearer stays the first challenge, since clients
    that read only one read that; the error is told with the scheme that was `used`: DPoP, or else Bearer."""
    plain = challenge(site, shown, error=None if used else error, description=description)
    parts = [f'algs="{" ".join(ALGORITHMS)}"']
    if used:
        parts += [f'error="{error}"', f'error_description="{description}"']
    return BearerRefusal(
        status=401,
        error=error,
        description=description,
        www_authenticate=f"{plain.www_authenticate}, DPoP {', '.join(parts)}",
    )


def nonce_challenge(nonce: str) -> BearerRefusal:
    """RFC 9449 §9: once more, with `nonce` in the proof. The one challenge, since several clients look for it at the beginning of the header."""
    error, description = "use_dpop_nonce", "DPoP proof: needs the nonce that comes with this answer"
    return BearerRefusal(
        status=401,
        error=error,
        description=description,
        www_authenticate=f'DPoP error="{error}", error_description="{description}", algs="{" ".join(ALGORITHMS)}"',
        nonce=nonce,
    )
