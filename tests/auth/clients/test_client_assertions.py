"""private_key_jwt: which signatures prove a client, that each does so once, and where its keys come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc.jwk import ECKey

from auth.clients import client_registry as clients
from auth.clients.client_identifier_urls import CannotFetch, FetchedDocument
from auth.clients.client_registry import ASSERTION_TYPE, ClientRegistration
from auth.identity import Identity, found
from auth.jose import public_keys as client_keys
from auth.jose.public_keys import BadKeys
from auth.values.issuer_and_resources import Site
from tests.auth.assertion_fakes import (
    KEYS,
    SECONDS,
    TOKEN,
    Signer,
    machine,
    public,
    unsigned,
    with_public_key_as_secret,
)
from tests.auth.identity_fakes import (
    MINUTE,
    ORIGIN,
    POLICY,
    SITE,
    Clock,
    header,
    open_identity,
    post,
    seeds,
    subkey,
    told,
)
from tests.auth.registration_fakes import ask, enrolled, sent
from tests.engine_under_test import open_at, place_of
from tests.sealing import by_hand


async def refused(identity: Identity, assertion: str, says: str, **form: str) -> None:
    status, error, description = told(await sent(identity, Signer("x").ask(assertion, **form)))
    assert (status, error) == (401, "invalid_client"), description
    assert says in description
    grants = await identity.parts.store.read(lambda db: db.fetch_all("SELECT id FROM grants"))
    assert grants == []


@pytest.mark.parametrize("algorithm", client_keys.ALGORITHMS)
async def test_each_algorithm_proves_the_owner_of_its_kind_of_key(algorithm: str) -> None:
    async with open_identity() as identity:
        signer = await machine(identity, algorithm)
        reply = await sent(identity, signer.ask())
        assert reply.status == 200, reply.body


@pytest.mark.parametrize(
    "audience",
    [
        ORIGIN,
        ORIGIN + "/",
        TOKEN,
        "http://localhost:8420",
        "http://localhost:8420/token",
        [ORIGIN],
        [ORIGIN, TOKEN],
    ],
)
async def test_the_audience_is_the_issuer_or_the_token_endpoint_also_as_it_was_typed(audience: Any) -> None:
    async with open_identity() as identity:
        signer = await machine(identity)
        request = post(
            "/token",
            origin="http://localhost:8420",
            client_assertion=signer.assertion(aud=audience),
            client_assertion_type=ASSERTION_TYPE,
            grant_type="client_credentials",
        )
        assert (await sent(identity, request)).status == 200


async def test_off_loopback_only_the_configured_name_is_an_audience() -> None:
    site = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})
    async with open_identity(site=site) as identity:
        signer = await machine(identity)
        await refused(identity, signer.assertion(aud=ORIGIN), "aud")
        assert (await sent(identity, signer.ask(signer.assertion(aud="https://agent.example")))).status == 200


async def test_the_client_id_may_be_in_the_form_as_well_and_is_then_the_same() -> None:
    async with open_identity() as identity:
        signer = await machine(identity)
        assert (await sent(identity, signer.ask(client_id=signer.client_id))).status == 200
        reply = await sent(identity, signer.ask(client_id="ostiary-cli"))
        assert told(reply)[:2] == (401, "invalid_client")


Change = Callable[[Signer], str]

FORGED: dict[str, tuple[Change, str]] = {
    "no algorithm": (lambda s: unsigned(s.claims()), "alg"),
    "no algorithm, in capitals": (lambda s: unsigned(s.claims(), alg="NONE"), "alg"),
    "no alg member": (lambda s: unsigned(s.claims(), alg=None), "alg"),
    "HS256 with the public key": (
        lambda s: with_public_key_as_secret(s.claims(), s.key.as_pem(private=False)),
        "alg",
    ),
    "another key": (
        lambda s: Signer(s.client_id, ECKey.generate_key("P-256", {"kid": "ES256"})).assertion(),
        "signature",
    ),
    "another key without a kid": (
        lambda s: Signer(s.client_id, ECKey.generate_key("P-256", {"kid": "x"})).assertion(
            head={"kid": None}
        ),
        "signature",
    ),
    "an RSA key's algorithm": (lambda s: s.assertion().replace(*_heads(s, alg="RS256")), "signature"),
    "an unknown kid": (lambda s: s.assertion(head={"kid": "other"}), "kid"),
    "a kid that is no text": (
        lambda s: s.sign(_bytes(s.claims()), s.head()).replace(*_heads(s, kid=7)),
        "kid",
    ),
    "critical extensions": (lambda s: s.assertion().replace(*_heads(s, crit=["exp"])), "critical"),
    "an access token's type": (lambda s: s.assertion(head={"typ": "at+jwt"}), "typ"),
    "another issuer": (lambda s: s.assertion(iss="somebody"), "iss"),
    "another subject": (lambda s: s.assertion(sub="somebody"), "iss"),
    "another client whole": (lambda s: s.assertion(sub="ostiary-cli", iss="ostiary-cli"), "no such client"),
    "no such client": (lambda s: s.assertion(sub="nobody", iss="nobody"), "no such client"),
    "a subject of other letters": (lambda s: s.assertion(sub="ö\x00", iss="ö\x00"), "sub"),
    "a subject that is half a letter": (lambda s: s.assertion(sub="\ud800", iss="\ud800"), "sub"),
    "no subject": (lambda s: s.assertion(sub=None), "sub"),
    "another audience": (lambda s: s.assertion(aud="https://other.example"), "aud"),
    "the token endpoint with a slash": (lambda s: s.assertion(aud=TOKEN + "/"), "aud"),
    "the resource as audience": (lambda s: s.assertion(aud=ORIGIN + "/mcp"), "aud"),
    "two servers": (lambda s: s.assertion(aud=[ORIGIN, "https://other.example"]), "aud"),
    "nobody": (lambda s: s.assertion(aud=[]), "aud"),
    "no audience": (lambda s: s.assertion(aud=None), "aud"),
    "a number as audience": (lambda s: s.assertion(aud=[7]), "aud"),
    "an audience in an audience": (lambda s: s.assertion(aud=[[ORIGIN]]), "aud"),
    "expired": (lambda s: s.assertion(exp=SECONDS - 30), "expired"),
    "too far ahead": (lambda s: s.assertion(exp=SECONDS + 331), "exp"),
    "for ever": (lambda s: s.assertion(exp=10**300), "exp"),
    "no end": (lambda s: s.assertion(exp=None), "exp"),
    "a text as end": (lambda s: s.assertion(exp=str(SECONDS + 60)), "exp"),
    "truth as end": (lambda s: s.assertion(exp=True), "exp"),
    "half a second as end": (lambda s: s.assertion(exp=SECONDS + 0.5), "exp"),
    "issued tomorrow": (lambda s: s.assertion(iat=SECONDS + 86_400), "iat"),
    "not yet": (lambda s: s.assertion(nbf=SECONDS + 60), "nbf"),
    "no jti": (lambda s: s.assertion(jti=None), "jti"),
    "an empty jti": (lambda s: s.assertion(jti=""), "jti"),
    "a number as jti": (lambda s: s.assertion(jti=7), "jti"),
    "a long jti": (lambda s: s.assertion(jti="x" * 257), "jti"),
    "a member twice": (
        lambda s: s.sign(_bytes(s.claims())[:-1] + b',"sub":"' + s.client_id.encode() + b'"}', s.head()),
        "twice",
    ),
    "a list": (lambda s: s.sign(b"[]", s.head()), "unreadable"),
    "no JSON": (lambda s: s.sign(b"x", s.head()), "unreadable"),
    "a deep one": (lambda s: s.sign(b"[" * 3_000 + b"]" * 3_000, s.head()), "unreadable"),
    "two parts": (lambda s: s.assertion().rpartition(".")[0], "compact JWS"),
    "four parts": (lambda s: s.assertion() + ".x", "compact JWS"),
    "an empty signature": (lambda s: s.assertion().rpartition(".")[0] + ".", "compact JWS"),
    "half a signature": (lambda s: s.assertion()[:-43], "signature"),
    "a signature of zeros": (lambda s: s.assertion().rpartition(".")[0] + "." + "A" * 86, "signature"),
    "a padded signature": (lambda s: s.assertion() + "==", "compact JWS"),
    "a signature in another spelling": (lambda s: s.assertion()[:-1] + "_", "signature"),
    "another payload": (lambda s: _moved(s.assertion(), s.assertion(jti="other")), "signature"),
    "words": (lambda s: "not a token", "compact JWS"),
}


def _bytes(claims: dict[str, Any]) -> bytes:
    return json.dumps(claims).encode()


def _heads(signer: Signer, **changed: Any) -> tuple[str, str]:
    """The header of an assertion as it is, and as somebody would rather have it."""
    before = signer.assertion().partition(".")[0]
    return before, unsigned({}, **{**signer.head(), **changed}).partition(".")[0]


def _moved(one: str, other: str) -> str:
    (head, _, signature), payload = one.split("."), other.split(".")[1]
    return f"{head}.{payload}.{signature}"


@pytest.mark.parametrize("case", FORGED)
async def test_what_is_forged_or_loose_proves_nothing_and_says_what_is_wrong(case: str) -> None:
    make, says = FORGED[case]
    async with open_identity() as identity:
        await refused(identity, make(await machine(identity)), says)


async def test_an_assertion_counts_once() -> None:
    clock = Clock()
    async with open_identity(clock=clock) as identity:
        signer, other = await machine(identity), await machine(identity)
        assertion = signer.assertion()
        assert (await sent(identity, signer.ask(assertion))).status == 200
        for seconds in (0, 30, 89):
            clock.now = SECONDS * 1_000 + seconds * 1_000
            reply = await sent(identity, signer.ask(assertion))
            assert told(reply) == (401, "invalid_client", "client_assertion: it was used before")
        clock.now += 1_000
        assert "expired" in told(await sent(identity, signer.ask(assertion)))[2]
        # Another client may have thought of the same jti, and this one of another.
        clock.now = SECONDS * 1_000
        assert (await sent(identity, other.ask(other.assertion(jti="jti-1")))).status == 200
        assert (await sent(identity, signer.ask())).status == 200


async def test_an_assertion_is_used_up_by_a_request_that_is_then_refused() -> None:
    async with open_identity() as identity:
        signer = await machine(identity)
        assertion = signer.assertion()
        reply = await sent(identity, signer.ask(assertion, scope="nothing:such"))
        assert told(reply)[1] == "invalid_scope"
        assert told(await sent(identity, signer.ask(assertion)))[1] == "invalid_client"


async def test_of_twenty_parallel_uses_of_one_assertion_one_counts(tmp_path: Path) -> None:
    clock = Clock()
    async with open_at(place_of(tmp_path / "ostiary.db"), clock=clock) as store:
        identity = await found(store, clock=clock, entropy=seeds(), subkey=subkey, site=SITE, policy=POLICY)
        store.on_changes(identity.apply_changes)
        signer = await machine(identity)
        request, statuses = signer.ask(signer.assertion()), list[int]()

        async def one() -> None:
            statuses.append((await sent(identity, request)).status)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(one)
        assert sorted(statuses) == [200] + [401] * 19


async def test_a_client_has_one_way_to_prove_itself_at_every_endpoint() -> None:
    async with open_identity() as identity:
        signer = await machine(identity, introspects=True)
        secret = await enrolled(identity, "Python SDK")
        for path in ("/token", "/revoke", "/introspect", "/device_authorization"):
            form = {"token": "x", "grant_type": "client_credentials"}
            reply = await sent(identity, signer.request(path, signer.assertion(), **form))
            assert told(reply)[1] != "invalid_client", path
            # A signer's id alone, or with some secret; a client with a secret that signs.
            for wrong in (
                post(path, client_id=signer.client_id, **form),
                post(path, client_id=signer.client_id, client_secret="x", **form),
                Signer(secret["client_id"]).request(path, None, **form),
                Signer("ostiary-cli").request(path, None, **form),
            ):
                assert told(await sent(identity, wrong))[:2] == (401, "invalid_client"), path


async def test_a_401_names_no_scheme_to_a_client_that_signs() -> None:
    async with open_identity() as identity:
        reply = await sent(identity, (await machine(identity)).ask("x.y.z"))
        assert (reply.status, header(reply, "www-authenticate")) == (401, None)


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"client_assertion": "x.y.z"}, "invalid_request"),
        ({"client_assertion_type": ASSERTION_TYPE}, "invalid_request"),
        ({"client_assertion": "x.y.z", "client_assertion_type": "urn:saml2-bearer"}, "invalid_client"),
        (
            {"client_assertion": "x.y.z", "client_assertion_type": ASSERTION_TYPE, "client_secret": "x"},
            "invalid_request",
        ),
        (
            {"client_assertion": "x" * 9 * 1_024, "client_assertion_type": ASSERTION_TYPE},
            "invalid_request",
        ),
    ],
)
async def test_a_form_with_half_an_assertion_or_too_much_of_one_is_malformed(
    form: dict[str, str], error: str
) -> None:
    async with open_identity() as identity:
        reply = await sent(identity, post("/token", client_id="x", grant_type="client_credentials", **form))
        assert told(reply)[1] == error


async def test_a_disabled_client_proves_nothing_and_keys_that_were_replaced_neither() -> None:
    async with open_identity() as identity:
        signer = await machine(identity)
        await identity.parts.store.write(
            lambda db: clients.disable(db, signer.client_id, by="local:0", now=identity.parts.clock())
        )
        await refused(identity, signer.assertion(), "")
        other = await machine(identity)
        shown = (await sent(identity, other.ask())).status
        assert shown == 200
        fresh = json.dumps(public(ECKey.generate_key("P-256", {"kid": "new"})))
        await identity.parts.store.write(
            by_hand("UPDATE clients SET jwks = ? WHERE id = ?", fresh, other.client_id)
        )
        assert told(await sent(identity, other.ask()))[1] == "invalid_client"


# ---------------------------------------------------------------- keys at an address


class Keeper:
    """Somebody's server with keys, and how often it was asked."""

    def __init__(self, *keys: Any) -> None:
        self.answer: FetchedDocument | CannotFetch = CannotFetch("is not there", definite=True)
        self.asked: list[str] = []
        if keys:
            self.publish(*keys)

    def publish(self, *keys: Any, seconds: int | None = None) -> None:
        self.answer = FetchedDocument(body=json.dumps(public(*keys)).encode(), max_age_seconds=seconds)

    async def __call__(self, url: str) -> FetchedDocument:
        self.asked.append(url)
        if isinstance(self.answer, CannotFetch):
            raise self.answer
        return self.answer


