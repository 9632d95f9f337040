"""The key ring: making signing keys, sealing them for the store, and the JWKS document.

One key signs at a time: the newest whose time has come. Others stay published until they retire, so that tokens they signed
still verify; a next key can be published before it signs. When to rotate is decided in key_rotation.py. Everybody can verify ES256,
which no name of EdDSA achieves today.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from auth.jose import es256
from auth.jose.es256 import ALGORITHM, PrivateKey
from auth.jose.public_keys import thumbprint
from auth.keys import refresh_token_keys as refresh_keys
from auth.keys import sealed_secrets
from auth.keys.refresh_token_keys import RefreshRing
from auth.values import sealed_rows
from auth.values.compact_json import json_bytes
from auth.values.database import Db, Row, from_row
from auth.values.identity_model import Millis

SEAL_PURPOSE: Final = "signing-keys"
PAGE: Final = 1_000  # rows read at once
LOOK_AGAIN_MS: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedKey:
    """A row of `signing_keys`."""

    kid: str
    algorithm: str
    public_jwk: str
    sealed_private: str = field(repr=False)
    created_at: Millis
    signs_from: Millis
    retires_at: Millis | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SigningKey:
    kid: str
    algorithm: str
    key: PrivateKey = field(repr=False)
    public: Mapping[str, Any]
    signs_from: Millis
    retires_at: Millis | None


def generate(seal_key: bytes, *, nonce: bytes, now: Millis, signs_from: Millis | None = None) -> SealedKey:
    """A new key pair, from the system's generator: not for use inside a job."""
    key = es256.generate()
    kid = thumbprint(es256.public_jwk(key))
    private = json_bytes(es256.private_jwk(key))
    return SealedKey(
        kid=kid,
        algorithm=ALGORITHM,
        public_jwk=json_bytes(_public(key, kid)).decode(),
        sealed_private=sealed_secrets.seal(seal_key, private, nonce=nonce, bound_to=_bound_to(kid)),
        created_at=now,
        signs_from=now if signs_from is None else signs_from,
        retires_at=None,
    )


def unseal(row: Row, seal_key: bytes) -> SigningKey:
    kid = row["kid"]
    private = sealed_secrets.unseal(
        seal_key, row["sealed_private"], bound_to=_bound_to(kid), what=f"signing key {kid}"
    )
    key = es256.load(json.loads(private))
    return from_row(SigningKey, row, key=key, public=_public(key, kid))


def _bound_to(kid: str) -> str:
    return f"{SEAL_PURPOSE}:{kid}"


def _public(key: PrivateKey, kid: str) -> dict[str, Any]:
    return {**es256.public_jwk(key), "kid": kid, "alg": ALGORITHM, "use": "sig"}


class SigningKeys:
    """All keys that a token may name, newest last. Immutable; a change makes a new ring."""

    def __init__(self, keys: Sequence[SigningKey]) -> None:
        self._keys = {key.kid: key for key in sorted(keys, key=lambda key: key.signs_from)}

    def __repr__(self) -> str:
        return f"SigningKeys({', '.join(self._keys)})"

    def get(self, kid: str, now: Millis) -> SigningKey | None:
        key = self._keys.get(kid)
        return None if key is None or _retired(key, now) else key

    def signing(self, now: Millis) -> SigningKey:
        """The key that signs now. Raises LookupError on an empty ring: setup makes the first key."""
        signs: SigningKey | None = None
        for key in self._keys.values():
            if key.retires_at is not None and key.retires_at <= now:
                continue
            # Where the clock was set back behind every key, the first one signs: what was agreed is committed by now, and
            # failing here would use up a code or a refresh token for nothing. All of them are published.
            if signs is None or key.signs_from <= now:
                signs = key
        if signs is None:
            raise LookupError("no signing key")
        return signs

    def jwks(self, now: Millis) -> bytes:
        keys = [dict(key.public) for key in self._keys.values() if not _retired(key, now)]
        return json_bytes({"keys": keys})


