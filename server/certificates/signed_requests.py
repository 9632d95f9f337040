"""What is sent to an authority is signed by the account, or by the key that it is about (RFC 8555 §6.2, §7.3.4, §8.1): flattened JWS."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from auth.jose import es256
from auth.jose.base64url import pack, unpack
from auth.jose.es256 import PrivateKey
from auth.jose.public_keys import thumbprint


class Signer(msgspec.Struct, frozen=True):
    """A key; with the address of its account, if there is one yet."""

    key: PrivateKey
    account: str = ""

    def sealed(self, url: str, nonce: str, payload: Mapping[str, Any] | None) -> bytes:
        """`payload` None: nothing is changed, only asked for (POST-as-GET, §6.3)."""
        whose = {"kid": self.account} if self.account else {"jwk": es256.public_jwk(self.key)}
        head = _packed({"alg": es256.ALGORITHM, **whose, "nonce": nonce, "url": url})
        body = "" if payload is None else _packed(payload)
        signed = es256.sign(f"{head}.{body}".encode(), self.key).decode()
        return _flat(head, body, signed.rpartition(".")[2])

    def key_authorization(self, token: str) -> str:
        """§8.1: that whoever shows this has the account's key."""
        return f"{token}.{thumbprint(es256.public_jwk(self.key))}"


class ExternalAccount(msgspec.Struct, frozen=True):
    """§7.3.4: for which customer of the authority an account is. `key` as the authority gave it, in base64url."""

    key_id: str
    key: str

    def __repr__(self) -> str:
        return f"<ExternalAccount {self.key_id}>"

    def binding(self, url: str, key: PrivateKey) -> dict[str, str]:
        """Raises `ValueError` for a key that is not base64url."""
        secret = unpack(self.key.rstrip("="))
        head = _packed({"alg": "HS256", "kid": self.key_id, "url": url})
        body = _packed(es256.public_jwk(key))
        mac = hmac.digest(secret, f"{head}.{body}".encode(), hashlib.sha256)
        return {"protected": head, "payload": body, "signature": pack(mac)}


def _packed(value: Mapping[str, Any]) -> str:
    return pack(json.dumps(value, separators=(",", ":")).encode())


def _flat(head: str, body: str, signature: str) -> bytes:
    return json.dumps({"protected": head, "payload": body, "signature": signature}).encode()
