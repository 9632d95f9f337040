"""Reading a compact JWS that is a JWT (RFC 7515 §7.1, RFC 7519): the one way in which identity takes a signed token apart.

Strict: three parts of base64url in their one spelling, JSON objects in UTF-8 and nothing else, each member once. What the
members must say, and whose the signature must be, is for the reader of that kind of token: tokens/access_token_verifier.py, client_authentication/dpop_proofs.py,
client_authentication/client_assertions.py, grants/identity_assertions.py, providers/provider_sign_in.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from auth.jose.base64url import unpack

TEXT_LENGTH: Final = 2_048  # of one member; addresses are the longest that anybody writes

_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class BadJws(Exception):
    """Why a token proves nothing. The text continues a sentence about it, and repeats nothing of it."""


class CompactJws(msgspec.Struct, frozen=True, kw_only=True):
    """A token taken apart. Nothing in it is believed yet."""

    header: dict[str, Any]
    claims: dict[str, Any]
    signed: bytes
    written_signature: str

    @property
    def signature(self) -> bytes:
        """Raises `BadJws`."""
        try:
            return unpack(self.written_signature)
        except ValueError:
            raise BadJws("the signature is not base64url") from None


def read(text: str, *, longest: int) -> CompactJws:
    """`longest`: in characters. Raises `BadJws`."""
    head, payload, signature = split(text, longest=longest)
    return CompactJws(
        header=members(head),
        claims=members(payload),
        signed=f"{head}.{payload}".encode(),
        written_signature=signature,
    )


def split(text: str, *, longest: int) -> list[str]:
    """Header, payload and signature as they are written. Raises `BadJws`."""
    if len(text) > longest:
        raise BadJws("is too long")
    if _COMPACT.fullmatch(text) is None:
        raise BadJws("is not a compact JWS")
    return text.split(".")


def members(part: str) -> dict[str, Any]:
    """The JSON object that a header or payload is. Raises `BadJws`."""
    try:
        # RFC 7515 §3: UTF-8. Bytes as they are would be taken for UTF-16 and UTF-32, too.
        value: Any = json.loads(unpack(part).decode(), object_pairs_hook=_once_each)
    except (ValueError, RecursionError):
        raise BadJws("is unreadable") from None
    if not isinstance(value, dict):
        raise BadJws("is unreadable")
    return value  # pyright: ignore[reportUnknownVariableType]  # json.loads makes str keys


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """§4: of two members with one name, readers may take either."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadJws("gives a member twice")
    return found


def text_in(values: Mapping[str, Any], name: str, otherwise: str | None = None) -> str:
    """The text of a member: not empty, unless `otherwise` says what it is where it is missing. Raises `BadJws`."""
    value = values.get(name, otherwise)
    if not isinstance(value, str) or (not value and otherwise is None) or len(value) > TEXT_LENGTH:
        raise BadJws(f"{name} is not a text")
    return value


def number_in(values: Mapping[str, Any], name: str) -> int:
    """The whole number of a member. Raises `BadJws`."""
    value = values.get(name)
    if isinstance(value, float) and value.is_integer():  # some libraries write 1800000000.0
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadJws(f"{name} is not a whole number")
    return value
