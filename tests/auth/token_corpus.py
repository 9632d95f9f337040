"""Tokens that are not ours, or not any more, made from one that is (RFC 8725): what every door must refuse.

With our own private key over wrong content, with other keys over right content, and with bytes that are no token at all.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from auth.jose.base64url import pack, unpack
from auth.keys.signing_keys import SigningKey

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
Json = Mapping[str, Any]


class Forge:
    """Makes tokens of every kind from what a good one says."""

    def __init__(self, key: SigningKey, good: str) -> None:
        self.key = key
        self.good = good
        head, payload, signature = good.split(".")
        self.head: Json = json.loads(unpack(head))
        self.claims: Json = json.loads(unpack(payload))
        self.signature = unpack(signature)

    def token(self, head: Json | str | None = None, claims: Json | str | None = None, **how: Any) -> str:
        """Signed with our key, whatever it says. A text is taken as it is, so that it may be no proper JSON."""
        body = f"{self._part(self.head, head)}.{self._part(self.claims, claims)}"
        sign: Callable[[bytes], bytes] = how.get("sign", self.sign)
        return f"{body}.{pack(sign(body.encode()))}"

    def headed(self, **changes: Any) -> str:
        return self.token(head=_changed(self.head, changes))

    def claiming(self, **changes: Any) -> str:
        return self.token(claims=_changed(self.claims, changes))

    def signed_with(self, signature: bytes) -> str:
        return f"{self.good.rpartition('.')[0]}.{pack(signature)}"

    def sign(self, data: bytes, key: ec.EllipticCurvePrivateKey | None = None) -> bytes:
        r, s = decode_dss_signature((key or self.key.key).sign(data, ec.ECDSA(SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def _part(self, usual: Json, given: Json | str | None) -> str:
        text = given if isinstance(given, str) else json.dumps(usual if given is None else given)
        return pack(text.encode("utf-8", "surrogatepass"))


def corpus(forge: Forge) -> dict[str, str]:
    """Name → token. None of them may open anything."""
    key, now = forge.key.key, int(forge.claims["iat"])
    return {
        **_algorithms(forge),
        **_headers(forge),
        **_claims(forge, now),
        **_signatures(forge, key),
        **_shapes(forge),
    }


def _algorithms(forge: Forge) -> dict[str, str]:
    public = forge.key.key.public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    jwk = json.dumps(dict(forge.key.public), separators=(",", ":")).encode()
    point = public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    rsa_key = rsa.generate_private_key(65537, 2048)
    p384 = ec.generate_private_key(ec.SECP384R1())

    def mac(secret: bytes, digest: str = "sha256") -> Callable[[bytes], bytes]:
        return lambda data: hmac.digest(secret, data, digest)

    hs = _changed(forge.head, {"alg": "HS256"})
    made = {
        f"alg {name!r}, unsigned": forge.token(head=_changed(forge.head, {"alg": name}), sign=lambda _: b"")
        for name in ("none", "None", "NONE", "nOnE", "")
    }
    made |= {
        f"alg {name!r}, our own signature": forge.headed(alg=name)
        for name in (
            "none",
            "es256",
            "ES256 ",
            "ES384",
            "ES512",
            "ES256K",
            "EdDSA",
            "RS256",
            "PS256",
            "HS256",
        )
    }
    made |= {
        f"alg {value!r}": forge.headed(alg=value) for value in (None, 0, True, ["ES256"], {"name": "ES256"})
    }
    return made | {
        "HS256 with the public PEM": forge.token(head=hs, sign=mac(pem)),
        "HS256 with the public PEM, stripped": forge.token(head=hs, sign=mac(pem.strip())),
        "HS256 with the public DER": forge.token(head=hs, sign=mac(der)),
        "HS256 with the public JWK": forge.token(head=hs, sign=mac(jwk)),
        "HS256 with the public point": forge.token(head=hs, sign=mac(point)),
        "HS256 with the kid": forge.token(head=hs, sign=mac(forge.key.kid.encode())),
        "HS256 with nothing": forge.token(head=hs, sign=mac(b"")),
        "a MAC under our own name ES256": forge.token(sign=mac(pem, "sha512")),
        "RS256 with another's key": forge.token(
            head=_changed(forge.head, {"alg": "RS256"}),
            sign=lambda data: rsa_key.sign(data, padding.PKCS1v15(), SHA256()),
        ),
        "ES384 with another's key": forge.token(
            head=_changed(forge.head, {"alg": "ES384"}), sign=lambda data: p384.sign(data, ec.ECDSA(SHA384()))
        ),
    }


def _headers(forge: Forge) -> dict[str, str]:
    other = ec.generate_private_key(ec.SECP256R1())
    numbers = other.public_key().public_numbers()
    jwk = {
        "kty": "EC",
        "crv": "P-256",
        "x": pack(numbers.x.to_bytes(32, "big")),
        "y": pack(numbers.y.to_bytes(32, "big")),
    }
    evil = "https://evil.example/keys.json"

    def foreign(**head: Any) -> str:
        return forge.token(head=_changed(forge.head, head), sign=lambda data: forge.sign(data, other))

    types = (
        "JWT",
        "jwt",
        "id_token+jwt",
        "dpop+jwt",
        "oauth-authz-req+jwt",
        "secevent+jwt",
        "at+jwt ",
        "at-jwt",
    )
    return {
        **{f"typ {value!r}": forge.headed(typ=value) for value in (None, "", 7, ["at+jwt"], *types)},
        **{
            f"kid {value!r}": forge.headed(kid=value)
            for value in (
                None,
                "",
                "unknown",
                forge.key.kid + " ",
                forge.key.kid[:-1],
                0,
                [forge.key.kid],
                "\ud800",
            )
        },
        "kid that is a path": forge.headed(kid="../../etc/passwd"),
        "kid that is SQL": forge.headed(kid="' OR 1=1 --"),
        "jwk in the header": foreign(jwk=jwk),
        "jwk in the header, no kid": foreign(jwk=jwk, kid=None),
        "jwk in the header with its own kid": foreign(jwk={**jwk, "kid": "mine"}, kid="mine"),
        "jku elsewhere": foreign(jku=evil),
        "jku elsewhere, its kid": foreign(jku=evil, kid="theirs"),
        "x5u elsewhere": foreign(x5u=evil),
        "x5c in the header": foreign(x5c=["MIIB"], x5t="abc"),
        "crit exp": forge.headed(crit=["exp"]),
        "crit b64": forge.headed(crit=["b64"], b64=False),
        "crit empty": forge.headed(crit=[]),
        "crit null": forge.token(head={**forge.head, "crit": None}),
        "alg twice": forge.token(head=_twice(forge.head, "alg", "none")),
        "kid twice": forge.token(head=_twice(forge.head, "kid", forge.key.kid)),
        "typ twice": forge.token(head=_twice(forge.head, "typ", "JWT")),
        "header that is a list": forge.token(head=json.dumps([forge.head])),
        "header that is a text": forge.token(head='"ES256"'),
        "header that is null": forge.token(head="null"),
        "header with a byte order mark": forge.token(head="\ufeff" + json.dumps(forge.head)),
        "header in UTF-16": f"{pack(json.dumps(forge.head).encode('utf-16'))}.{forge.good.partition('.')[2]}",
        "header nested without end": forge.token(head='{"a":' * 1_500),
        "compressed, as JWE says": forge.headed(zip="DEF", enc="A128GCM", alg="dir"),
    }


def _claims(forge: Forge, now: int) -> dict[str, str]:
    issuer, audience = str(forge.claims["iss"]), str(forge.claims["aud"])
    made = {
        f"{name} {value!r}": forge.claiming(**{name: value})
        for name, values in {
            "iss": (None, "", issuer + "/", issuer.upper(), "https://evil.example", [issuer], 7, issuer + "\u200b"),
            "aud": (
                None, "", [audience], [audience, "https://evil.example"], [], audience + "/", issuer, "*",
                audience + "/x", audience.upper(), {"aud": audience}, "https://evil.example/mcp", issuer + "/other/mcp",
            ),
            "sub": (None, "", 7, "usr_somebody_else", [forge.claims["sub"]]),
            "sid": (None, "", 7, "grt_somebody_else", [forge.claims["sid"]], "' OR 1=1 --"),
            "client_id": (None, "", 7, "somebody-else"),
            "scope": (None, "", 7, ["mcp"]),
            "exp": (
                None, now - 31, 0, -1, str(now + 3_600), float(now + 3_600), True, 1e300, [now + 3_600], "never",
            ),
            "iat": (None, now + 61 + 600, str(now), float(now), True, [now]),
            "nbf": (now + 3_600, "later", None.__class__.__name__, True),
        }.items()
        for value in values
    }  # fmt: skip
    return made | {
        "exp NaN": forge.token(claims=json.dumps({**forge.claims, "exp": float("nan")})),
        "exp Infinity": forge.token(claims=json.dumps({**forge.claims, "exp": float("inf")})),
        "exp of 5 000 digits": forge.token(
            claims=json.dumps(forge.claims).replace(str(forge.claims["exp"]), "9" * 5_000)
        ),
        "aud twice": forge.token(claims=_twice(forge.claims, "aud", "https://evil.example")),
        "aud twice, the same": forge.token(claims=_twice(forge.claims, "aud", audience)),
        "sub twice, once escaped": forge.token(
            claims=json.dumps(forge.claims)[:-1] + ', "\\u0073ub": "usr_root"}'
        ),
        "claims that are a list": forge.token(claims="[]"),
        "claims that are empty": forge.token(claims="{}"),
        "claims cut off": forge.token(claims=json.dumps(forge.claims)[:-5]),
        "claims with something after": forge.token(claims=json.dumps(forge.claims) + "{}"),
        "claims nested without end": forge.token(claims='{"a":' * 1_500),
        "a token within the token": forge.token(claims=json.dumps(forge.good)),
        "9 KiB": forge.claiming(pad="x" * 9 * 1_024),
    }


def _signatures(forge: Forge, key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    body = forge.good.rpartition(".")[0].encode()
    r, s = forge.signature[:32], forge.signature[32:]
    zero, order, one = bytes(32), P256_ORDER.to_bytes(32, "big"), (1).to_bytes(32, "big")
    return {
        "no signature": forge.signed_with(b""),
        "r and s zero": forge.signed_with(zero + zero),
        "r zero": forge.signed_with(zero + s),
        "s zero": forge.signed_with(r + zero),
        "r and s one": forge.signed_with(one + one),
        "r and s the order": forge.signed_with(order + order),
        "r and s at most": forge.signed_with(b"\xff" * 64),
        "r and s swapped": forge.signed_with(s + r),
        "cut by a byte": forge.signed_with(forge.signature[:-1]),
        "half": forge.signed_with(r),
        "a byte more": forge.signed_with(forge.signature + b"\0"),
        "a byte before": forge.signed_with(b"\0" + forge.signature),
        "twice": forge.signed_with(forge.signature * 2),
        "one bit over": forge.signed_with(r + bytes([s[0] ^ 1]) + s[1:]),
        "DER": forge.signed_with(key.sign(body, ec.ECDSA(SHA256()))),
        "of the hash of the hash": forge.signed_with(forge.sign(hashlib.sha256(body).digest())),
        "of the claims alone": forge.signed_with(forge.sign(body.partition(b".")[2])),
        "of another token": forge.signed_with(forge.sign(b"another" + body)),
        "another's": forge.signed_with(forge.sign(body, ec.generate_private_key(ec.SECP256R1()))),
    }


def _shapes(forge: Forge) -> dict[str, str]:
    head, payload, signature = forge.good.split(".")
    flattened = json.dumps({"protected": head, "payload": payload, "signature": signature})
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    # 64 bytes leave four bits of the last letter unused: another letter there decodes to the same bytes.
    sibling = last[last.index(signature[-1]) ^ 1]
    return {
        "a word": "token",
        "dots": "..",
        "one dot": f"{head}.{payload}",
        "no header": f".{payload}.{signature}",
        "no claims": f"{head}..{signature}",
        "a dot too many": f"{forge.good}.",
        "four parts": f"{forge.good}.{signature}",
        "five parts, as JWE": f"{forge.good}.{signature}.{signature}",
        "twice, with a comma": f"{forge.good},{forge.good}",
        "in quotes": f'"{forge.good}"',
        "with padding": f"{forge.good}==",
        "padding inside": f"{head}==.{payload}.{signature}",
        "the last letter's unused bits": f"{head}.{payload}.{signature[:-1]}{sibling}",
        "plain base64": f"{head}.{payload}.{base64.b64encode(forge.signature).decode()}",
        "a letter from elsewhere": f"{head}.{payload}.\u0430{signature[1:]}",
        "percent signs": forge.good.replace(".", "%2e"),
        "a line end inside": f"{head}.{payload[:9]}\\n{payload[9:]}.{signature}",
        "JSON serialization": flattened,
        "a refresh token": "rt1.grt_abc.1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "9 KiB of letters": "a" * 9 * 1_024,
        "9 KiB of dots": "." * 9 * 1_024,
    }


def _changed(values: Json, changes: Json) -> dict[str, Any]:
    return {name: value for name, value in {**values, **changes}.items() if value is not None}


def _twice(values: Json, name: str, value: str) -> str:
    return f"{json.dumps(dict(values))[:-1]}, {json.dumps(name)}: {json.dumps(value)}}}"