def receipt_keys(found: Sequence[Row]) -> bytes:
    """Every key that has ever signed, for receipts: a JWK set whose keys say from when to when they signed (`nbf`, `exp`; seconds, as
    OpenID Federation 1.0 §8.7 has them of historical keys), and which were dropped because they may be known to others (`revoked`).

    A key that was merely replaced proves as much as ever: its secret part is destroyed. One that was dropped proves nothing any more."""
    begins = {row["signs_from"] for row in found}
    listed: list[dict[str, Any]] = []
    for row in found:
        if never_signed(row):
            continue
        key = {**json.loads(row["public_jwk"]), "nbf": row["signs_from"] // 1000}
        ends = row["retires_at"]
        if ends is not None:
            key["exp"] = ends // 1000
            # Its successor signed from the very moment at which it was dropped (`key_rotation.replace_all`).
            if ends in begins:
                key["revoked"] = {"revoked_at": ends // 1000}
        listed.append(key)
    return json_bytes({"keys": listed})


def did_of(issuer: str) -> str:
    """The decentralised identifier that an address is (did:web §3.1)."""
    parts = urlsplit(issuer)
    return f"did:web:{parts.netloc.replace(':', '%3A')}"


def did_document(receipts: bytes, issuer: str) -> bytes:
    """The same keys as `receipt_keys` gives, without those that were dropped, for whoever follows a `kid` that is a DID URL."""
    did = did_of(issuer)
    listed = [key for key in json.loads(receipts)["keys"] if "revoked" not in key]
    methods = [
        {
            "id": f"{did}#{key['kid']}",
            "type": "JsonWebKey",
            "controller": did,
            "publicKeyJwk": {name: value for name, value in key.items() if name not in ("nbf", "exp")},
        }
        for key in listed
    ]
    return json_bytes(
        {
            "@context": ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/jwk/v1"],
            "id": did,
            "verificationMethod": methods,
            "assertionMethod": [method["id"] for method in methods],
        }
    )


def _retired(key: SigningKey, now: Millis) -> bool:
    return key.retires_at is not None and key.retires_at <= now


def is_retired(row: Row, now: Millis) -> bool:
    """Whether a row of `signing_keys` is published no more: its time is over, or its secret part was destroyed."""
    return not row["sealed_private"] or (row["retires_at"] is not None and row["retires_at"] <= now)


def never_signed(row: Row) -> bool:
    """Whether it was dropped before its time to sign came."""
    return row["retires_at"] is not None and row["retires_at"] <= row["signs_from"]


def etag(document: bytes) -> str:
    return f'"{hashlib.sha256(document).hexdigest()[:32]}"'


def rows(db: Db) -> list[Row]:
    """A job. Unsealing is left to the caller: it is no business of the store's thread."""
    found: list[Row] = []
    last = (-1, "")
    while True:  # in pages: those that were dropped stay for a while, and somebody may rotate often
        page = db.fetch_all(
            "SELECT * FROM signing_keys WHERE (signs_from, kid) > (?, ?) ORDER BY signs_from, kid LIMIT ?",
            *last,
            PAGE,
        )
        found += [row for row in page if sealed_rows.fits(db, sealed_rows.SIGNING_KEYS, row)]
        if len(page) < PAGE:
            return found
        last = (page[-1]["signs_from"], page[-1]["kid"])


# Rows of `signing_keys` and of `refresh_keys`.
Found = tuple[Sequence[Row], Sequence[Row]]


def every(db: Db) -> Found:
    """A job: what `Keys` holds."""
    return rows(db), refresh_keys.rows(db)


def insert(db: Db, key: SealedKey) -> None:
    sealed_rows.insert(db, sealed_rows.SIGNING_KEYS, asdict(key))
    db.changed("key", key.kid)


class Keys:
    """The rings in use, for access and for refresh tokens, and whether the store has newer ones. One per process; it only
    caches what the store holds."""

    def __init__(self, found: Found, *, subkey: Callable[[str], bytes]) -> None:
        self._subkey = subkey
        self._changes = 0  # heard of
        self._read = 0  # of them, seen by the read that the rings are from
        self.ring, self.refresh, self.receipts = self._open(found)  # the last: a document
        self.stale = False  # then `reload` before anything is signed or checked
        self.trusted = True  # what others change is heard of
        self.shared = False  # there are others, who may use a new key before it is known here
        self._looked_at: Millis = 0

    def trust(self, trusted: bool) -> None:
        """With False: they are read again whenever somebody needs them."""
        self.trusted = trusted
        if not trusted:
            self.changed()

    def may_be_new(self, now: Millis) -> bool:
        """Of a key that is not known here, made by others a moment ago: whether it is looked for. Whoever makes names up has one look a
        second."""
        if not self.shared or self._looked_at <= now < self._looked_at + LOOK_AGAIN_MS:
            return False
        self._looked_at = now
        self.changed()
        return True

    def changed(self) -> None:
        self._changes += 1
        self.stale = True

    async def reload(self, read: Callable[[], Awaitable[Found]]) -> None:
        """Until it returns the rings are stale for everybody; a read that was overtaken does not bring an old ring back."""
        seen = self._changes
        found = await read()
        if seen >= self._read:
            (self.ring, self.refresh, self.receipts), self._read = self._open(found), seen
            self.stale = self._read < self._changes

    def _open(self, found: Found) -> tuple[SigningKeys, RefreshRing, bytes]:
        signing, refresh = found
        seal_key, refresh_seal_key = self._subkey(SEAL_PURPOSE), self._subkey(refresh_keys.SEAL_PURPOSE)
        return (
            SigningKeys([unseal(row, seal_key) for row in signing if row["sealed_private"]]),
            RefreshRing(
                [refresh_keys.unseal(row, refresh_seal_key) for row in refresh if row["sealed_secret"]]
            ),
            receipt_keys(signing),
        )