URL = "https://job.example/jwks.json"
ELSEWHERE: dict[str, Any] = {"jwks": None, "jwks_uri": URL}


async def test_keys_at_an_address_are_fetched_once_and_remembered_for_as_long_as_they_say() -> None:
    clock, keeper = Clock(), Keeper(KEYS["ES256"])
    async with open_identity(clock=clock, fetch=keeper) as identity:
        signer = await machine(identity, **ELSEWHERE)

        async def works() -> bool:
            now = clock.now // 1_000
            assertion = signer.assertion(iat=now, exp=now + 60)
            return (await sent(identity, signer.ask(assertion))).status == 200

        for after, asked in ((0, 1), (1, 1), (4, 2), (1, 2)):  # without a word of theirs: five minutes
            clock.now += after * MINUTE
            assert await works()
            assert keeper.asked == [URL] * asked
        keeper.publish(KEYS["ES256"], seconds=10**9)
        clock.now += 5 * MINUTE
        assert await works()
        for hours, asked in ((23, 3), (1, 4)):  # a day at most
            clock.now += hours * 60 * MINUTE
            assert await works()
            assert len(keeper.asked) == asked


async def test_an_unknown_kid_is_looked_for_once_a_minute() -> None:
    clock, keeper = Clock(), Keeper(KEYS["ES256"])
    fresh = ECKey.generate_key("P-256", {"kid": "new"})
    async with open_identity(clock=clock, fetch=keeper) as identity:
        signer = await machine(identity, **ELSEWHERE)
        assert (await sent(identity, signer.ask())).status == 200
        clock.now += MINUTE // 2
        new = Signer(signer.client_id, fresh, count=100)

        async def status() -> int:
            now = clock.now // 1_000
            return (await sent(identity, new.ask(new.assertion(iat=now, exp=now + 60)))).status

        assert [await status() for _ in range(5)] == [401] * 5
        assert len(keeper.asked) == 1
        clock.now += MINUTE // 2
        keeper.publish(KEYS["ES256"], fresh)
        assert [await status() for _ in range(3)] == [200] * 3
        assert len(keeper.asked) == 2


