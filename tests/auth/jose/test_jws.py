"""auth/jose/jws.py: one strict way of taking a signed token apart, and that every reader of one goes this way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from auth.client_authentication import client_assertions as client_assertion
from auth.client_authentication import dpop_proofs
from auth.grants import identity_assertions as identity_assertion
from auth.jose import jws
from auth.jose.base64url import pack
from auth.jose.es256 import sign
from auth.jose.jws import BadJws, number_in, text_in
from auth.providers import provider_sign_in as upstream
from auth.providers.provider_sign_in import Provider, ProviderNotBelieved
from auth.tokens import access_token_verifier
from auth.tokens.access_token_verifier import BadToken
from tests.auth import token_fakes
from tests.auth.assertion_fakes import SECONDS, Signer
from tests.auth.dpop_fakes import TOKEN, Prover
from tests.auth.identity_fakes import ORIGIN, START, b64
from tests.auth.token_fakes import NOW, RING

IDP = "https://idp.example"
PROVIDER = Provider(
    name="work",
    kind="oidc",
    label="Work",
    issuer=IDP,
    client_id="ostiary-here",
    secret=None,
    allow={},
    assertions=True,
)


def written(header: bytes, payload: bytes) -> str:
    return f"{pack(header)}.{pack(payload)}.{pack(b'signature')}"


def test_a_token_is_three_parts_and_what_they_say() -> None:
    head, payload = b'{"alg": "ES256"}', '{"sub": "ä"}'.encode()
    said = jws.read(written(head, payload), longest=200)
    assert (said.header, said.claims, said.signature) == ({"alg": "ES256"}, {"sub": "ä"}, b"signature")
    assert said.signed == f"{pack(head)}.{pack(payload)}".encode()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "latin-1"])
def test_json_is_utf_8_and_nothing_else(encoding: str) -> None:
    said = '{"sub": "ä"}'.encode(encoding)
    for token in (written(said, b"{}"), written(b"{}", said)):
        with pytest.raises(BadJws, match="unreadable"):
            jws.read(token, longest=1_000)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "not a compact JWS"),
        ("a.b", "not a compact JWS"),
        ("a.b.c.d", "not a compact JWS"),
        ("a.b.c\n", "not a compact JWS"),
        ("a.b.c", "unreadable"),
        (written(b"{}", b"[]"), "unreadable"),
        (written(b"{}", b"{"), "unreadable"),
        (written(b"{}", b"[" * 5_000), "unreadable"),
        (written(b'{"alg": 1, "alg": 1}', b"{}"), "a member twice"),
        (written(b"{}", b'{"in": {"sub": 1, "sub": 2}}'), "a member twice"),
        (written(b"{}", b" " * 8_000), "too long"),
    ],
)
def test_what_could_be_read_in_two_ways_is_not_read(token: str, why: str) -> None:
    with pytest.raises(BadJws, match=why):
        jws.read(token, longest=10_000)


def test_a_signature_has_one_spelling() -> None:
    said = jws.read(written(b"{}", b"{}") + "_", longest=200)
    with pytest.raises(BadJws, match="not base64url"):
        _ = said.signature


def test_members_are_texts_and_whole_numbers() -> None:
    values: dict[str, Any] = {
        "text": "a",
        "none": "",
        "long": "a" * 2_049,
        "float": 5.0,
        "half": 5.5,
        "yes": True,
    }
    assert (text_in(values, "text"), text_in(values, "missing", "")) == ("a", "")
    assert number_in(values, "float") == 5
    for name in ("none", "long", "float", "missing"):
        with pytest.raises(BadJws, match=f"{name} is not a text"):
            text_in(values, name)
    for name in ("half", "yes", "text", "missing"):
        with pytest.raises(BadJws, match=f"{name} is not a whole number"):
            number_in(values, name)


# ---------------------------------------------------------------- every reader


def access_token(said: Callable[[dict[str, Any]], bytes]) -> None:
    body = f"{b64(json.dumps(token_fakes.HEAD).encode())}.{b64(said(token_fakes.CLAIMS))}"
    try:
        access_token_verifier.read(sign(body.encode(), token_fakes.KEY.key).decode(), ORIGIN, RING, NOW)
    except BadToken as problem:
        raise BadJws(str(problem)) from None


def client_claims(said: Callable[[dict[str, Any]], bytes]) -> None:
    signer = Signer("cli_1")
    text = signer.sign(said(signer.claims()), signer.head())
    client_assertion.read(text, None, {ORIGIN}, START)


def client_named(said: Callable[[dict[str, Any]], bytes]) -> None:
    signer = Signer("cli_1")
    text = signer.sign(said(signer.claims()), signer.head())
    if client_assertion.subject_of(text) is None:
        raise BadJws("is unreadable")


def proof(said: Callable[[dict[str, Any]], bytes]) -> None:
    prover = Prover()
    text = Signer("", key=prover.key).sign(said(prover.claims()), prover.head())
    dpop_proofs.read(text, method="POST", urls=(TOKEN,), now=START)


def identity_claims(said: Callable[[dict[str, Any]], bytes]) -> None:
    signer = Signer("cli_1")
    claims = {
        **signer.claims(),
        "iss": IDP,
        "client_id": "cli_1",
        "sub": "ann",
    }
    text = signer.sign(said(claims), {"alg": "ES256", "typ": identity_assertion.TYPE})
    identity_assertion.read(text, client_id="cli_1", names={ORIGIN}, providers=(PROVIDER,), now=START)


def id_token(said: Callable[[dict[str, Any]], bytes]) -> None:
    signer = Signer("cli_1")
    claims = {
        "iss": IDP,
        "aud": "ostiary-here",
        "sub": "ann",
        "iat": SECONDS,
        "exp": SECONDS + 60,
        "nonce": "n",
    }
    text = signer.sign(said(claims), {"alg": "ES256", "kid": "ES256"})
    keys = [dict(signer.key.as_dict(private=False))]
    found = upstream.verify_id_token(text, keys, PROVIDER, nonce="n", now=START)
    if isinstance(found, ProviderNotBelieved):
        raise BadJws("is unreadable") from AssertionError(found.reason)


READERS = (access_token, client_claims, client_named, proof, identity_claims, id_token)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_no_reader_takes_claims_that_are_not_utf_8(
    reader: Callable[[Callable[[dict[str, Any]], bytes]], None], encoding: str
) -> None:
    reader(lambda claims: json.dumps(claims).encode())
    with pytest.raises(BadJws, match="unreadable"):
        reader(lambda claims: json.dumps(claims).encode(encoding))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_no_reader_takes_a_member_twice(
    reader: Callable[[Callable[[dict[str, Any]], bytes]], None],
) -> None:
    def twice(claims: dict[str, Any]) -> bytes:
        return json.dumps(claims)[:-1].encode() + b', "iat": 1}'

    with pytest.raises(BadJws, match=r"a member twice|unreadable"):
        reader(twice)
