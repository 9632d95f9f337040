"""Tokens that are bound to a key (RFC 9449): which proofs count, once each, and what a token is worth without its key."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
from joserfc.jwk import ECKey, OctKey

from auth.client_authentication import dpop_proofs
from auth.client_authentication.dpop_proofs import ProofWindow
from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientRegistration
from auth.jose.base64url import unpack
from auth.jose.jws import BadJws
from auth.tokens import access_token_verifier
from auth.tokens.dpop_replays import BETWEEN, ProofClaims
from auth.tokens.presented_credentials import PresentedProof, present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.identity_model import Principal
from auth.values.issuer_and_resources import Site
from server.store.jobs import Change, StoreUnavailable
from tests.auth.assertion_fakes import KEYS
from tests.auth.code_fakes import answer_of, open_porch, press
from tests.auth.dpop_fakes import (
    ENDPOINT,
    TOKEN,
    Prover,
    approved_code,
    bound,
    call,
    redeeming,
    refreshing,
    sent,
    with_proof,
)
from tests.auth.identity_fakes import (
    MINUTE,
    ORIGIN,
    SECOND,
    SITE,
    START,
    Clock,
    b64,
    get,
    header,
    logged_in,
    open_identity,
    post,
    told,
)
from tests.auth.token_fakes import RING, claims, signed
from tests.sealing import by_hand

# RFC 9449 §4.2 and §7.1, to the letter.
_HEAD = (
    "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJo"
    "RjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19"
)
AT_TOKEN = (
    f"{_HEAD}.eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2Vu"
    "IiwiaWF0IjoxNTYyMjYyNjE2fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT3Lg"
)
AT_RESOURCE = (
    f"{_HEAD}.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90"
    "ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9"
    ".2oW9RP35yRqzhrtNP86L-Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA"
)
ITS_TOKEN = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
ITS_KEY = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"

Forge = Callable[[Prover], str]


# ---------------------------------------------------------------- what a proof must be


def test_the_proofs_that_the_rfc_prints_are_good_where_and_when_they_were_made() -> None:
    proof = dpop_proofs.read(
        AT_TOKEN, method="POST", urls=["https://server.example.com/token"], now=1_562_262_616_000
    )
    assert proof.jkt == ITS_KEY
    again = dpop_proofs.read(
        AT_RESOURCE,
        method="GET",
        urls=["https://resource.example.org/protectedresource"],
        now=1_562_262_618_000,
        token=ITS_TOKEN,
        jkt=ITS_KEY,
    )
    assert again.jkt == ITS_KEY
    assert again.id_hash != proof.id_hash


@pytest.mark.parametrize("algorithm", dpop_proofs.ALGORITHMS)
async def test_each_announced_algorithm_proves_a_key_of_its_kind(algorithm: str) -> None:
    prover = Prover(KEYS[algorithm], algorithm)
    async with open_identity() as identity:
        tokens = await bound(identity, prover)
        assert tokens["token_type"] == "DPoP"
        claims = json.loads(unpack(tokens["access_token"].split(".")[1]))
        assert claims["cnf"] == {"jkt": prover.jkt}
        token = tokens["access_token"]
        assert isinstance(await call(identity, f"DPoP {token}", prover.shown(token)), Principal)


@pytest.mark.parametrize(
    "address",
    [
        "HTTP://127.0.0.1:8420/token",
        TOKEN + "?a=b",
        TOKEN + "#part",
        TOKEN + "/",
        "http://localhost:8420/token",
    ],
)
async def test_an_address_is_compared_in_its_normal_form_and_by_the_name_that_was_typed(address: str) -> None:
    async with open_identity() as identity:
        request = replace(redeeming(await approved_code(identity)), origin="http://localhost:8420")
        reply = await sent(identity, request, Prover().proof(htu=address))
        assert reply.status == 200, reply.body


async def test_a_public_server_is_proven_to_by_its_public_name_whatever_its_proxy_calls_it() -> None:
    site = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})
    async with open_identity(site=site) as identity:
        for origin, address, status in (
            ("https://agent.example", "https://agent.example:443/token", 200),
            ("https://agent.example", "https://AGENT.example/token", 200),
            ("https://agent.example", "http://agent.example/token", 400),
            ("https://agent.example", "https://agent.example:8443/token", 400),
            ("https://agent.example", "https://agent.example.evil/token", 400),
        ):
            request = replace(redeeming(await approved_code(identity)), origin=origin)
            reply = await sent(identity, request, Prover().proof(htu=address))
            assert reply.status == status, (address, reply.body)


@pytest.mark.parametrize("seconds", [-60, 0, 10])
async def test_a_clock_may_be_a_little_off(seconds: int) -> None:
    async with open_identity() as identity:
        proof = Prover().proof(iat=START // 1_000 + seconds)
        assert (await sent(identity, redeeming(await approved_code(identity)), proof)).status == 200


def _unsigned(prover: Prover) -> str:
    return prover.proof().rpartition(".")[0] + "."


def _cut(prover: Prover) -> str:
    return prover.proof()[:-4]


def _other_payload(prover: Prover) -> str:
    head, _, signature = prover.proof().split(".")
    return f"{head}.{b64(json.dumps(prover.claims()).encode())}.{signature}"


def _by_another(prover: Prover) -> str:
    return Prover().sign(prover.claims(), prover.head())


def _der_signature(prover: Prover) -> str:
    head, payload, signature = prover.proof().split(".")
    raw = unpack(signature)
    halves = b"".join(b"\x02\x21\x00" + half for half in (raw[:32], raw[32:]))
    return f"{head}.{payload}.{b64(bytes((0x30, len(halves))) + halves)}"


def _symmetric(prover: Prover) -> str:
    key = OctKey.generate_key(256)
    return Prover(key, "HS256").sign(
        prover.claims(), {"typ": "dpop+jwt", "alg": "HS256", "jwk": key.as_dict(private=True)}
    )


def _none(prover: Prover) -> str:
    parts = (b64(json.dumps(part).encode()) for part in (prover.head(alg="none"), prover.claims()))
    return ".".join((*parts, "AA"))


def _private(prover: Prover) -> str:
    return prover.proof(head={"jwk": prover.key.as_dict(private=True)})


def _twice_in_payload(prover: Prover) -> str:
    claims = json.dumps(prover.claims())
    return prover.sign(claims[:-1].encode() + b', "htm": "POST"}', prover.head())


def _on_another_curve(prover: Prover) -> str:
    key = ECKey.generate_key("P-384")
    return Prover(key, "ES384").proof()


def _off_the_curve(prover: Prover) -> str:
    return prover.proof(head={"jwk": {**prover.jwk, "x": b64(bytes(31) + b"\x05")}})


def _head(**changed: Any) -> Forge:
    return lambda prover: prover.proof(head=changed)


def _claim(**changed: Any) -> Forge:
    return lambda prover: prover.proof(**changed)


def _raw(text: str) -> Forge:
    return lambda _prover: text


BAD: dict[str, tuple[Forge, str]] = {
    "empty": (_raw(""), "compact JWS"),
    "no proof at all": (_raw("proof"), "compact JWS"),
    "two proofs in one header": (lambda p: f"{p.proof()}, {p.proof()}", "compact JWS"),
    "too long": (_claim(more="x" * 9_000), "too long"),
    "padded": (lambda p: p.proof() + "==", "compact JWS"),
    "five parts": (lambda p: p.proof() + ".AA.AA", "compact JWS"),
    "a header that is no object": (lambda p: p.sign(p.claims(), p.head()).replace(p.proof().split(".")[0], b64(b"[]")), "unreadable"),
    "a payload that is no object": (lambda p: p.sign(b"[]", p.head()), "unreadable"),
    "a payload that is no JSON": (lambda p: p.sign(b"{", p.head()), "unreadable"),
    "a payload of a thousand brackets": (lambda p: p.sign(b"[" * 3_000, p.head()), "unreadable"),
    "a claim that comes twice": (_twice_in_payload, "twice"),
    "no typ": (_head(typ=None), "typ"),
    "typ JWT": (_head(typ="JWT"), "typ"),
    "typ of an access token": (_head(typ="at+jwt"), "typ"),
    "typ that is a number": (_head(typ=1), "typ"),
    "crit": (_head(crit=["b64"], b64=False), "critical"),
    "alg none": (_none, "alg"),
    "alg HS256 with its secret": (_symmetric, "alg"),
    "alg ES384": (_on_another_curve, "alg"),
    "alg of another kind of key": (_head(alg="RS256"), "signed"),
    "no alg": (lambda p: p.sign(p.claims(), p.head()).replace(p.proof().split(".")[0], b64(json.dumps({"typ": "dpop+jwt", "jwk": p.jwk}).encode())), "alg"),
    "no jwk": (_head(jwk=None), "jwk"),
    "a kid instead of a jwk": (_head(jwk=None, kid="key-1"), "jwk"),
    "a jwk that is a text": (_head(jwk="key"), "jwk"),
    "a jwk that is a set": (lambda p: p.proof(head={"jwk": {"keys": [p.jwk]}}), "jwk"),
    "a private jwk": (_private, "secret"),
    "a symmetric jwk": (_head(jwk={"kty": "oct", "k": "AAAA"}), "secret"),
    "a jwk of an unknown kind": (_head(jwk={"kty": "XX"}), "kind"),
    "a jwk on another curve": (_head(jwk={"kty": "EC", "crv": "P-384", "x": "AA", "y": "AA"}), "kind"),
    "a jwk for encryption": (lambda p: p.proof(head={"jwk": {**p.jwk, "use": "enc"}}), "kind"),
    "a jwk for another alg": (lambda p: p.proof(head={"jwk": {**p.jwk, "alg": "RS256"}}), "kind"),
    "a jwk off the curve": (_off_the_curve, "jwk"),
    "a short RSA key": (_head(alg="RS256", jwk={"kty": "RSA", "n": b64(b"\xff" * 128), "e": "AQAB"}), "jwk"),
    "an RSA key with a huge exponent": (_head(alg="RS256", jwk={"kty": "RSA", "n": b64(b"\xff" * 256), "e": b64(b"\xff" * 200)}), "jwk"),
    "no signature": (_unsigned, "compact JWS"),
    "a cut signature": (_cut, "signed"),
    "a DER signature": (_der_signature, "signed"),
    "a signature over something else": (_other_payload, "signed"),
    "a signature by another key": (_by_another, "signed"),
    "no htm": (_claim(htm=None), "htm"),
    "another method": (_claim(htm="GET"), "method"),
    "the method in small letters": (_claim(htm="post"), "method"),
    "no htu": (_claim(htu=None), "htu"),
    "another path": (_claim(htu=ORIGIN + "/revoke"), "address"),
    "another host": (_claim(htu="http://127.0.0.2:8420/token"), "address"),
    "another port": (_claim(htu="http://127.0.0.1:8421/token"), "address"),
    "another scheme": (_claim(htu="https://127.0.0.1:8420/token"), "address"),
    "a path alone": (_claim(htu="/token"), "address"),
    "a host with a user": (_claim(htu="http://me@127.0.0.1:8420/token"), "address"),
    "a line end in the address": (_claim(htu="http://127.0.0.1:8420/to\nken"), "address"),
    "an address in a list": (_claim(htu=[TOKEN]), "htu"),
    "no iat": (_claim(iat=None), "iat"),
    "iat as a text": (_claim(iat=str(START // 1_000)), "iat"),
    "iat in milliseconds": (_claim(iat=START), "future"),
    "iat true": (_claim(iat=True), "iat"),
    "61 seconds old": (_claim(iat=START // 1_000 - 61), "old"),
    "11 seconds ahead": (_claim(iat=START // 1_000 + 11), "future"),
    "no jti": (_claim(jti=None), "jti"),
    "an empty jti": (_claim(jti=""), "jti"),
    "a jti that is a number": (_claim(jti=7), "jti"),
    "a long jti": (_claim(jti="x" * 257), "jti"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_proof_gets_no_token_and_uses_nothing_up(name: str) -> None:
    forge, says = BAD[name]
    prover = Prover()
    async with open_identity() as identity:
        code = await approved_code(identity)
        status, error, description = told(await sent(identity, redeeming(code), forge(prover)))
        assert (status, error) == (400, "invalid_dpop_proof"), description
        assert says in description
        assert (await sent(identity, redeeming(code), prover.proof())).status == 200


@pytest.mark.parametrize("name", [name for name in BAD if not name.startswith(("another path", "61", "11"))])
async def test_a_bad_proof_opens_no_resource(name: str) -> None:
    forge, _ = BAD[name]
    prover = Prover()
    async with open_identity() as identity:
        token = (await bound(identity, prover))["access_token"]
        refused = await call(identity, f"DPoP {token}", PresentedProof(forge(prover), "POST"))
        assert isinstance(refused, BearerRefusal)
        assert (refused.status, refused.error) == (401, "invalid_dpop_proof")
        assert isinstance(await call(identity, f"DPoP {token}", prover.shown(token)), Principal)


def test_a_text_with_half_a_letter_in_it_is_only_a_text() -> None:
    prover = Prover()
    half = b'{"jti": "\\ud800", "htm": "POST", "htu": "%s", "iat": %d, "ath": "\\udfff"}' % (
        TOKEN.encode(),
        START // 1_000,
    )
    proof = prover.sign(half, prover.head())
    assert dpop_proofs.read(proof, method="POST", urls=[TOKEN], now=START).jkt == prover.jkt
    with pytest.raises(BadJws, match="another access token"):
        dpop_proofs.read(proof, method="POST", urls=[TOKEN], now=START, token="t")


# ---------------------------------------------------------------- once


async def test_a_proof_counts_once_at_the_token_endpoint_and_the_trail_says_so() -> None:
    prover = Prover()
    async with open_identity() as identity:
        proof = prover.proof()
        code = await approved_code(identity)
        first = await sent(identity, redeeming(code), proof)
        again = await sent(identity, refreshing(json.loads(first.body)["refresh_token"]), proof)
        assert told(again) == (400, "invalid_dpop_proof", "DPoP proof: was used before")
        rows = await identity.parts.store.read(
            lambda db: db.fetch_all("SELECT outcome, reason FROM audit WHERE event = 'dpop.refused'")
        )
        assert [(row["outcome"], row["reason"]) for row in rows] == [("refused", "proof used again")]


async def test_the_same_proof_ten_times_at_the_same_moment_is_taken_once() -> None:
    prover = Prover()
    async with open_identity() as identity:
        codes = [await approved_code(identity) for _ in range(4)]
        proof = prover.proof()
        statuses: list[int] = []

        async def redeem(code: str) -> None:
            statuses.append((await sent(identity, redeeming(code), proof)).status)

        async with trio.open_nursery() as nursery:
            for code in codes:
                nursery.start_soon(redeem, code)
        assert sorted(statuses) == [200, 400, 400, 400]


async def test_a_used_proof_is_forgotten_by_the_store_when_its_time_alone_refuses_it() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        await bound(identity, Prover())
        (row,) = await identity.parts.store.read(lambda db: db.fetch_all("SELECT * FROM client_assertions"))
        assert row["expires_at"] == START + 61 * SECOND


async def test_a_proof_counts_once_at_a_resource_also_ten_times_at_once() -> None:
    prover = Prover()
    async with open_identity() as identity:
        token = (await bound(identity, prover))["access_token"]
        shown = prover.shown(token)
        found: list[Principal | BearerRefusal] = []

        async def go() -> None:
            found.append(await call(identity, f"DPoP {token}", shown))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(go)
        assert sum(isinstance(one, Principal) for one in found) == 1
        refused = next(one for one in found if isinstance(one, BearerRefusal))
        assert refused.description == "DPoP proof: was used before"


async def test_among_several_processes_a_proof_counts_once_in_the_store_whatever_each_of_them_has_seen() -> (
    None
):
    prover = Prover()
    async with open_identity() as identity:
        identity.heed_others()
        token = (await bound(identity, prover))["access_token"]
        shown = prover.shown(token)
        assert isinstance(await call(identity, f"DPoP {token}", shown), Principal)
        identity.verifier._proofs = ProofWindow()  # as another process, which has not seen it
        refused = await call(identity, f"DPoP {token}", shown)
        assert isinstance(refused, BearerRefusal)
        assert refused.description == "DPoP proof: was used before"

        # Ten times at once, of which each could be told by the answer to another's question.
        found: list[Principal | BearerRefusal] = []
        again = prover.shown(token)

        async def go() -> None:
            found.append(await call(identity, f"DPoP {token}", again))

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(go)
        assert sum(isinstance(one, Principal) for one in found) == 1
        assert isinstance(await call(identity, f"DPoP {token}", prover.shown(token)), Principal)


async def test_a_proof_that_the_store_could_not_be_asked_for_lets_nobody_in_and_is_used_up() -> None:
    prover = Prover()
    async with open_identity() as identity:
        token = (await bound(identity, prover))["access_token"]
        assert isinstance(await call(identity, f"DPoP {token}", prover.shown(token)), Principal)

        async def fail(_: dpop_proofs.DpopProof) -> bool:
            raise StoreUnavailable("it is away")

        identity.heed_others()
        shared, identity.verifier.proof_claims = identity.verifier.proof_claims, ProofClaims(fail)
        shown = prover.shown(token)
        with pytest.raises(StoreUnavailable):
            await call(identity, f"DPoP {token}", shown)
        identity.verifier.proof_claims = shared
        assert isinstance(await call(identity, f"DPoP {token}", shown), BearerRefusal)
        assert isinstance(await call(identity, f"DPoP {token}", prover.shown(token)), Principal)


def test_proofs_of_requests_that_went_away_take_no_room_for_ever() -> None:
    async def claim(_: dpop_proofs.DpopProof) -> bool:
        return True

    shared = ProofClaims(claim)
    for number in range(BETWEEN):
        assert shared.wait(
            f"{number}", dpop_proofs.DpopProof(jkt="k", id_hash=f"{number}", issued_at=100), 100_000
        )
    late = dpop_proofs.DpopProof(jkt="k", id_hash="late", issued_at=150)
    assert not shared.wait("late", late, 150_000)
    assert shared.wait("late", late, 161_000)  # the others are too old by themselves
    assert not shared.is_waiting("0")


async def test_a_request_that_runs_on_is_looked_at_again_with_its_one_proof() -> None:
    prover, clock = Prover(), Clock()
    async with open_identity(clock=clock) as identity:
        token = (await bound(identity, prover))["access_token"]
        shown = prover.shown(token)
        assert isinstance(await call(identity, f"DPoP {token}", shown), Principal)
        clock.now += 5 * MINUTE
        again = replace(shown, again=True)
        assert isinstance(await call(identity, f"DPoP {token}", again), Principal)
        await identity.parts.store.write(
            lambda db: (
                by_hand("UPDATE grants SET revoked_at = 1")(db),
                db.changed("grant", db.fetch_all("SELECT id FROM grants")[0]["id"]),
            )
        )
        assert isinstance(await call(identity, f"DPoP {token}", again), BearerRefusal)


def test_the_window_forgets_the_oldest_first_and_refuses_what_it_forgot() -> None:
    def proof(jti: str, second: int) -> dpop_proofs.DpopProof:
        return dpop_proofs.DpopProof(jkt="k", id_hash=jti, issued_at=second)

    window, now = ProofWindow(remembered=3), 100_000
    assert all(window.use_up(proof(f"{second}", second), now) for second in (90, 91, 92))
    assert not window.use_up(proof("91", 91), now)
    assert window.use_up(proof("93", 93), now)  # 90 is forgotten for it
    assert len(window) == 3
    assert not window.use_up(proof("another of 90", 90), now)
    assert window.use_up(proof("another of 94", 94), now)


def test_the_window_is_empty_again_a_minute_later() -> None:
    window = ProofWindow()
    assert window.use_up(dpop_proofs.DpopProof(jkt="k", id_hash="a", issued_at=100), 100_000)
    assert window.use_up(dpop_proofs.DpopProof(jkt="k", id_hash="b", issued_at=161), 161_000)
    assert len(window) == 1


def test_the_window_still_tells_apart_proofs_of_the_oldest_second_that_counts() -> None:
    window, second = ProofWindow(), 100
    now = (second + dpop_proofs.BACK_SECONDS) * 1_000

    def proof(jti: str) -> dpop_proofs.DpopProof:
        return dpop_proofs.DpopProof(jkt="k", id_hash=jti, issued_at=second)

    assert window.use_up(proof("a"), now)
    assert window.use_up(proof("b"), now)
    assert not window.use_up(proof("a"), now)
    assert not window.use_up(proof("c"), now + 1_000)


# ---------------------------------------------------------------- a token without its key


async def test_a_stolen_token_is_worth_nothing_without_its_key() -> None:
    prover, thief = Prover(), Prover()
    async with open_identity() as identity:
        token = (await bound(identity, prover))["access_token"]
        other = (await bound(identity, thief))["access_token"]
        mine = prover.shown(token)
        for authorization, shown, error in (
            (f"Bearer {token}", None, "invalid_token"),
            (f"Bearer {token}", thief.shown(token), "invalid_token"),
            (f"bearer {token}", mine, "invalid_token"),
            (f"DPoP {token}", None, "invalid_dpop_proof"),
            (f"DPoP {token}", thief.shown(token), "invalid_dpop_proof"),
            (f"DPoP {token}", prover.shown(other), "invalid_dpop_proof"),
            (f"DPoP {token}", prover.shown(token, ath=None), "invalid_dpop_proof"),
            (f"DPoP {token}", prover.shown(token, ath="x"), "invalid_dpop_proof"),
            (f"DPoP {token}", replace(mine, method="DELETE"), "invalid_dpop_proof"),
            (f"DPoP {token}", prover.shown(token, htu=ORIGIN + "/other/mcp"), "invalid_dpop_proof"),
            (f"DPoP {token}x", mine, "invalid_token"),
            ("DPoP nonsense", mine, "invalid_token"),
            ("DPoP", mine, "invalid_token"),
            (f"DPoP Bearer {token}", mine, "invalid_token"),
        ):
            refused = await call(identity, authorization, shown)
            assert isinstance(refused, BearerRefusal), authorization
            assert (refused.status, refused.error) == (401, error), authorization
        assert isinstance(await call(identity, f"dpop  {token}", mine), Principal)


async def test_a_token_that_is_bound_to_nothing_is_no_dpop_token() -> None:
    prover = Prover()
    async with open_identity() as identity:
        token = (await logged_in(identity))["access_token"]
        refused = await call(identity, f"DPoP {token}", prover.shown(token))
        assert isinstance(refused, BearerRefusal)
        assert (refused.status, refused.error) == (401, "invalid_token")
        # As Bearer it is what it was, and a stray proof changes nothing.
        assert isinstance(await call(identity, f"Bearer {token}", prover.shown(token)), Principal)


async def test_an_ended_login_ends_its_bound_tokens() -> None:
    prover = Prover()
    async with open_identity() as identity:
        tokens = await bound(identity, prover)
        token = tokens["access_token"]
        assert isinstance(await call(identity, f"DPoP {token}", prover.shown(token)), Principal)
        await identity.handle(post("/revoke", client_id="ostiary-cli", token=tokens["refresh_token"]))
        refused = await call(identity, f"DPoP {token}", prover.shown(token))
        assert isinstance(refused, BearerRefusal)
        assert refused.error == "invalid_token"


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("unknown", ["no token", "no login"])
async def test_a_dpop_token_that_is_worth_nothing_is_refused_by_dpop_also_after_a_look_into_the_store(
    unknown: str, stale: bool
) -> None:
    prover = Prover()
    async with open_identity() as identity:
        token = (await bound(identity, prover))["access_token"]
        if unknown == "no login":
            identity.live.apply_changes(
                [Change(seq=1, kind="epoch", entity_id="refresh_epoch")]
            )  # nothing is known from memory
            await identity.parts.store.write(lambda db: db.execute("DELETE FROM grants"))
        else:
            token = f"{token[:-4]}AAAA"
        if stale:
            identity.parts.keys.changed()
        refused = await call(identity, f"DPoP {token}", prover.shown(token))
        assert isinstance(refused, BearerRefusal)
        _, _, rest = refused.www_authenticate.partition(", DPoP ")
        assert 'error="invalid_token"' in rest


async def test_a_key_beside_a_bound_token_is_two_credentials() -> None:
    prover = Prover()
    async with open_identity() as identity:
        token = (await bound(identity, prover))["access_token"]
        refused = await identity.check(
            present(
                f"DPoP {token}",
                server="agent",
                origin=ORIGIN,
                path="/mcp",
                api_key="ostk_x",
                proof=prover.shown(token),
            )
        )
        assert isinstance(refused, BearerRefusal)


async def test_the_first_challenge_is_bearers_and_whoever_used_dpop_is_told_by_dpop() -> None:
    prover = Prover()
    async with open_identity() as identity:
        token = (await bound(identity, prover))["access_token"]
        plain = await identity.check(present(None, server="agent", origin=ORIGIN, path="/mcp"))
        downgraded = await call(identity, f"Bearer {token}")
        unproven = await call(identity, f"DPoP {token}")
        assert isinstance(plain, BearerRefusal)
        assert isinstance(downgraded, BearerRefusal)
        assert isinstance(unproven, BearerRefusal)
        assert "DPoP" not in plain.www_authenticate
        algs = 'DPoP algs="ES256 RS256 PS256 EdDSA Ed25519"'
        bearer, _, rest = downgraded.www_authenticate.partition(f", {algs}")
        assert bearer.startswith("Bearer resource_metadata=")
        assert 'error="invalid_token"' in bearer
        assert rest == ""
        bearer, _, rest = unproven.www_authenticate.partition(f", {algs}")
        assert bearer == plain.www_authenticate
        assert rest == ', error="invalid_dpop_proof", error_description="DPoP proof: is missing"'


@pytest.mark.parametrize(
    "cnf",
    [
        [],
        "x",
        {},
        {"jkt": ""},
        {"jkt": 1},
        {"x5t#S256": "A" * 43},
        {"jkt": "A" * 43, "x": 1},
        {"jkt": "A" * 42},
    ],
)
def test_a_token_bound_in_an_unknown_way_is_no_token(cnf: Any) -> None:
    with pytest.raises(access_token_verifier.BadToken):
        access_token_verifier.read(signed(payload=claims(cnf=cnf)), ORIGIN, RING, START)


def test_a_token_says_which_key_it_is_bound_to() -> None:
    assert (
        access_token_verifier.read(signed(payload=claims(cnf={"jkt": ITS_KEY})), ORIGIN, RING, START).jkt
        == ITS_KEY
    )
    assert access_token_verifier.read(signed(), ORIGIN, RING, START).jkt is None


# ---------------------------------------------------------------- refreshing


async def test_a_refresh_goes_on_with_the_same_key_alone() -> None:
    prover, clock = Prover(), Clock()
    async with open_identity(clock=clock) as identity:
        tokens = await bound(identity, prover)
        refresh = refreshing(tokens["refresh_token"])
        for proof in (None, Prover().proof()):
            assert told(await sent(identity, refresh, proof))[:2] == (400, "invalid_grant")
        renewed = await sent(identity, refresh, prover.proof())
        assert renewed.status == 200
        answer = json.loads(renewed.body)
        assert answer["token_type"] == "DPoP"
        token = answer["access_token"]
        assert isinstance(await call(identity, f"DPoP {token}", prover.shown(token)), Principal)


async def test_whoever_has_a_spent_refresh_token_without_its_key_ends_nobodys_login() -> None:
    prover, clock = Prover(), Clock()
    async with open_identity(clock=clock) as identity:
        first = await bound(identity, prover)
        second = json.loads((await sent(identity, refreshing(first["refresh_token"]), prover.proof())).body)
        clock.now += 10 * MINUTE
        prover.seconds += 600
        thief = Prover(seconds=prover.seconds)
        for proof in (None, thief.proof()):
            assert told(await sent(identity, refreshing(first["refresh_token"]), proof))[1] == "invalid_grant"
        assert (await sent(identity, refreshing(second["refresh_token"]), prover.proof())).status == 200
        # With the key it is what it always was: the sign that two hold it.
        clock.now += 10 * MINUTE
        prover.seconds += 600
        assert (
            told(await sent(identity, refreshing(first["refresh_token"]), prover.proof()))[1]
            == "invalid_grant"
        )
        rows = await identity.parts.store.read(lambda db: db.fetch_all("SELECT revoked_reason FROM grants"))
        assert [row["revoked_reason"] for row in rows] == ["refresh token used again"]


async def test_two_refreshes_at_once_with_two_proofs_of_one_key_log_nobody_out() -> None:
    prover = Prover()
    async with open_identity() as identity:
        tokens = await bound(identity, prover)
        for _ in range(10):
            answers: list[dict[str, Any]] = []

            async def renew(token: str, answers: list[dict[str, Any]]) -> None:
                reply = await sent(identity, refreshing(token), prover.proof())
                assert reply.status == 200
                answers.append(json.loads(reply.body))

            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(renew, tokens["refresh_token"], answers)
            assert answers[0]["refresh_token"] == answers[1]["refresh_token"]
            tokens = answers[0]


async def test_a_login_that_began_without_a_key_is_not_tied_to_one_later() -> None:
    prover = Prover()
    async with open_identity() as identity:
        tokens = await logged_in(identity)
        assert tokens["token_type"] == "Bearer"
        with_key = json.loads(
            (await sent(identity, refreshing(tokens["refresh_token"]), prover.proof())).body
        )
        assert with_key["token_type"] == "DPoP"  # §5: whoever proves a key gets a token for it
        without = json.loads((await sent(identity, refreshing(with_key["refresh_token"]), None)).body)
        assert without["token_type"] == "Bearer"
        assert isinstance(await call(identity, f"Bearer {without['access_token']}"), Principal)


async def test_a_client_that_proves_who_it_is_may_change_its_key() -> None:
    async with open_identity() as identity:
        registration = ClientRegistration(
            name="Server side", auth_method="client_secret_post", client_id="server-side"
        )
        added = await identity.parts.store.write(
            lambda db: clients.add(db, registration, seed=bytes(32), by="local:0", now=START)
        )
        assert added is not None
        assert added.secret is not None
        shown = {"client_secret": added.secret.reveal()}
        asked = await identity.handle(post("/device_authorization", client_id="server-side", **shown))
        assert asked is not None
        await identity.parts.store.write(
            by_hand(
                "UPDATE device_codes SET state = 'approved', granted_scope = 'mcp', decided_by = 'local:0',"
                " decided_at = ?, subject = (SELECT id FROM users)",
                START,
            )
        )
        request = redeeming(json.loads(asked.body)["device_code"], "server-side", **shown)
        tokens = json.loads((await sent(identity, request, Prover().proof())).body)
        other = Prover()
        refresh = refreshing(tokens["refresh_token"], "server-side", **shown)
        renewed = json.loads((await sent(identity, refresh, other.proof())).body)
        token = renewed["access_token"]
        assert isinstance(await call(identity, f"DPoP {token}", other.shown(token)), Principal)


# ---------------------------------------------------------------- codes that are bound before they exist


async def test_a_code_asked_for_with_a_key_is_redeemed_with_that_key_alone_and_not_used_up_by_others() -> (
    None
):
    prover = Prover()
    async with open_porch() as porch:
        program, browser = await porch.program(), await porch.browser()
        code = (await program.agreed(browser, dpop_jkt=prover.jkt))["code"]
        form = {
            "grant_type": "authorization_code",
            "client_id": program.client.id,
            "code": code,
            "code_verifier": "real-programs.use_these~letters-and-at-least-43-of-them",
            "redirect_uri": program.request()["redirect_uri"],
        }
        for proof in (None, Prover().proof()):
            assert told(await sent(porch.identity, post("/token", **form), proof))[:2] == (
                400,
                "invalid_grant",
            )
        reply = await sent(porch.identity, post("/token", **form), prover.proof())
        assert reply.status == 200, reply.body
        assert json.loads(reply.body)["token_type"] == "DPoP"
        (grant,) = await porch.rows("grants")
        assert grant["jkt"] == prover.jkt


@pytest.mark.parametrize("jkt", ["x", "A" * 42, "A" * 44, "A" * 42 + "!", "A" * 42 + "="])
async def test_what_is_no_thumbprint_is_told_to_the_client(jkt: str) -> None:
    async with open_porch() as porch:
        program = await porch.program()
        reply = await porch.post("/par", **program.request(dpop_jkt=jkt))
        assert told(reply)[:2] == (400, "invalid_request")
        assert "dpop_jkt" in told(reply)[2]


@pytest.mark.parametrize("named", [False, True])
async def test_a_pushed_request_with_a_proof_binds_its_code(named: bool) -> None:
    prover = Prover()
    async with open_porch() as porch:
        program, browser = await porch.program(), await porch.browser()
        asked = program.request(dpop_jkt=prover.jkt if named else None)
        proof = prover.proof(htu=ORIGIN + "/par")
        pushed = await sent(porch.identity, post("/par", **asked), proof)
        assert pushed.status == 201, pushed.body
        again = await sent(porch.identity, post("/par", **asked), proof)
        assert told(again)[1] == "invalid_dpop_proof"
        kept = {"client_id": program.client.id, "request_uri": json.loads(pushed.body)["request_uri"]}
        await browser.get("/authorize?" + urlencode(kept), site="cross-site")
        assert answer_of(await press(browser, "allow"))["code"]
        (row,) = await porch.rows("authorization_codes")
        assert row["dpop_jkt"] == prover.jkt


@pytest.mark.parametrize(
    ("proof", "says"),
    [
        (lambda p: p.proof(htu=TOKEN), "another address"),
        (lambda p: Prover().proof(htu=ORIGIN + "/par"), "another key"),
        (lambda p: p.proof(htu=ORIGIN + "/par", htm="GET"), "another method"),
    ],
)
async def test_a_pushed_request_with_a_bad_proof_is_not_kept(proof: Forge, says: str) -> None:
    prover = Prover()
    async with open_porch() as porch:
        program = await porch.program()
        asked = program.request(dpop_jkt=prover.jkt)
        reply = await sent(porch.identity, post("/par", **asked), proof(prover))
        assert told(reply)[:2] == (400, "invalid_dpop_proof")
        assert says in told(reply)[2]
        assert await porch.rows("pushed_requests") == []


# ---------------------------------------------------------------- what others are told


async def test_introspection_tells_the_key_of_both_tokens() -> None:
    prover = Prover()
    async with open_identity() as identity:
        registration = ClientRegistration(
            name="Gateway",
            client_id="gateway",
            auth_method="client_secret_post",
            grant_types=(),
            introspects=True,
        )
        added = await identity.parts.store.write(
            lambda db: clients.add(db, registration, seed=bytes(32), by="local:0", now=START)
        )
        assert added is not None
        assert added.secret is not None
        tokens = await bound(identity, prover)
        for name, kind in (("access_token", "DPoP"), ("refresh_token", None)):
            request = post(
                "/introspect", client_id="gateway", client_secret=added.secret.reveal(), token=tokens[name]
            )
            worth = json.loads((await sent(identity, request, None)).body)
            assert worth["active"] is True
            assert worth["cnf"] == {"jkt": prover.jkt}
            assert worth.get("token_type") == kind


async def test_pages_of_other_origins_may_send_a_proof() -> None:
    async with open_identity() as identity:
        reply = await identity.handle(get("/token", method="OPTIONS"))
        assert reply is not None
        assert "DPoP" in (header(reply, "Access-Control-Allow-Headers") or "")


async def test_endpoints_that_give_no_token_do_not_look_at_a_proof() -> None:
    async with open_identity() as identity:
        for path in ("/device_authorization", "/revoke"):
            request = with_proof(post(path, client_id="ostiary-cli", token="x"), "nonsense")
            reply = await identity.handle(request)
            assert reply is not None
            assert reply.status == 200


def test_the_addresses_of_a_request_are_the_public_one_and_the_one_that_was_typed() -> None:
    assert dpop_proofs.urls_of(SITE, "http://localhost:8420", "/mcp") == (
        ENDPOINT,
        "http://localhost:8420/mcp",
    )