async def test_keys_that_cannot_be_had_are_not_asked_for_at_every_request() -> None:
    clock, keeper = Clock(), Keeper()
    async with open_identity(clock=clock, fetch=keeper) as identity:
        signer = await machine(identity, **ELSEWHERE)
        for seconds, asked in ((0, 1), (59, 1), (1, 2)):
            clock.now += seconds * 1_000
            now = clock.now // 1_000
            await refused(identity, signer.assertion(iat=now, exp=now + 60), "jwks_uri is not there")
            assert len(keeper.asked) == asked


@pytest.mark.parametrize("definite", [False, True])
async def test_old_keys_count_while_their_address_is_silent_and_not_once_it_says_there_are_none(
    definite: bool,
) -> None:
    clock, keeper = Clock(), Keeper(KEYS["ES256"])
    async with open_identity(clock=clock, fetch=keeper) as identity:
        signer = await machine(identity, **ELSEWHERE)

        async def status() -> int:
            now = clock.now // 1_000
            return (await sent(identity, signer.ask(signer.assertion(iat=now, exp=now + 60)))).status

        assert await status() == 200
        keeper.answer = CannotFetch("does not answer", definite=definite)
        clock.now += 6 * MINUTE
        assert await status() == (401 if definite else 200)
        clock.now += 7 * 24 * 60 * MINUTE
        assert await status() == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "AAAA"}]}',
        json.dumps({"keys": [KEYS["ES256"].as_dict(private=True)]}).encode(),
        b'{"keys": [' + b"[" * 4_000 + b"]" * 4_000 + b"]}",
        b'{"keys": [], "x": "' + b"x" * 17 * 1_024 + b'"}',
        b"\xff\xfe",
    ],
)
async def test_what_is_no_set_of_public_keys_proves_nothing(body: bytes) -> None:
    keeper = Keeper()
    keeper.answer = FetchedDocument(body=body, max_age_seconds=None)
    async with open_identity(fetch=keeper) as identity:
        await refused(identity, (await machine(identity, **ELSEWHERE)).assertion(), "jwks_uri")


