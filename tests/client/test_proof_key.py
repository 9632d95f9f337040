"""A login with a key: each request proves it, a nonce is sent as soon as it is asked for, and nothing is printed that others could use."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from fake_server import FakeServer, Response, Seen, as_json
from joserfc import jws
from joserfc.jwk import ECKey
from screens import Screen

from server.client.access_token import Access
from server.client.carrier import Carrier
from server.client.client_errors import BadAnswer, LoginError, NotLoggedIn, TokenFileError
from server.client.login_on_demand import Door
from server.client.signing_in import Wish, sign_in
from server.client.token_file import StoredLogin, TokenFile
from server.lib.http_client.http_client import HttpClient
from server.lib.oauth_client.challenge import read_challenge, wants_nonce
from server.lib.oauth_client.proof_key import ProofKey, UnusableKey, headers_of
from server.lib.secret import Secret

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def test_a_proof_is_what_another_library_reads_and_the_key_survives_the_file() -> None:
    key = ProofKey.of(ProofKey.new().kept)
    proof = key.proof("POST", "https://a.example/token?x=1#y", now=1_800_000_000_999, token="t", nonce="n")
    read = jws.deserialize_compact(proof, ECKey.import_key(dict(key.jwk)))
    header: dict[str, Any] = dict(read.headers())
    assert header == {"typ": "dpop+jwt", "alg": "ES256", "jwk": key.jwk}
    claims = json.loads(read.payload)
    assert len(claims.pop("jti")) >= 16
    assert claims == {
        "htm": "POST",
        "htu": "https://a.example/token",
        "iat": 1_800_000_000,
        "ath": base64.urlsafe_b64encode(hashlib.sha256(b"t").digest()).rstrip(b"=").decode(),
        "nonce": "n",
    }
    assert key.thumbprint == ECKey.import_key(dict(key.jwk)).thumbprint()


@pytest.mark.parametrize("kept", ["", "no number", "0", "f" * 65, "-1"])
def test_what_is_no_key_is_told_and_not_used(kept: str) -> None:
    with pytest.raises(UnusableKey):
        ProofKey.of(Secret(kept))


def test_a_token_without_a_key_is_shown_as_bearer_and_nobodys_not_at_all() -> None:
    assert headers_of(Secret("t"), "POST", "https://a.example/mcp") == {"Authorization": "Bearer t"}
    assert headers_of(None, "POST", "https://a.example/mcp") == {}


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ('DPoP error="use_dpop_nonce", algs="ES256"', True),
        ('Bearer resource_metadata="x", DPoP algs="ES256", error="use_dpop_nonce"', True),
        ('Bearer error="use_dpop_nonce"', False),
        ('DPoP algs="ES256", error="invalid_dpop_proof"', False),
        ("", False),
    ],
)
def test_a_wanted_nonce_is_read_off_the_dpop_challenge_alone(header: str, wanted: bool) -> None:
    assert wants_nonce([header]) is wanted


def test_a_bearer_challenge_ends_where_the_dpop_one_begins() -> None:
    found = read_challenge(['Bearer resource_metadata="x", DPoP algs="ES256", error="invalid_token"'])
    assert found is not None
    assert (found.resource_metadata, found.error) == ("x", None)


@dataclass
class Strict:
    """The fake server as one that binds its tokens, and wants a nonce in every proof if it has one."""

    fake: FakeServer
    nonce: str | None = None
    keys: list[str] = field(default_factory=list)
    jtis: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.fake.metadata["dpop_signing_alg_values_supported"] = ["ES256"]
        self.fake.overrides |= {"/token": self.token, "/mcp": self.mcp}

    def proven(self, request: Seen) -> dict[str, Any] | None:
        """The claims of a good proof that was not seen before."""
        proof = request.headers.get("dpop", "")
        if not proof:
            return None
        head = json.loads(base64.urlsafe_b64decode(proof.split(".")[0] + "=="))
        key = ECKey.import_key(head["jwk"])
        claims = json.loads(jws.deserialize_compact(proof, key).payload)
        assert (claims["htm"], claims["htu"]) == (request.method, self.fake.origin + request.path)
        assert claims["jti"] not in self.jtis
        self.jtis.add(claims["jti"])
        self.keys.append(key.thumbprint())
        return claims

    async def token(self, request: Seen) -> Response:
        claims = self.proven(request)
        if claims is None:
            return as_json({"error": "invalid_dpop_proof"}, 400)
        if claims.get("nonce") != self.nonce:
            return as_json({"error": "use_dpop_nonce"}, 400, DPoP_Nonce=self.nonce or "")
        answer = await self.fake.usual(request)
        return Response(answer.status, answer.body.replace(b'"Bearer"', b'"DPoP"'), answer.headers)

    async def mcp(self, request: Seen) -> Response:
        shown = request.headers.get("authorization", "")
        if not shown.startswith("DPoP "):
            return await self.fake.usual(request)
        claims, token = self.proven(request), shown.removeprefix("DPoP ")
        ath = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
        assert claims is not None
        assert claims["ath"] == ath
        if claims.get("nonce") != self.nonce:
            challenge = 'Bearer resource_metadata="x", DPoP algs="ES256", error="use_dpop_nonce"'
            return as_json({}, 401, WWW_Authenticate=challenge, DPoP_Nonce=self.nonce or "")
        if token not in self.fake.valid:
            return as_json({}, 401, WWW_Authenticate='DPoP algs="ES256", error="invalid_token"')
        return as_json({"jsonrpc": "2.0", "id": request.message.get("id"), "result": {}})


async def log_in(fake: FakeServer, client: HttpClient, file: TokenFile) -> tuple[StoredLogin, ProofKey]:
    fake.browser_only()
    key = ProofKey.new()
    wish = Wish(way="browser", key=key)
    return await sign_in(client, file, fake.url, screen=Screen(), wish=wish), key


@pytest.mark.parametrize("nonce", [None, "n-1"])
async def test_login_calls_and_refresh_prove_one_key_and_a_nonce_costs_one_more_request(
    fake: FakeServer, client: HttpClient, file: TokenFile, nonce: str | None
) -> None:
    strict = Strict(fake, nonce)
    login, key = await log_in(fake, client, file)
    assert fake.requests("/authorize")[-1].asked["dpop_jkt"] == key.thumbprint
    kept = file.get(fake.url)
    assert kept is not None
    assert kept == login
    assert kept.proof_key == key.kept
    assert key.kept.reveal() not in repr(kept)
    access = Access(file, fake.url, client=client)
    carrier = Carrier(client, fake.url, Door(access, None))
    body = msgspec.json.encode(PING)
    before = len(fake.requests("/mcp"))
    for _ in range(2):
        async with carrier.open("POST", body=body) as response:
            assert response.status == 200
    assert len(fake.requests("/mcp")) - before == 2 + (nonce is not None)
    fake.valid.clear()  # the token is refused, renewed, and shown with the same key
    async with carrier.open("POST", body=body) as response:
        assert response.status == 200
    assert fake.count["refreshed"] == 1
    async with carrier.open("DELETE"):
        pass
    assert set(strict.keys) == {key.thumbprint}


async def test_a_server_that_always_wants_another_nonce_is_given_up(
    fake: FakeServer, client: HttpClient, file: TokenFile
) -> None:
    strict = Strict(fake)
    await log_in(fake, client, file)
    asked = 0

    async def insatiable(request: Seen) -> Response:
        nonlocal asked
        asked += 1
        challenge = 'DPoP algs="ES256", error="use_dpop_nonce"'
        return as_json({}, 401, WWW_Authenticate=challenge, DPoP_Nonce=f"n-{asked}")

    fake.overrides["/mcp"] = insatiable
    carrier = Carrier(client, fake.url, Door(Access(file, fake.url, client=client), None))
    with pytest.raises(NotLoggedIn):
        async with carrier.open("POST", body=msgspec.json.encode(PING)):
            pytest.fail("it was let in")
    assert asked <= 4
    assert strict.nonce is None


async def test_a_server_that_binds_nothing_is_said_to_before_anybody_is_asked(
    fake: FakeServer, client: HttpClient, file: TokenFile
) -> None:
    with pytest.raises(LoginError, match="does not bind") as caught:
        await log_in(fake, client, file)
    assert "--dpop" in (caught.value.hint or "")
    assert fake.requests("/authorize") == []


async def test_a_token_that_is_not_bound_after_all_is_not_kept(
    fake: FakeServer, client: HttpClient, file: TokenFile
) -> None:
    Strict(fake)
    del fake.overrides["/token"]
    with pytest.raises(BadAnswer, match="not bound to our key"):
        await log_in(fake, client, file)
    assert file.get(fake.url) is None


async def test_a_damaged_key_is_told_with_the_way_out(
    fake: FakeServer, client: HttpClient, file: TokenFile
) -> None:
    Strict(fake)
    login, _ = await log_in(fake, client, file)
    file.put(msgspec.structs.replace(login, proof_key=Secret("damaged")))
    with pytest.raises(TokenFileError, match="damaged"):
        await Access(file, fake.url, client=client).token()
