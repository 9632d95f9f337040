"""Tokens for single requests, as a facilitator sees them that wants one with each: checked with another library than they are made with."""

from __future__ import annotations

import base64
import json
import re
import warnings
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from joserfc import jws
from joserfc.jwk import ECKey, OKPKey

from server.payments.x402.facilitator_client import FacilitatorAccess
from server.payments.x402.facilitators import FacilitatorDown, Facilitators
from server.payments.x402.request_tokens import MOST_ID_CHARACTERS, RequestTokens
from server.payments.x402.settlements import Settled, Verified
from tests.agents.python.fake_agent import Exchange, fake_agent
from tests.payments.x402.builders import offer
from tests.payments.x402.test_facilitators import DONE, KINDS, PAYMENT, YES, asking, root

NOW = 1_795_000_000_000
KEY_ID = "organizations/0d3c/apiKeys/77ab"
LONGEST_SECONDS = 120


def pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8) -> str:
    return key.private_bytes(Encoding.PEM, form, NoEncryption()).decode()


def edwards_text(key: Ed25519PrivateKey) -> str:
    """As Coinbase gives it out: both halves, in base64."""
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return base64.b64encode(key.private_bytes_raw() + public).decode()


P256 = ec.generate_private_key(ec.SECP256R1())
EDWARDS = Ed25519PrivateKey.generate()
SECRETS = {
    "P-256, SEC 1": (pem(P256, PrivateFormat.TraditionalOpenSSL), P256),
    "P-256, PKCS 8": (pem(P256), P256),
    "P-256, on one line": (pem(P256).replace("\n", "\\n"), P256),
    "Ed25519, both halves": (edwards_text(EDWARDS), EDWARDS),
    "Ed25519, its seed": (base64.b64encode(EDWARDS.private_bytes_raw()).decode(), EDWARDS),
    "Ed25519, PEM": (pem(EDWARDS), EDWARDS),
}


def tokens(secret: str, *, key_id: str = KEY_ID) -> RequestTokens:
    serial = iter(range(10**6))
    return RequestTokens(
        key_id, secret, clock=lambda: NOW, entropy=lambda size: next(serial).to_bytes(size, "big")
    )


def opened(token: str, key: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Raises what joserfc raises for what this key has not signed."""
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    edwards = isinstance(key, Ed25519PrivateKey)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would rather that EdDSA had another name
        found = jws.deserialize_compact(
            token,
            OKPKey.import_key(public) if edwards else ECKey.import_key(public),
            # A nonce is in no standard's list of headers.
            registry=jws.JWSRegistry(algorithms=["EdDSA" if edwards else "ES256"], strict_check_header=False),
        )
    return dict(found.headers()), json.loads(found.payload or b"")


class Strict:
    """A facilitator that serves whoever shows a token for this very request, made now, and never seen before."""

    def __init__(self, key: Any) -> None:
        self._key = key
        self._seen: set[str] = set()
        self.refused: list[str] = []

    async def serve(self, exchange: Exchange) -> None:
        request = exchange.request
        try:
            self._check(request)
        except Exception as problem:
            self.refused.append(repr(problem))
            return await exchange.reply(b"{}", status=401)
        name = request.target.partition("?")[0].rpartition("/")[2]
        documents = {"verify": YES, "settle": DONE, "supported": KINDS}
        return await exchange.reply(json.dumps(documents[name]).encode())

    def _check(self, request: Any) -> None:
        scheme, _, token = request.headers["authorization"].partition(" ")
        assert scheme == "Bearer"
        header, claims = opened(token, self._key)
        assert (header["typ"], header["kid"], claims["sub"], claims["iss"]) == ("JWT", KEY_ID, KEY_ID, "cdp")
        path = request.target.partition("?")[0]
        assert claims["uri"] == f"{request.method} {request.headers['host']}{path}"
        assert claims["uris"] == [claims["uri"]]
        assert claims["nbf"] <= NOW // 1000 < claims["exp"] <= claims["iat"] + LONGEST_SECONDS
        assert claims["exp"] - claims["nbf"] <= LONGEST_SECONDS
        assert re.fullmatch("[0-9a-f]{32}", header["nonce"])
        assert header["nonce"] not in self._seen
        self._seen.add(header["nonce"])


@pytest.mark.parametrize("secret", SECRETS)
async def test_each_request_brings_a_token_that_is_good_for_it_alone(secret: str) -> None:
    text, key = SECRETS[secret]
    strict = Strict(key)
    async with asking(strict.serve, tokens=tokens(text)) as (under_test, [agent], _):
        await under_test.supported()
        for _ in range(2):
            assert isinstance(await under_test.verify(PAYMENT, offer()), Verified)
            assert isinstance(await under_test.settle(PAYMENT, offer(), at=root(agent)), Settled)
        assert strict.refused == []
        assert len({request.headers["authorization"] for request in agent.requests}) == 5


async def test_the_query_of_an_address_is_in_no_token() -> None:
    strict = Strict(P256)
    async with fake_agent(strict.serve) as agent:
        url = f"http://localhost:{agent.port}/pay?key=1"
        under_test = Facilitators([FacilitatorAccess(url=url, tokens=tokens(pem(P256)))])
        await under_test.supported()
        await under_test.aclose()
        assert (agent.requests[0].target, strict.refused) == ("/pay/supported?key=1", [])


async def test_whoever_has_another_key_is_not_served_and_nothing_of_it_is_shown() -> None:
    other = pem(ec.generate_private_key(ec.SECP256R1()))
    strict = Strict(P256)
    async with asking(strict.serve, tokens=tokens(other)) as (under_test, [agent], trouble):
        with pytest.raises(FacilitatorDown) as raised:
            await under_test.verify(PAYMENT, offer())
        shown = raised.value.for_log + repr(trouble.told) + repr(under_test) + repr(tokens(other))
        shown += repr(FacilitatorAccess(url="http://x.example", tokens=tokens(other)))
        for text in (*other.split("\n")[1:-2], KEY_ID, agent.requests[0].headers["authorization"]):
            assert text not in shown
    assert len(strict.refused) == 1


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "s3cret",
        "-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----",
        base64.b64encode(b"s3cret" * 8).decode(),
        base64.b64encode(EDWARDS.private_bytes_raw() + bytes(32)).decode(),
        pem(ec.generate_private_key(ec.SECP256K1())),
        pem(rsa.generate_private_key(65537, 2048)),
    ],
    ids=["nothing", "a word", "no PEM", "48 bytes", "two halves", "secp256k1", "RSA"],
)
def test_what_is_no_key_for_this_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(ValueError) as raised:
        tokens(secret)
    assert re.match("is neither|has two halves", str(raised.value))
    assert "s3cret" not in repr(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("key_id", ["", "a\r\nb", "x" * (MOST_ID_CHARACTERS + 1)])
def test_what_is_no_id_is_refused(key_id: str) -> None:
    with pytest.raises(ValueError, match="an id that is none"):
        tokens(pem(P256), key_id=key_id)