async def test_where_nobody_fetches_an_address_proves_nothing() -> None:
    async with open_identity() as identity:
        await refused(identity, (await machine(identity, **ELSEWHERE)).assertion(), "fetches no keys")


async def test_a_network_makes_us_ask_only_so_many_strangers() -> None:
    keeper, site = Keeper(), Site(issuer=ORIGIN, loopback=False, servers={"agent": "/mcp"})
    async with open_identity(site=site, fetch=keeper) as identity:
        for number in range(15):
            signer = await machine(identity, jwks=None, jwks_uri=f"https://job.example/{number}")
            _, error, why = told(await sent(identity, signer.ask()))
            assert error == "invalid_client"
            assert ("too many keys" in why) == (number >= 10)
        assert len(keeper.asked) == POLICY.registration.fetches_per_network == 10


async def test_a_program_that_registers_itself_may_sign_too() -> None:
    async with open_identity() as identity:
        answer = await enrolled(
            identity,
            "a device without a browser",
            token_endpoint_auth_method="private_key_jwt",
            jwks=public(KEYS["RS256"]),
        )
        signer = Signer(answer["client_id"], KEYS["RS256"], "RS256")
        assert (await sent(identity, signer.request("/device_authorization"))).status == 200
        put = {**answer, "jwks": public(KEYS["ES256"])}
        path = answer["registration_client_uri"].removeprefix(ORIGIN)
        reply = await sent(identity, ask(path, put, method="PUT", token=answer["registration_access_token"]))
        assert reply.status == 200, reply.body
        assert told(await sent(identity, signer.request("/device_authorization")))[1] == "invalid_client"


