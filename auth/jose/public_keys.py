"""Public keys of programs and of identity providers, which sign what they say (RFC 7517, RFC 7518 §6, RFC 8037 §2): reading and using them.

The key says which algorithm it is for, never the token. A set that holds anything secret is refused whole: its owner has to
learn that it was given away. Where the keys of clients come from is in clients/client_key_sets.py, those of
providers in providers/provider_requests.py.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from auth.jose import es256
from auth.jose.base64url import pack, unpack
from auth.values.compact_json import json_bytes

ALGORITHMS: Final = ("ES256", "RS256", "PS256", "EdDSA", "Ed25519")
SET_BYTES: Final = 16 * 1_024
KEYS: Final = 10
KID_LENGTH: Final = 256
RSA_BITS: Final = (2_048, 8_192)

_SECRET_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_CURVE_BYTES: Final = 32
# The members that make a key of each kind, and its thumbprint.
_THUMBPRINT_MEMBERS: Final = MappingProxyType(
    {"EC": ("crv", "kty", "x", "y"), "RSA": ("e", "kty", "n"), "OKP": ("crv", "kty", "x")}
)
_THUMBPRINT: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # SHA-256 as base64url without padding


class BadKeys(ValueError):
    """No usable set of public keys. The text continues "jwks: …"."""


class PublicKey(msgspec.Struct, frozen=True, kw_only=True):
    kid: str  # empty where it has none
    algorithms: frozenset[str]
    key: Any  # of `cryptography`: an EC, RSA or Ed25519 public key

    def is_signed(self, signed: bytes, signature: bytes, algorithm: str) -> bool:
        """Whether `signature` over `signed` is this key's, by an algorithm that is the key's own."""
        if algorithm not in self.algorithms:
            return False
        try:
            if algorithm == es256.ALGORITHM:
                return es256.verifies(self.key, signed, signature)
            if algorithm in ("RS256", "PS256"):
                self.key.verify(signature, signed, _rsa_padding(algorithm), SHA256())
            else:
                self.key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True


def read_set(document: object) -> tuple[PublicKey, ...]:
    """The usable keys of a decoded JWK set, at least one. Kinds that we do not know are passed over (RFC 7517 §5)."""
    listed = _members(document).get("keys")
    if not isinstance(listed, list):
        raise BadKeys("is an object with a list called keys")
    entries = cast("list[object]", listed)
    if len(entries) > KEYS:
        raise BadKeys(f"holds at most {KEYS} keys")
    found = [key for entry in entries if (key := read_key(entry)) is not None]
    if not found:
        raise BadKeys(f"holds no public key for one of {', '.join(ALGORITHMS)}")
    return tuple(found)


def parse_set(body: bytes) -> tuple[PublicKey, ...]:
    """The same from text, as a stranger's server gives it."""
    if len(body) > SET_BYTES:
        raise BadKeys(f"has more than {SET_BYTES} bytes")
    try:
        return read_set(json.loads(body))
    except (RecursionError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadKeys("is not JSON") from error


def select(keys: Sequence[PublicKey], kid: str) -> tuple[PublicKey, ...]:
    """Those that a signature of this kid may be from: the one of that name; all of them only where it names none."""
    return tuple(key for key in keys if key.kid == kid) if kid else tuple(keys)


def set_from_text(text: str) -> str:
    """A JWK set, as we store it, from what an operator has: a PEM public key, a JWK or a JWK set. Raises `BadKeys`."""
    if len(text) > SET_BYTES:
        raise BadKeys(f"has more than {SET_BYTES} characters")
    if is_secret(text):
        raise BadKeys("holds a private key: give the public one, and take this one for known to others")
    if "-----BEGIN" in text:
        return json_bytes({"keys": [_jwk_of_pem(text)]}).decode()
    try:
        document = {"keys": _listed(json.loads(text))}
    except (RecursionError, ValueError) as error:
        raise BadKeys("is neither a PEM public key nor a JWK") from error
    read_set(document)
    return json_bytes(document).decode()


def is_secret(text: str) -> bool:
    """Whether a key file holds more than a public key, as far as its form tells; for whoever is about to send it somewhere."""
    if "PRIVATE KEY" in text:
        return True
    try:
        return any(_gives_away(entry) for entry in _listed(json.loads(text)))
    except (RecursionError, ValueError):
        return False


def _listed(document: object) -> list[object]:
    """The keys of a JWK set, or the one key that is none."""
    listed = _members(document).get("keys", [document])
    return cast("list[object]", listed) if isinstance(listed, list) else [document]


def _gives_away(entry: object) -> bool:
    return not _SECRET_MEMBERS.isdisjoint(_members(entry))


def _members(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def read_key(entry: object) -> PublicKey | None:
    """One public key; None for a kind, or a use, that is not ours. Raises `BadKeys` for what holds a secret or makes no key."""
    if not isinstance(entry, dict):
        raise BadKeys("holds something that is no key")
    jwk = _members(cast("object", entry))
    if _gives_away(jwk) or jwk.get("kty") == "oct":
        raise BadKeys("holds a secret: only public keys are registered")
    kid = jwk.get("kid", "")
    if not isinstance(kid, str) or len(kid) > KID_LENGTH:
        raise BadKeys("has a kid that is no short text")
    usable = _KINDS.get(f"{jwk.get('kty')} {jwk.get('crv', '')}".rstrip())
    if usable is None or jwk.get("use", "sig") != "sig":
        return None
    algorithms, load = usable
    named = jwk.get("alg")
    if named is not None:
        algorithms &= _SPELLINGS.get(named, frozenset({named})) if isinstance(named, str) else frozenset()
        if not algorithms:
            return None
    try:
        return PublicKey(kid=kid, algorithms=algorithms, key=load(jwk))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadKeys("has a key whose members do not make one") from error


def _load_ec(jwk: Mapping[str, Any]) -> Any:
    x, y = _number(jwk["x"]), _number(jwk["y"])
    return ec.EllipticCurvePublicNumbers(
        x, y, ec.SECP256R1()
    ).public_key()  # raises where it is off the curve


def _load_rsa(jwk: Mapping[str, Any]) -> Any:
    from cryptography.hazmat.primitives.asymmetric import rsa  # rarely needed, and not free to load

    n, e = _number(jwk["n"]), _number(jwk["e"])
    low, high = RSA_BITS
    # A large exponent would make one check cost as much as thousands.
    if not low <= n.bit_length() <= high or not 3 <= e < 2**32:
        raise ValueError("a size that nobody uses")
    return rsa.RSAPublicNumbers(e, n).public_key()


def _load_ed25519(jwk: Mapping[str, Any]) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ed25519

    return ed25519.Ed25519PublicKey.from_public_bytes(unpack(jwk["x"]))


def _rsa_padding(algorithm: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric import padding

    if algorithm == "RS256":
        return padding.PKCS1v15()
    return padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)  # RFC 7518 §3.5


_EDWARDS: Final = frozenset({"EdDSA", "Ed25519"})  # RFC 9864 renamed it; both names are about
_SPELLINGS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(dict.fromkeys(_EDWARDS, _EDWARDS))
_Kind: TypeAlias = tuple[frozenset[str], Callable[[Mapping[str, Any]], Any]]
_KINDS: Final[Mapping[str, _Kind]] = MappingProxyType(
    {
        "EC P-256": (frozenset({"ES256"}), _load_ec),
        "RSA": (frozenset({"RS256", "PS256"}), _load_rsa),
        "OKP Ed25519": (_EDWARDS, _load_ed25519),
    }
)


def _number(text: object) -> int:
    if not isinstance(text, str) or len(text) > 2 * RSA_BITS[1] // 8:
        raise ValueError("no number")
    return int.from_bytes(unpack(text), "big")


def _jwk_of_pem(text: str) -> dict[str, str]:
    from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, TypeError) as error:
        raise BadKeys("is not a PEM public key") from error
    match key:
        case ec.EllipticCurvePublicKey() if isinstance(key.curve, ec.SECP256R1):
            numbers = key.public_numbers()
            point = {
                name: pack(value.to_bytes(_CURVE_BYTES, "big"))
                for name, value in (("x", numbers.x), ("y", numbers.y))
            }
            jwk = {"kty": "EC", "crv": "P-256", **point}
        case rsa.RSAPublicKey():
            numbers = key.public_numbers()
            parts = {
                name: pack(value.to_bytes((value.bit_length() + 7) // 8, "big"))
                for name, value in (("n", numbers.n), ("e", numbers.e))
            }
            jwk = {"kty": "RSA", **parts}
        case ed25519.Ed25519PublicKey():
            jwk = {
                "kty": "OKP",
                "crv": "Ed25519",
                "x": pack(key.public_bytes(Encoding.Raw, PublicFormat.Raw)),
            }
        case _:
            raise BadKeys("is of a kind that is not used here: P-256, RSA and Ed25519 are")
    read_set({"keys": [jwk]})  # its size, too
    return jwk


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """A name for a key that follows from the key (RFC 7638, RFC 8037 §2). Raises KeyError for a kind that is not used here."""
    members = {name: jwk[name] for name in _THUMBPRINT_MEMBERS[jwk["kty"]]}
    return pack(hashlib.sha256(json.dumps(members, separators=(",", ":"), sort_keys=True).encode()).digest())


def is_thumbprint(text: str) -> bool:
    return _THUMBPRINT.fullmatch(text) is not None
