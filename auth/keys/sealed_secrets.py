"""Secrets in the store: AES-GCM under a subkey of the key file, bound to the row that they are in."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from server.lib.secret import decode_secret, encode_secret

NONCE_BYTES: Final = 12

T = TypeVar("T", bound=msgspec.Struct)


class CannotUnseal(Exception):
    """A key in the store was sealed with another key file."""


def seal(seal_key: bytes, secret: bytes, *, nonce: bytes, bound_to: str) -> str:
    box = AESGCM(seal_key).encrypt(nonce, secret, bound_to.encode())
    return base64.b64encode(nonce + box).decode()


def unseal(seal_key: bytes, sealed: str, *, bound_to: str, what: str) -> bytes:
    raw = base64.b64decode(sealed)
    try:
        return AESGCM(seal_key).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], bound_to.encode())
    except InvalidTag:
        raise CannotUnseal(f"{what} was sealed with another key file") from None


def seal_struct(
    seal_key: bytes, value: msgspec.Struct, entropy: Callable[[int], bytes], *, bound_to: str
) -> str:
    """Return a whole struct sealed, with the secrets in it."""
    plain = msgspec.json.encode(value, enc_hook=encode_secret)
    return seal(seal_key, plain, nonce=entropy(NONCE_BYTES), bound_to=bound_to)


def open_struct(seal_key: bytes, sealed: str, shape: type[T], *, bound_to: str) -> T | None:
    """Return a struct that was sealed; None if it was with another key file, or bound to something else, so that nobody can use it any more."""
    try:
        plain = unseal(seal_key, sealed, bound_to=bound_to, what="this")
    except CannotUnseal:
        return None
    return msgspec.json.decode(plain, type=shape, dec_hook=decode_secret)
