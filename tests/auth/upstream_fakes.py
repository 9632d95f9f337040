"""Providers to sign in with, on real sockets: an OpenID Connect one with keys of its own, and one that looks like GitHub.

They keep to the rules by themselves (PKCE, codes that count once, client secrets), so that we fail where a real one would
refuse us; everything that they say can be changed, to lie.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

CLIENT = "ostiary-here"
SECRET = "a secret of ours & theirs"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


def pack(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def number(value: int) -> str:
    return pack(value.to_bytes((value.bit_length() + 7) // 8))


class Key:
    def __init__(self, algorithm: str, kid: str) -> None:
        self.algorithm, self.kid = algorithm, kid
        self.private: Any = (
            ec.generate_private_key(ec.SECP256R1())
            if algorithm == "ES256"
            else rsa.generate_private_key(public_exponent=65537, key_size=2048)
        )

    @property
    def jwk(self) -> dict[str, str]:
        numbers = self.private.public_key().public_numbers()
        if self.algorithm == "ES256":
            shape = {
                "kty": "EC",
                "crv": "P-256",
                "x": pack(numbers.x.to_bytes(32)),
                "y": pack(numbers.y.to_bytes(32)),
            }
        else:
            shape = {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
        return {"kid": self.kid, "alg": self.algorithm, "use": "sig", **shape}

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        head = {"alg": self.algorithm, "kid": self.kid, "typ": "JWT"} | header
        signed = f"{pack(json.dumps(head).encode())}.{pack(json.dumps(claims).encode())}"
        return f"{signed}.{pack(self.signature(head['alg'], signed.encode()))}"

    def signature(self, algorithm: str, signed: bytes) -> bytes:
        if algorithm == "none":
            return b""
        if algorithm == "HS256":  # with what both know
            mac = hmac.HMAC(SECRET.encode(), hashes.SHA256())
            mac.update(signed)
            return mac.finalize()
        if isinstance(self.private, ec.EllipticCurvePrivateKey):
            r, s = decode_dss_signature(self.private.sign(signed, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32) + s.to_bytes(32)
        scheme = (
            padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)
            if algorithm == "PS256"
            else padding.PKCS1v15()
        )
        return self.private.sign(signed, scheme, hashes.SHA256())


class FakeProvider:
    """OpenID Connect, or GitHub where `github` is set."""

    def __init__(self, clock: Callable[[], int], *, github: bool = False) -> None:
        self.clock = clock
        self.github = github
        self.origin = ""
        self.key = Key("ES256", "first")
        self.published: list[object] = [self.key.jwk]
        self.claims: dict[str, Any] = {}  # laid over those of an id token
        self.header: dict[str, Any] = {}
        self.discovery: dict[str, Any] = {}
        self.user: dict[str, Any] = {"id": 583231, "login": "Octocat"}
        self.subject = "sub-of-ann"
        self.says_who = True
        self.broken: dict[str, tuple[int, bytes]] = {}  # path → what is answered instead
        self.asked: list[str] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: set[str] = set()
        self.programs: dict[str, str] = {}  # those it vouches to: client id there → client id at our server
        self.vouched: list[dict[str, Any]] = []

    # ------------------------------------------------------------ what a person does there

    def agree(self, url: str) -> str:
        """The person signs in; where their browser is sent then."""
        parts = urlsplit(url)
        assert f"{parts.scheme}://{parts.netloc}" == self.origin
        asked = dict(parse_qsl(parts.query, strict_parsing=True))
        assert asked["response_type"] == "code" and asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256" and len(asked["code_challenge"]) == 43
        assert len(asked["state"]) >= 43
        code = secrets.token_urlsafe(24)
        self.codes[code] = asked
        answer = {"code": code, "state": asked["state"]}
        if self.says_who and not self.github:
            answer["iss"] = self.origin
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    # ------------------------------------------------------------ what a server asks there

    def answer(self, method: str, path: str, headers: dict[str, str], body: str) -> tuple[int, object]:
        self.asked.append(f"{method} {path}")
        if path in self.broken:
            return self.broken[path]
        match method, path:
            case "GET", "/.well-known/openid-configuration" if not self.github:
                return 200, {
                    "issuer": self.origin,
                    "authorization_endpoint": f"{self.origin}/authorize",
                    "token_endpoint": f"{self.origin}/token",
                    "jwks_uri": f"{self.origin}/keys",
                    "authorization_response_iss_parameter_supported": self.says_who,
                } | self.discovery
            case "GET", "/keys":
                return 200, {"keys": self.published}
            case "POST", "/token":
                form = dict(parse_qsl(body, strict_parsing=True))
                exchange = form.get("grant_type") == TOKEN_EXCHANGE
                return self._vouch(form) if exchange else self._redeem(headers, form)
            case "POST", "/login/oauth/access_token":
                return self._redeem(headers, dict(parse_qsl(body, strict_parsing=True)))
            case "GET", "/api/v3/user":
                known = headers.get("authorization", "").removeprefix("Bearer ") in self.tokens
                return (200, self.user) if known else (401, {"message": "Bad credentials"})
            case _:
                return 404, {}

    def _redeem(self, headers: dict[str, str], form: dict[str, str]) -> tuple[int, object]:
        asked = self.codes.pop(form["code"], None)
        challenge = pack(hashlib.sha256(form["code_verifier"].encode()).digest())
        basic = base64.b64decode(headers.get("authorization", "").removeprefix("Basic ")).decode()
        shown = (
            dict(parse_qsl(urlencode({"s": form.get("client_secret", "")}))).get("s")
            if self.github or self.discovery
            else next(iter(parse_qs("s=" + basic.partition(":")[2]).get("s", [])), None)
        )
        if (
            asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form["redirect_uri"]
            or shown != SECRET
        ):
            return (200 if self.github else 400), {"error": "invalid_grant"}
        token = secrets.token_urlsafe(24)
        self.tokens.add(token)
        said: dict[str, Any] = {"access_token": token, "token_type": "bearer"}
        if not self.github:
            seconds = self.clock() // 1_000
            claims = {
                "iss": self.origin,
                "sub": self.subject,
                "aud": CLIENT,
                "iat": seconds,
                "exp": seconds + 300,
                "nonce": asked["nonce"],
            } | self.claims
            claims = {name: value for name, value in claims.items() if value is not None}
            said["id_token"] = self.key.sign(claims, **self.header)
        return 200, said

    def id_token(self, client_id: str) -> str:
        """Of a person who has signed in to another program than us."""
        seconds = self.clock() // 1_000
        claims = {
            "iss": self.origin,
            "sub": self.subject,
            "aud": client_id,
            "iat": seconds,
            "exp": seconds + 300,
        }
        token = self.key.sign(claims)
        self.tokens.add(token)
        return token

    def _vouch(self, form: dict[str, str]) -> tuple[int, object]:
        """RFC 8693, as the Identity Assertion JWT Authorization Grant has it (§4.3)."""
        known = self.programs.get(form["client_id"])
        if (
            known is None
            or form["subject_token"] not in self.tokens
            or form["requested_token_type"] != ID_JAG
        ):
            return 400, {"error": "invalid_grant"}
        seconds = self.clock() // 1_000
        claims: dict[str, Any] = {
            "iss": self.origin,
            "sub": self.subject,
            "aud": form["audience"],
            "client_id": known,
            "jti": secrets.token_urlsafe(16),
            "iat": seconds,
            "exp": seconds + 300,
        }
        claims |= {name: form[name] for name in ("resource", "scope") if name in form}
        self.vouched.append(claims)
        return 200, {
            "issued_token_type": ID_JAG,
            "access_token": self.key.sign(claims, typ="oauth-id-jag+jwt"),
            "token_type": "N_A",
            "expires_in": 300,
        }


@contextmanager
def provided(clock: Callable[[], int], *, github: bool = False) -> Generator[FakeProvider]:
    provider = FakeProvider(clock, github=github)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply()

        def do_POST(self) -> None:
            self._reply()

        def _reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            if self.command == "GET" and self.path.startswith(("/authorize?", "/login/oauth/authorize?")):
                self.send_response(303)
                self.send_header("location", provider.agree(provider.origin + self.path))
                self.send_header("content-length", "0")
                self.end_headers()
                return
            status, said = provider.answer(self.command, self.path, headers, body)
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    provider.origin = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join(60)
