"""What a request presents to be let in: one value, from the wire to the decision.

    Authorization: Bearer <token, key or static token> · X-API-Key: <key or static token> · Authorization: Basic <id>:<key>
    Authorization: DPoP <token> with a proof of the key that it is bound to

Nothing is decided here; that is accepted_credentials.py's. What follows from the headers alone, down to the digest of a secret, is read
once, so that whoever sees the same head again may keep the value. RFC 6750 §2.1, RFC 7617, RFC 9449 §7.1.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Literal

import msgspec

from auth.tokens.api_keys import PREFIX

LONGEST_TOKEN: Final = 8 * 1_024  # characters; ours have about 700
# An id and a key, whatever they are; ours have about 80.
LONGEST_KEY: Final = 1_024

Kind = Literal["token", "dpop", "key", "basic"]


class PresentedCredential(msgspec.Struct, frozen=True):
    """`kind` is how it was sent, and what it can be: `token` came as Bearer and may as well be a static token of the settings,
    `key` came as Bearer or in X-API-Key, `dpop` is a token that was sent with that scheme."""

    kind: Kind
    secret: str
    name: str  # basic: the user name
    digest: bytes  # SHA-256 of the secret; empty for one that is too long to be any

    def __repr__(self) -> str:
        return f"PresentedCredential({self.kind})"


class Conflict(Enum):
    TWO = auto()  # different credentials in one request


@dataclass(frozen=True, slots=True)
class PresentedProof:
    """The proof that came with a request, and what it must be about. `again`: the request was let in, and is looked at once
    more while it runs; a proof that has been used is then what it should be."""

    text: str = field(repr=False)
    method: str
    again: bool = False


class Presentation(msgspec.Struct, frozen=True, kw_only=True):
    """`credential`: None where nothing was sent that we know, which is answered like a request without anything."""

    credential: PresentedCredential | Conflict | None
    server: str  # whose endpoint it is, by its name in the settings
    origin: str  # scheme and host that the caller typed; a challenge repeats them
    path: str | None = None  # as it was typed, slash and all
    address: str = ""  # where the caller is, as far as it can be told
    proof: PresentedProof | None = None
    # What of the server's tools the request wants to know of. It can have less than its caller may, and never more.
    tools: str | None = None
    # It brings a payment, and nothing to log in with: where that is enough, it is somebody who pays.
    pays: bool = False
    # It brings nothing to log in with, and asks for something that may need no login.
    visits: bool = False


def present(
    authorization: str | None,
    api_key: str | None = None,
    *,
    server: str,
    origin: str,
    path: str | None = None,
    address: str = "",
    proof: PresentedProof | None = None,
    tools: str | None = None,
    pays: bool = False,
    visits: bool = False,
) -> Presentation:
    return Presentation(
        credential=read(authorization, api_key),
        server=server,
        origin=origin,
        path=path,
        address=address,
        proof=proof,
        tools=tools,
        pays=pays,
        visits=visits,
    )


def read(authorization: str | None, api_key: str | None) -> PresentedCredential | Conflict | None:
    """What the two headers say. Never raises: unreadable is refused as a key that there is not."""
    shown = None if authorization is None else _of_header(authorization)
    if api_key is None:
        return shown
    if authorization is None:
        return _credential("key", api_key.strip())
    # The same key twice is one credential; anything else would be a guess about which of them counts.
    same = shown is not None and shown.secret == api_key.strip()
    return shown if same else Conflict.TWO


def bearer(authorization: str | None) -> str | None:
    """The token of a Bearer header; None where none was sent, or another scheme."""
    if not authorization:
        return None
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _of_header(authorization: str) -> PresentedCredential | None:
    scheme, _, rest = authorization.strip().partition(" ")
    kind, secret = scheme.lower(), rest.strip()
    if kind == "bearer":
        return _credential("key" if secret.startswith(PREFIX) else "token", secret)
    if kind == "dpop":
        return _credential("dpop", secret)
    if kind != "basic":
        return None
    name, _, secret = _decoded(secret).partition(":")
    return _credential("basic", secret, name)


def _credential(kind: Kind, secret: str, name: str = "") -> PresentedCredential:
    return PresentedCredential(kind, secret, name, b"" if len(secret) > LONGEST_TOKEN else digest_of(secret))


def _decoded(text: str) -> str:
    if len(text) > 2 * LONGEST_KEY:
        return ""
    try:
        return base64.b64decode(text, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
