"""A certificate authority in memory, strict in what it takes: signatures, numbers used once, states of orders (RFC 8555). What it does wrong,
a test says. Its clock is the test's.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import MappingProxyType
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID, ObjectIdentifier

from auth.jose import es256
from auth.jose.base64url import pack, unpack
from auth.jose.public_keys import thumbprint
from server.certificates.certificate_troubles import CertificateTrouble
from server.certificates.name_proofs import Proofs
from server.lib.http_client.http_client import HttpAnswer
from server.lib.http_client.response_head import ResponseHead

ORIGIN = "https://ca.test"
DIRECTORY = f"{ORIGIN}/directory"
DAY = 86_400.0
ACME_IDENTIFIER = ObjectIdentifier("1.3.6.1.5.5.7.1.31")

# Whether a proof is there, given its way, name, token and key authorization: None, or (kind, detail).
Look = Callable[[str, str, str, str], Awaitable[tuple[str, str] | None]]


def acme_answer(status: int, body: bytes, headers: Mapping[str, str] = MappingProxyType({})) -> HttpAnswer:
    """Return an answer as if it had come over the network; headers without a value are left out."""
    fields = tuple((name.encode(), value.encode()) for name, value in headers.items() if value)
    return HttpAnswer(
        head=ResponseHead(status, fields, len(body), keep_alive=False, encoded=False), body=body
    )


@dataclass
class FakeOrder:
    account: str
    names: list[str]
    status: str = "pending"
    replaces: str = ""
    profile: str = ""
    certificate: bytes = b""
    error: dict[str, Any] | None = None
    proved: dict[str, str] = field(default_factory=dict)  # name → status of its authorization
    errors: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)


@dataclass
class FakeAuthority:
    """`AsksAuthority`. `faults`: (part of a path, what is answered or raised instead), each used once."""

    clock: Callable[[], float]
    look: Look
    life_seconds: float = 90 * DAY
    ahead_seconds: float = 0.0
    external_accounts: dict[str, str] = field(default_factory=dict)  # then one is required
    offered: tuple[str, ...] = ("http-01", "tls-alpn-01", "dns-01")
    suggests: Callable[[], tuple[float, float]] | None = None
    finishes_later: bool = False  # an order is "processing" once before it is "valid"
    faults: list[tuple[str, HttpAnswer | Exception]] = field(default_factory=list)
    down: bool = False
    asked: list[str] = field(default_factory=list)
    accounts: dict[str, dict[str, Any]] = field(default_factory=dict)  # address → key and status
    orders: list[FakeOrder] = field(default_factory=list)
    revoked: list[tuple[str, int, str]] = field(default_factory=list)  # serial, reason, by "account" or "key"
    nonces: set[str] = field(default_factory=set)
    issued: dict[str, str] = field(default_factory=dict)  # serial → account

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Fake Authority")])

    def fault(
        self, path: str, kind: str, status: int = 400, *, retry_after: str = "", detail: str = "no"
    ) -> None:
        problem = {"type": f"urn:ietf:params:acme:error:{kind}", "detail": detail, "status": status}
        self.faults.append((path, self._reply(status, problem, retry_after=retry_after)))

    async def __call__(self, url: str, body: bytes | None, accept: str = "") -> HttpAnswer:
        assert url.startswith(ORIGIN), url
        path = url.removeprefix(ORIGIN)
        self.asked.append(path)
        if self.down:
            raise CertificateTrouble(
                "unreachable", "the certificate authority at ca.test cannot be reached: connection refused"
            )
        for place, (part, answer) in enumerate(self.faults):
            if part in path:
                del self.faults[place]
                if isinstance(answer, Exception):
                    raise answer
                return answer
        if body is None:
            return self._open(path)
        try:
            return await self._signed(url, path, body, accept)
        except Refused as refused:
            return self._reply(
                refused.status,
                {"type": f"urn:ietf:params:acme:error:{refused.kind}", "detail": refused.detail},
            )

    # ── what anybody may ask ─────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, path: str) -> HttpAnswer:
        if path == "/directory":
            told: dict[str, Any] = {
                "newNonce": f"{ORIGIN}/nonce",
                "newAccount": f"{ORIGIN}/account",
                "newOrder": f"{ORIGIN}/order",
                "revokeCert": f"{ORIGIN}/revoke",
                "keyChange": f"{ORIGIN}/key",
                "meta": {
                    "termsOfService": "https://ca.test/terms",
                    "externalAccountRequired": bool(self.external_accounts),
                },
            }
            if self.suggests is not None:
                told["renewalInfo"] = f"{ORIGIN}/renewal"
            return self._reply(200, told)
        if path == "/nonce":
            return self._reply(204)
        if path.startswith("/renewal/") and self.suggests is not None:
            start, end = (datetime.fromtimestamp(moment, UTC).isoformat() for moment in self.suggests())
            return self._reply(200, {"suggestedWindow": {"start": start, "end": end}}, retry_after="21600")
        return self._reply(404, {"type": "about:blank"})

    # ── what is signed ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _signed(self, url: str, path: str, body: bytes, accept: str) -> HttpAnswer:
        jws = json.loads(body)
        assert set(jws) == {"protected", "payload", "signature"}
        head = json.loads(unpack(jws["protected"]))
        assert head["alg"] == "ES256"
        assert head["url"] == url, "signed for another address"
        if head["nonce"] not in self.nonces:
            raise Refused("badNonce", "used, or never given out")
        self.nonces.remove(head["nonce"])
        assert ("jwk" in head) != ("kid" in head)
        account, jwk = "", head.get("jwk")
        if jwk is None:
            account = head["kid"]
            if account not in self.accounts:
                raise Refused("accountDoesNotExist", "no such account")
            if self.accounts[account]["status"] != "valid":
                raise Refused("unauthorized", "the account is deactivated", 403)
            jwk = self.accounts[account]["jwk"]
        key = public_key(jwk)
        assert es256.verifies(key, f"{jws['protected']}.{jws['payload']}".encode(), unpack(jws["signature"]))
        payload: Any = json.loads(unpack(jws["payload"])) if jws["payload"] else None
        if path == "/account":
            return self._account(url, jwk, payload)
        if path == "/revoke":
            return self._revoke(payload, account, jwk)
        assert account, "only an account may ask this"
        if path == "/order":
            return self._order(account, payload)
        kind, number, *rest = path.strip("/").split("/")
        order = self.orders[int(number)]
        if order.account != account:
            raise Refused("unauthorized", "not yours", 403)
        if kind == "orders":
            return self._shown(order)
        if kind == "authorizations":
            assert payload is None
            return self._reply(200, self._authorization(order, rest[0]))
        if kind == "challenges":
            return await self._challenge(order, rest[0], rest[1], payload, jwk)
        if kind == "finalize":
            return self._finalize(order, payload)
        assert kind == "certificates" and accept == "application/pem-certificate-chain"
        return self._reply(200, order.certificate, media_type="application/pem-certificate-chain")

    def _account(self, url: str, jwk: dict[str, str], payload: dict[str, Any]) -> HttpAnswer:
        assert payload["termsOfServiceAgreed"] is True
        known = [address for address, each in self.accounts.items() if each["jwk"] == jwk]
        if known:
            if self.accounts[known[0]]["status"] != "valid":
                raise Refused("unauthorized", "the account is deactivated", 403)
            return self._reply(200, {"status": "valid"}, location=known[0])
        if self.external_accounts:
            bound = payload["externalAccountBinding"]
            head = json.loads(unpack(bound["protected"]))
            assert head["alg"] == "HS256" and head["url"] == url and "nonce" not in head
            assert json.loads(unpack(bound["payload"])) == jwk
            secret = self.external_accounts.get(head["kid"])
            if secret is None:
                raise Refused("unauthorized", "no such customer", 403)
            mac = pack(
                hmac.digest(unpack(secret), f"{bound['protected']}.{bound['payload']}".encode(), "sha256")
            )
            assert mac == bound["signature"]
        address = f"{ORIGIN}/accounts/{len(self.accounts)}"
        self.accounts[address] = {"jwk": jwk, "status": "valid", "contact": payload.get("contact")}
        return self._reply(201, {"status": "valid"}, location=address)

    def _order(self, account: str, payload: dict[str, Any]) -> HttpAnswer:
        names = [each["value"] for each in payload["identifiers"]]
        assert all(each["type"] == "dns" for each in payload["identifiers"])
        order = FakeOrder(
            account, names, replaces=payload.get("replaces", ""), profile=payload.get("profile", "")
        )
        for name in names:
            order.proved[name] = "pending"
            order.tokens[name] = secrets.token_urlsafe(16)
        self.orders.append(order)
        return self._shown(order, status=201)

    def _shown(self, order: FakeOrder, status: int = 200) -> HttpAnswer:
        number = self.orders.index(order)
        told: dict[str, Any] = {
            "status": order.status,
            "identifiers": [{"type": "dns", "value": name} for name in order.names],
            "authorizations": [f"{ORIGIN}/authorizations/{number}/{name}" for name in order.names],
            "finalize": f"{ORIGIN}/finalize/{number}",
        }
        if order.status == "processing":
            order.status = "valid"
        elif order.status == "valid":
            told["certificate"] = f"{ORIGIN}/certificates/{number}"
        if order.error is not None:
            told["error"] = order.error
        return self._reply(status, told, location=f"{ORIGIN}/orders/{number}")

    def _authorization(self, order: FakeOrder, name: str) -> dict[str, Any]:
        number = self.orders.index(order)
        challenges: list[dict[str, Any]] = []
        for way in self.offered:
            challenge: dict[str, Any] = {
                "type": way,
                "url": f"{ORIGIN}/challenges/{number}/{name}/{way}",
                "token": order.tokens[name],
                "status": "pending",
            }
            if error := order.errors.get(f"{name} {way}"):
                challenge |= {"status": "invalid", "error": error}
            challenges.append(challenge)
        return {
            "identifier": {"type": "dns", "value": name},
            "status": order.proved[name],
            "challenges": challenges,
        }

    async def _challenge(
        self, order: FakeOrder, name: str, way: str, payload: Any, jwk: dict[str, str]
    ) -> HttpAnswer:
        assert payload == {}
        assert way in self.offered
        token = order.tokens[name]
        failed = await self.look(way, name, token, f"{token}.{thumbprint(jwk)}")
        if failed is None:
            order.proved[name] = "valid"
            if set(order.proved.values()) == {"valid"}:
                order.status = "ready"
        else:
            kind, detail = failed
            order.proved[name] = order.status = "invalid"
            order.errors[f"{name} {way}"] = {"type": f"urn:ietf:params:acme:error:{kind}", "detail": detail}
        return self._reply(200, {"type": way, "url": "", "status": "processing", "token": token})

    def _finalize(self, order: FakeOrder, payload: dict[str, Any]) -> HttpAnswer:
        if order.status != "ready":
            raise Refused("orderNotReady", "prove the names first", 403)
        request = x509.load_der_x509_csr(unpack(payload["csr"]))
        assert request.is_signature_valid
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert sorted(names.get_values_for_type(x509.DNSName)) == sorted(order.names)
        order.certificate = self.certificate(order.names, request.public_key())
        serial = x509.load_pem_x509_certificate(order.certificate).serial_number
        self.issued[f"{serial:x}"] = order.account
        order.status = "processing" if self.finishes_later else "valid"
        return self._shown(order)

    def _revoke(self, payload: dict[str, Any], account: str, jwk: dict[str, str]) -> HttpAnswer:
        leaf = x509.load_der_x509_certificate(unpack(payload["certificate"]))
        serial = f"{leaf.serial_number:x}"
        if account:
            if self.issued.get(serial) != account:
                raise Refused("unauthorized", "not yours", 403)
        else:
            assert leaf.public_key() == public_key(jwk)
        if any(serial == known for known, _, _ in self.revoked):
            raise Refused("alreadyRevoked", "it is")
        self.revoked.append((serial, payload["reason"], "account" if account else "key"))
        return self._reply(200)

    # ── what it gives ────────────────────────────────────────────────────────────────────────────────────────────────

    def certificate(self, names: list[str], key: Any, *, begins: float | None = None) -> bytes:
        start = self.clock() + self.ahead_seconds if begins is None else begins
        moment = datetime.fromtimestamp(start, UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment)
            .not_valid_after(moment + timedelta(seconds=self.life_seconds))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM) + self.root()

    def root(self) -> bytes:
        now = datetime(2020, 1, 1, tzinfo=UTC)
        root = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(self.name)
            .public_key(self.key.public_key())
            .serial_number(1)
            .not_valid_before(now)
            .not_valid_after(now + timedelta(days=36_500))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return root.public_bytes(serialization.Encoding.PEM)

    def _reply(
        self,
        status: int,
        told: dict[str, Any] | bytes = b"",
        *,
        location: str = "",
        retry_after: str = "",
        media_type: str = "application/json",
    ) -> HttpAnswer:
        nonce = secrets.token_urlsafe(12)
        self.nonces.add(nonce)
        now = datetime.fromtimestamp(self.clock() + self.ahead_seconds, UTC)
        return acme_answer(
            status,
            told if isinstance(told, bytes) else json.dumps(told).encode(),
            {
                "content-type": media_type,
                "replay-nonce": nonce,
                "location": location,
                "retry-after": retry_after,
                "date": format_datetime(now, usegmt=True),
            },
        )


class Refused(Exception):
    def __init__(self, kind: str, detail: str, status: int = 400) -> None:
        super().__init__(kind)
        self.kind = kind
        self.detail = detail
        self.status = status


def public_key(jwk: dict[str, str]) -> ec.EllipticCurvePublicKey:
    x, y = (int.from_bytes(unpack(jwk[name]), "big") for name in ("x", "y"))
    return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()


def looking_at(proofs: Proofs) -> Look:
    """Sees what is shown without a network: hands are shaken in memory."""

    async def look(way: str, name: str, token: str, authorized: str) -> tuple[str, str] | None:
        if way == "http-01":
            return None if proofs.key_authorization(token) == authorized else ("unauthorized", "404")
        assert proofs, "nobody would listen more closely"
        context = proofs.context_for(name)
        if context is None:
            return "tls", "no such name"
        assert fit_proof(shown(context, name), name, authorized)
        return None

    return look


def shown(context: ssl.SSLContext, name: str) -> bytes:
    """The certificate of a server that shakes hands with `context`, as an authority asks for it."""
    asking = proof_client()
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(to_client, to_server, server_hostname=name)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.selected_alpn_protocol() == "acme-tls/1"
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return found


def proof_client() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["acme-tls/1"])
    return context


def fit_proof(der: bytes, name: str, authorized: str) -> bool:
    """RFC 8737 §3, as an authority checks it."""
    certificate = x509.load_der_x509_certificate(der)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    marked = certificate.extensions.get_extension_for_oid(ACME_IDENTIFIER)
    assert isinstance(marked.value, x509.UnrecognizedExtension)
    return (
        list(names) == [x509.DNSName(name)]
        and marked.critical
        and marked.value.value == b"\x04\x20" + hashlib.sha256(authorized.encode()).digest()
    )


def serial_of(chain: bytes) -> str:
    return f"{x509.load_pem_x509_certificate(chain).serial_number:x}"


def pem_blocks(text: str) -> list[str]:
    return re.findall(r"-----BEGIN ([A-Z ]+)-----", text)