# ---------------------------------------------------------------- what an operator hands over


SMALL_RSA = (
    rsa.generate_private_key(65_537, 1_024)
    .public_key()
    .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    .decode()
)


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "EdDSA"])
def test_a_public_key_is_taken_as_pem_as_jwk_and_as_set(algorithm: str) -> None:
    key = KEYS[algorithm]
    plain = dict(key.as_dict(private=False))
    for text in (
        key.as_pem(private=False).decode(),
        json.dumps(plain),
        json.dumps({"keys": [plain]}),
    ):
        (read,) = client_keys.parse_set(client_keys.set_from_text(text).encode())
        assert algorithm in read.algorithms


@pytest.mark.parametrize(
    "text",
    [
        KEYS["ES256"].as_pem(private=True).decode(),
        KEYS["RS256"].as_pem(private=True).decode(),
        json.dumps(KEYS["EdDSA"].as_dict(private=True)),
        json.dumps({"keys": [KEYS["ES256"].as_dict(private=True)]}),
    ],
)
def test_a_private_key_is_recognised_and_refused(text: str) -> None:
    assert client_keys.is_secret(text)
    with pytest.raises(BadKeys, match="private"):
        client_keys.set_from_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "{}",
        "7",
        '"x"',
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        ECKey.generate_key("P-384").as_pem(private=False).decode(),
        SMALL_RSA,
        "x" * 17 * 1_024,
        "[" * 10_000,
    ],
    ids=lambda text: text[:12],
)
def test_what_is_no_usable_public_key_is_refused_in_words(text: str) -> None:
    assert not client_keys.is_secret(text)
    with pytest.raises(BadKeys):
        client_keys.set_from_text(text)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"auth_method": "private_key_jwt"}, "jwks"),
        ({"jwks": "{}"}, "jwks"),
        ({"auth_method": "private_key_jwt", "jwks": "{}", "jwks_uri": "https://a.example"}, "jwks"),
        ({"auth_method": "private_key_jwt", "jwks_uri": "http://a.example"}, "jwks_uri"),
        ({"introspects": True}, "introspects"),
        ({"grant_types": ("client_credentials",)}, "grant_types"),
        ({"grant_types": ("refresh_token",)}, "grant_types"),
        ({"grant_types": ("authorization_code",)}, "redirect_uris"),
    ],
)
def test_an_operator_is_told_what_does_not_go_together(fields: dict[str, Any], word: str) -> None:
    (problem,) = ClientRegistration(name="Job", **fields).check(SITE.scopes)
    assert problem.startswith(word + ":")
