"""Programs that bring a provider's word for a person: who is let in by it, to what, how often, and everything that must not count."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
from authlib.oauth2.drafts.id_jag import IDJAGGrant
from joserfc.jwk import ECKey

from auth import self_test
from auth.clients import client_metadata_document as client_metadata
from auth.clients import client_registry as clients
from auth.clients.client_registry import CLI_CLIENT_ID, ClientRegistration
from auth.endpoints import server_metadata
from auth.grant_types.jwt_bearer_grant import decide
from auth.grants import login_records as grants
from auth.grants.identity_assertions import PROFILE, read
from auth.grants.new_grants import GrantedAccess
from auth.grants.token_request import TokenRefusal
from auth.identity import found
from auth.providers import provider_sign_in as upstream
from auth.providers.provider_sign_in import ListedAccount, NotLetIn, ProviderPerson
from auth.tokens.www_authenticate import BearerRefusal
from auth.values import endpoint_paths
from auth.values.database import Db
from auth.values.http_messages import WireRequest
from auth.values.identity_model import AUTHORIZATION_CODE, JWT_BEARER, Principal, PrincipalKind
from auth.values.issuer_and_resources import Site
from auth.values.scopes import Vocabulary
from tests.auth.assertion_fakes import KEYS, Signer, public
from tests.auth.enterprise_fakes import (
    ALLOW,
    ANN,
    BOB,
    EVE,
    IDP,
    SITE,
    Company,
    Idp,
    company,
    moved_in,
    provider,
    trusting,
    upstreams,
)
from tests.auth.identity_fakes import (
    MINUTE,
    ORIGIN,
    POLICY,
    Clock,
    b64,
    get,
    header,
    open_identity,
    post,
    seeds,
    subkey,
    told,
)
from tests.auth.registration_fakes import SEEN, ask, enrolled, sent
from tests.auth.upstream_fakes import Key
from tests.engine_under_test import open_at, place_of
from tests.sealing import by_hand

HERE = f"{ORIGIN}/mcp"
OTHER = f"{ORIGIN}/other/mcp"


async def refused(firm: Company, assertion: str | None, error: str, says: str = "", **form: str) -> None:
    """Nobody is let in, nothing is used up, and the trail has a row."""
    before = await firm.rows("grants"), await firm.rows("client_assertions")
    status, found, description = told(await firm.ask(assertion, **form))
    assert (status, found) == (400, error), description
    assert says in description
    assert (await firm.rows("grants"), await firm.rows("client_assertions")) == before
    assert (await firm.audited())[-1][0] == "refused"


# ---------------------------------------------------------------- who is let in


async def test_a_listed_persons_program_gets_an_access_token_alone_and_calls_as_that_person() -> None:
    async with company() as firm:
        answer = await firm.token()
        assert answer.keys() == {"access_token", "token_type", "expires_in", "scope"}
        assert (answer["scope"], answer["expires_in"]) == ("mcp mcp:tools", 3_600)
        caller = await firm.caller(answer)
        assert isinstance(caller, Principal)
        assert (caller.kind, caller.subject, caller.client_id) == (PrincipalKind.USER, ANN, firm.client_id)
        assert caller.scopes == {"mcp", "mcp:tools"}
        (row,) = await firm.rows("grants")
        assert (row["how"], row["approved_by"], row["server"]) == ("assertion", "idp:work", "agent")
        assert await firm.audited() == [("ok", "work sub-of-ann")]
        (known,) = await firm.rows("user_identities")
        assert (known["provider"], known["subject"], known["user_id"]) == ("work", "sub-of-ann", ANN)
        assert isinstance(await firm.caller(answer, "other"), BearerRefusal)


async def test_an_assertion_that_another_library_has_made_counts() -> None:
    async with company() as firm:
        key = ECKey.generate_key("P-256", {"kid": "by-authlib"})
        firm.idp.published = [dict(key.as_dict(private=False))]
        seconds = firm.clock.now // 1_000
        assertion: str = IDJAGGrant.sign(  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            key,
            issuer=IDP,
            audience=ORIGIN,
            subject="sub-of-ann",
            client_id=firm.client_id,
            issued_at=seconds,
            expires_at=seconds + 300,
            claims={"resource": HERE},
            header={"alg": "ES256", "kid": "by-authlib"},
        )
        assert isinstance(await firm.caller(await firm.token(assertion)), Principal)


@pytest.mark.parametrize("algorithm", ["ES256", "RS256", "PS256"])
async def test_each_algorithm_of_a_providers_key_is_understood_beside_keys_that_are_not(
    algorithm: str,
) -> None:
    async with company() as firm:
        firm.idp.key = Key(algorithm, "k")
        firm.idp.published = [{"kty": "unheard of"}, "no key", Key("ES256", "other").jwk, firm.idp.key.jwk]
        await firm.token()


async def test_a_verified_address_stands_for_a_person_and_for_the_first_who_came_with_it() -> None:
    async with company() as firm:
        mail: dict[str, Any] = {"email": "Bob@Example.org", "email_verified": True}
        caller = await firm.caller(await firm.token(firm.assertion(sub="sub-of-bob", **mail)))
        assert isinstance(caller, Principal) and caller.subject == BOB
        await refused(firm, firm.assertion(sub="his-successor", **mail), "invalid_grant")
        unverified = firm.assertion(sub="sub-of-bob", email="bob@example.org", email_verified="true")
        await refused(firm, unverified, "invalid_grant")


@pytest.mark.parametrize(
    "audience", [ORIGIN, ORIGIN + "/", [ORIGIN], "http://localhost:8420", "http://localhost:8420/"]
)
async def test_the_audience_is_the_issuer_as_the_program_finds_it(audience: Any) -> None:
    async with company() as firm:
        request = firm.request(firm.assertion(aud=audience))
        assert (await sent(firm.identity, replace(request, origin="http://localhost:8420"))).status == 200


async def test_off_loopback_only_the_configured_name_is_an_audience() -> None:
    site = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})
    async with company(site=site) as firm:
        await refused(firm, firm.assertion(resource=None), "invalid_grant", "aud")
        await firm.token(firm.assertion(aud=site.issuer, resource="https://agent.example/mcp"))


@pytest.mark.parametrize("method", clients.SECRET_METHODS)
async def test_a_program_may_show_its_secret_in_either_place(method: str) -> None:
    async with company() as firm:
        firm.shown = await firm.program(auth_method=method)
        await firm.token()
        secret = f"{firm.client_id}:{firm.shown.pop('client_secret')}"
        request = firm.request()
        request = replace(request, headers={**request.headers, "authorization": f"Basic {b64x(secret)}"})
        assert (await sent(firm.identity, request)).status == 200


def b64x(text: str) -> str:
    plain = b64(text.encode()).replace("-", "+").replace("_", "/")
    return plain + "=" * (-len(plain) % 4)


async def test_a_program_that_signs_is_as_good_as_one_with_a_secret() -> None:
    async with company() as firm:
        firm.shown = await firm.program(auth_method="private_key_jwt", jwks=json.dumps(public(KEYS["ES256"])))
        signer = Signer(firm.client_id)
        assert (await sent(firm.identity, by_signature(signer, firm.assertion()))).status == 200
        assert told(await firm.ask())[:2] == (401, "invalid_client")  # its id alone


def by_signature(signer: Signer, assertion: str) -> WireRequest:
    request = signer.request(grant_type=JWT_BEARER)
    return replace(request, form=(*request.form, ("assertion", assertion)))


DOCUMENT = "https://editor.example/client.json"


def document(**changes: Any) -> bytes:
    usual = {
        "client_id": DOCUMENT,
        "client_name": "Editor",
        "grant_types": [JWT_BEARER],
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": public(KEYS["ES256"]),
    }
    return json.dumps({**usual, **changes}).encode()


async def test_a_program_known_by_its_address_may_ask_if_it_proves_itself_with_a_key() -> None:
    described = client_metadata.read(DOCUMENT, document())
    assert described.grant_types == (JWT_BEARER,)
    with pytest.raises(client_metadata.BadDocument, match="no grant type"):
        client_metadata.read(DOCUMENT, document(token_endpoint_auth_method="none", jwks=None))
    async with company() as firm:
        registration = ClientRegistration(
            name="Editor", auth_method="private_key_jwt", grant_types=(JWT_BEARER,), jwks=described.jwks
        )
        await firm.identity.parts.store.write(
            lambda db: clients.insert(
                db, "doc", registration, kind="document", hashed=None, now=firm.clock.now
            )
        )
        request = by_signature(Signer("doc"), firm.idp.signed(firm.idp.said_of("doc")))
        assert (await sent(firm.identity, request)).status == 200


# ---------------------------------------------------------------- to what


@pytest.mark.parametrize(
    ("said", "asked", "server"),
    [
        (HERE, (), "agent"),
        (HERE, (HERE,), "agent"),
        (HERE + "/", (HERE,), "agent"),
        ([OTHER], (), "other"),
        (OTHER, (OTHER + "/",), "other"),
        ([HERE, OTHER], (OTHER,), "other"),
        ([HERE, HERE], (), "agent"),
        (None, (), "agent"),
        (None, (HERE,), "agent"),
    ],
)
async def test_the_token_is_for_the_server_that_the_assertion_names(
    said: Any, asked: tuple[str, ...], server: str
) -> None:
    async with company() as firm:
        answer = await firm.token(firm.assertion(resource=said), *(("resource", each) for each in asked))
        for name in SITE.servers:
            caller = await firm.caller(answer, name)
            assert isinstance(caller, Principal) == (name == server)


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("https://other.example/mcp", ()),
        ([HERE, "https://other.example/mcp"], ()),
        ([HERE, "https://other.example/mcp"], (HERE,)),
        ([HERE, OTHER], ()),
        ([HERE, OTHER], (HERE, OTHER)),
        (HERE, (OTHER,)),
        (HERE, ("https://other.example/mcp",)),
        (None, (OTHER,)),
        (ORIGIN, ()),
        ("http://[", ()),
    ],
)
async def test_a_resource_that_is_not_ours_or_not_one_gets_nothing(said: Any, asked: tuple[str, ...]) -> None:
    async with company() as firm:
        assertion = firm.assertion(resource=said)
        reply = await firm.ask(assertion, *(("resource", each) for each in asked))
        assert told(reply)[:2] == (400, "invalid_target")
        assert await firm.rows("grants") == await firm.rows("client_assertions") == []


@pytest.mark.parametrize(
    ("said", "asked", "client", "user", "granted"),
    [
        # the assertion,     the request,     the client,      the user,     what comes of it
        ("mcp",              "",              "*",             "*",          "mcp"),
        (None,               "",              "*",             "*",          "mcp mcp:tools mcp:resources"),
        (None,               "mcp:tools",     "*",             "*",          "mcp:tools"),
        ("mcp",              "mcp:tools",     "*",             "*",          "mcp:tools"),
        ("mcp:tools",        "mcp",           "*",             "*",          "mcp:tools"),
        ("mcp:tools",        "mcp:resources", "*",             "*",          ""),
        ("mcp",              "",              "mcp:tools",     "*",          "mcp:tools"),
        ("mcp",              "",              "*",             "mcp:tools",  "mcp:tools"),
        ("mcp",              "",              "mcp:resources", "mcp:tools",  ""),
        ("mcp",              "nonsense",      "*",             "*",          ""),
        ("nonsense",         "",              "*",             "*",          ""),
        ("",                 "",              "*",             "*",          ""),
        ("*",                "",              "*",             "*",          ""),
        ("offline_access",   "",              "*",             "*",          ""),
        ("mcp offline_access", "offline_access", "*",          "*",          "mcp"),
        # What moves money is named by the provider, the client's ceiling and, if it names anything, the request.
        ("mcp pay",          "",              "mcp pay",       "*",          "mcp pay"),
        ("mcp pay",          "pay",           "mcp pay",       "mcp pay",    "pay"),
        ("mcp pay",          "mcp",           "mcp pay",       "*",          "mcp"),
        ("mcp pay",          "",              "*",             "*",          "mcp"),
        ("mcp",              "mcp pay",       "mcp pay",       "*",          "mcp"),
        (None,               "mcp pay",       "mcp pay",       "*",          "mcp"),
        ("mcp pay",          "",              "mcp pay",       "mcp",        "mcp"),
    ],
)  # fmt: skip
async def test_the_scope_is_what_provider_request_client_and_user_have_in_common(
    said: str | None, asked: str, client: str, user: str, granted: str
) -> None:
    async with company() as firm:
        firm.shown = await firm.program(scope=client)
        await firm.change_user(ANN, scope=user)
        if granted:
            assert set((await firm.token(firm.assertion(scope=said), scope=asked))["scope"].split()) == set(
                granted.split()
            )
        else:
            await refused(firm, firm.assertion(scope=said), "invalid_scope", scope=asked)


async def test_a_narrower_ceiling_counts_at_the_next_call_and_a_disabled_account_has_none() -> None:
    async with company() as firm:
        answer = await firm.token()
        await firm.change_user(ANN, scope="mcp:resources")
        caller = await firm.caller(answer)
        assert isinstance(caller, Principal)
        assert caller.scopes == {"mcp:resources"}
        await firm.change_user(ANN, state="disabled")
        assert isinstance(await firm.caller(answer), BearerRefusal)
        await firm.change_user(ANN, state="enabled", expires_at=firm.clock.now + MINUTE)
        assert isinstance(await firm.caller(answer), Principal)
        firm.clock.now += MINUTE
        assert isinstance(await firm.caller(answer), BearerRefusal)


# ---------------------------------------------------------------- one login, while it lasts


async def test_a_login_that_goes_on_is_one_row_and_one_that_was_ended_is_another() -> None:
    async with company() as firm:
        first = await firm.token()
        assert isinstance(await firm.caller(first), Principal)  # its end is remembered from now on
        firm.clock.now += 30 * MINUTE
        second = await firm.token()
        (row,) = await firm.rows("grants")
        assert row["expires_at"] == firm.clock.now + 60 * MINUTE
        firm.clock.now += 31 * MINUTE
        assert isinstance(await firm.caller(first), BearerRefusal)
        assert isinstance(await firm.caller(second), Principal)
        revoke = lambda db: grants.revoke(db, row["id"], reason="test", by=ANN, now=firm.clock.now)  # noqa: E731
        assert await firm.identity.parts.store.write(revoke)
        assert isinstance(await firm.caller(second), BearerRefusal)
        third = await firm.token()
        assert isinstance(await firm.caller(third), Principal)
        assert isinstance(await firm.caller(second), BearerRefusal)
        await firm.token()
        assert len(await firm.rows("grants")) == 2


async def test_logins_that_differ_in_anything_are_rows_of_their_own() -> None:
    async with company(provider(), provider(name="guests", issuer="https://guests.example")) as firm:
        await firm.token()
        await firm.token(firm.assertion(scope="mcp:tools"))
        await firm.token(firm.assertion(resource=OTHER))
        await firm.token(firm.assertion(sub="sub-of-eve"))
        firm.shown = await firm.program()
        await firm.token()
        assert len(await firm.rows("grants")) == 5
        firm.clock.now += 60 * MINUTE
        await firm.token()
        assert len(await firm.rows("grants")) == 6


async def test_a_program_revokes_its_token_like_any_other() -> None:
    async with company() as firm:
        answer = await firm.token()
        reply = await sent(firm.identity, post("/revoke", **firm.shown, token=answer["access_token"]))
        assert reply.status == 200
        assert isinstance(await firm.caller(answer), BearerRefusal)


# ---------------------------------------------------------------- once


async def test_an_assertion_counts_once_for_as_long_as_it_could_count() -> None:
    async with company() as firm:
        assertion = firm.assertion()
        await firm.token(assertion)
        (kept,) = await firm.rows("client_assertions")
        assert kept["expires_at"] == firm.clock.now + 330_000
        for seconds in (0, 100, 229):
            firm.clock.now += seconds * 1_000
            assert told(await firm.ask(assertion))[:2] == (400, "invalid_grant")
        assert (await firm.audited())[-1] == ("refused", "work sub-of-ann: assertion used again")
        firm.clock.now += 1_000
        await refused(firm, assertion, "invalid_grant", "expired")
        assert len(await firm.rows("grants")) == 1


async def test_another_program_or_another_provider_may_have_thought_of_the_same_jti() -> None:
    guests = provider(name="guests", issuer="https://guests.example", allow={"sub-of-ann": "eve"})
    async with company(provider(), guests) as firm:
        await firm.token(firm.assertion(jti="same"))
        assert told(await firm.ask(firm.assertion(jti="same", sub="sub-of-eve")))[1] == "invalid_grant"
        firm.idp.discovery = {"issuer": "https://guests.example"}
        firm.idp.origin = "https://guests.example"
        # Its documents are asked for at its own address.
        firm.identity.parts.upstreams._ask = at("https://guests.example", firm.idp)  # pyright: ignore[reportPrivateUsage]
        caller = await firm.caller(await firm.token(firm.assertion(jti="same", iss="https://guests.example")))
        assert isinstance(caller, Principal) and caller.subject == EVE


def at(origin: str, idp: Idp) -> Any:
    async def ask(method: str, url: str, headers: Any, body: bytes) -> Any:
        return await idp.ask(method, IDP + url.removeprefix(origin), headers, body)

    return ask


async def test_a_request_that_is_wrong_uses_nothing_up() -> None:
    async with company() as firm:
        assertion = firm.assertion()
        for form in ({"resource": OTHER}, {"scope": "nonsense"}, {"client_secret": "wrong"}):
            assert (await firm.ask(assertion, **form)).status in (400, 401)
        await firm.change_user(ANN, state="locked")
        assert (await firm.ask(assertion)).status == 400
        await firm.change_user(ANN, state="enabled")
        await firm.token(assertion)


async def test_of_twenty_parallel_uses_of_one_assertion_one_counts(tmp_path: Path) -> None:
    clock = Clock()
    idp = Idp(clock)
    async with open_at(place_of(tmp_path / "ostiary.db"), clock=clock) as store:
        identity = await found(
            store,
            clock=clock,
            entropy=seeds(),
            subkey=subkey,
            site=SITE,
            policy=trusting(),
            upstreams=upstreams(idp),
        )
        store.on_changes(identity.apply_changes)
        firm = await moved_in(Company(identity, idp, clock))
        assertion, answers = firm.assertion(), list[tuple[int, str, str]]()

        async def one() -> None:
            answers.append(told(await firm.ask(assertion)))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(one)
        assert sorted(status for status, _, _ in answers) == [200] + [400] * 19
        assert {error for status, error, _ in answers if status == 400} == {"invalid_grant"}
        assert len(await firm.rows("grants")) == len(await firm.rows("client_assertions")) == 1


# ---------------------------------------------------------------- everything that must not count


Make = Callable[[Company], str]


def _headed(firm: Company, **changed: Any) -> str:
    """Another header over a signature that was good."""
    _, payload, signature = firm.assertion().split(".")
    head = {"alg": "ES256", "kid": "first", "typ": "oauth-id-jag+jwt", **changed}
    return (
        f"{b64(json.dumps({k: v for k, v in head.items() if v is not None}).encode())}.{payload}.{signature}"
    )


def _moved(firm: Company, **changed: Any) -> str:
    head, _, signature = firm.assertion().split(".")
    return f"{head}.{firm.assertion(**changed).split('.')[1]}.{signature}"


def _by_another(firm: Company, kid: str) -> str:
    return Key("ES256", kid).sign(firm.claims(), typ="oauth-id-jag+jwt")


def _now(firm: Company) -> int:
    return firm.clock.now // 1_000


FORGED: dict[str, tuple[Make, str]] = {
    # the header
    "no algorithm": (lambda c: c.idp.signed(c.claims(), alg="none") + "AA", "alg"),
    "no algorithm, in capitals": (lambda c: _headed(c, alg="NONE"), "alg"),
    "no alg member": (lambda c: _headed(c, alg=None), "alg"),
    "a list of algorithms": (lambda c: _headed(c, alg=["ES256"]), "alg"),
    "HS256 with the client's secret": (lambda c: c.idp.signed(c.claims(), alg="HS256"), "alg"),
    "an algorithm of another kind of key": (lambda c: _headed(c, alg="RS256"), "signature"),
    "an id token": (lambda c: c.idp.signed(c.claims(), typ="JWT"), "typ"),
    "an access token": (lambda c: c.idp.signed(c.claims(), typ="at+jwt"), "typ"),
    "a client's assertion": (lambda c: c.idp.signed(c.claims(), typ="client-authentication+jwt"), "typ"),
    "no typ": (lambda c: _headed(c, typ=None), "typ"),
    "a typ in capitals": (lambda c: c.idp.signed(c.claims(), typ="OAuth-ID-JAG+JWT"), "typ"),
    "a typ that is a list": (lambda c: c.idp.signed(c.claims(), typ=["oauth-id-jag+jwt"]), "typ"),
    "critical extensions": (lambda c: c.idp.signed(c.claims(), crit=["b64"], b64=False), "critical"),
    "a kid that is a number": (lambda c: c.idp.signed(c.claims(), kid=7), "kid"),
    "an unknown kid": (lambda c: _by_another(c, "unknown"), "signature"),
    # the signature
    "another key of the same name": (lambda c: _by_another(c, "first"), "signature"),
    "another key of no name": (lambda c: _by_another(c, ""), "signature"),
    "its own key in the header": (
        lambda c: (k := Key("ES256", "first")).sign(c.claims(), typ="oauth-id-jag+jwt", jwk=k.jwk),
        "signature",
    ),
    "another payload": (lambda c: _moved(c, sub="sub-of-eve"), "signature"),
    "no signature": (lambda c: c.assertion().rpartition(".")[0] + ".", "compact JWS"),
    "a signature of zeros": (lambda c: c.assertion().rpartition(".")[0] + "." + "A" * 86, "signature"),
    "half a signature": (lambda c: c.assertion()[:-43], "signature"),
    # whose word it is, and for whom
    "another issuer": (lambda c: c.assertion(iss="https://other.example"), "iss"),
    "the issuer with a slash": (lambda c: c.assertion(iss=IDP + "/"), "iss"),
    "no issuer": (lambda c: c.assertion(iss=None), "iss"),
    "ourselves as issuer": (lambda c: c.assertion(iss=ORIGIN), "iss"),
    "a list of issuers": (lambda c: c.assertion(iss=[IDP]), "iss"),
    "another audience": (lambda c: c.assertion(aud="https://other.example"), "aud"),
    "the resource as audience": (lambda c: c.assertion(aud=HERE), "aud"),
    "the token endpoint as audience": (lambda c: c.assertion(aud=ORIGIN + "/token"), "aud"),
    "our client id there as audience": (lambda c: c.assertion(aud="ostiary-here"), "aud"),
    "two audiences": (lambda c: c.assertion(aud=[ORIGIN, "https://other.example"]), "aud"),
    "the same audience twice": (lambda c: c.assertion(aud=[ORIGIN, ORIGIN]), "aud"),
    "an empty list of audiences": (lambda c: c.assertion(aud=[]), "aud"),
    "an audience in an audience": (lambda c: c.assertion(aud=[[ORIGIN]]), "aud"),
    "no audience": (lambda c: c.assertion(aud=None), "aud"),
    "another program": (lambda c: c.assertion(client_id=CLI_CLIENT_ID), "client_id"),
    "no program": (lambda c: c.assertion(client_id=None), "client_id"),
    "a program in azp only": (lambda c: c.assertion(client_id=None, azp=c.client_id), "client_id"),
    "a list of programs": (lambda c: c.assertion(client_id=[c.client_id]), "client_id"),
    # when
    "expired": (lambda c: c.assertion(exp=_now(c) - 30), "expired"),
    "expired long ago": (lambda c: c.assertion(exp=-(10**30)), "expired"),
    "far ahead": (lambda c: c.assertion(exp=_now(c) + 631), "exp"),
    "for ever": (lambda c: c.assertion(exp=10**300), "exp"),
    "no end": (lambda c: c.assertion(exp=None), "exp"),
    "a text as end": (lambda c: c.assertion(exp=str(_now(c) + 60)), "exp"),
    "truth as end": (lambda c: c.assertion(exp=True), "exp"),
    "infinity as end": (lambda c: c.idp.raw(_with(c, b'"exp":1e999')), "exp"),
    "no beginning": (lambda c: c.assertion(iat=None), "iat"),
    "made tomorrow": (lambda c: c.assertion(iat=_now(c) + 86_400), "iat"),
    "made yesterday": (lambda c: c.assertion(iat=_now(c) - 86_400), "too long ago"),
    "not yet": (lambda c: c.assertion(nbf=_now(c) + 60), "nbf"),
    "a text as not before": (lambda c: c.assertion(nbf="now"), "nbf"),
    "somebody who will have signed in": (lambda c: c.assertion(auth_time=_now(c) + 60), "auth_time"),
    "somebody who signed in before time": (lambda c: c.assertion(auth_time=-1), "auth_time"),
    # what makes it one of a kind
    "no jti": (lambda c: c.assertion(jti=None), "jti"),
    "an empty jti": (lambda c: c.assertion(jti=""), "jti"),
    "a number as jti": (lambda c: c.assertion(jti=7), "jti"),
    "a long jti": (lambda c: c.assertion(jti="x" * 257), "jti"),
    # of whom
    "nobody": (lambda c: c.assertion(sub=None), "sub"),
    "an empty subject": (lambda c: c.assertion(sub=""), "sub"),
    "a list of subjects": (lambda c: c.assertion(sub=["sub-of-ann"]), "sub"),
    "a long subject": (lambda c: c.assertion(sub="x" * 256), "sub"),
    "a subject with a NUL": (lambda c: c.assertion(sub="sub\0"), "sub"),
    "half a letter as subject": (lambda c: c.assertion(sub="\ud800"), "sub"),
    "an address as subject": (lambda c: c.assertion(sub="email:bob@example.org"), "sub"),
    "a login as subject": (lambda c: c.assertion(sub="login:bob"), "sub"),
    # to what
    "a resource that is a number": (lambda c: c.assertion(resource=7), "resource"),
    "an empty resource": (lambda c: c.assertion(resource=""), "resource"),
    "an empty list of resources": (lambda c: c.assertion(resource=[]), "resource"),
    "a resource among other things": (lambda c: c.assertion(resource=[HERE, 7]), "resource"),
    "eleven resources": (lambda c: c.assertion(resource=[HERE] * 11), "resource"),
    "a list of scopes": (lambda c: c.assertion(scope=["mcp"]), "scope"),
    "a long scope": (lambda c: c.assertion(scope="mcp " * 300), "scope"),
    # what would narrow it, if we knew how
    "bound to a key": (lambda c: c.assertion(cnf={"jkt": "x"}), "key"),
    "details": (lambda c: c.assertion(authorization_details=[]), "authorization_details"),
    "one tenant of several": (lambda c: c.assertion(tenant="acme"), "tenant"),
    "for one tenant of several": (lambda c: c.assertion(aud_tenant="acme"), "tenant"),
    # the form
    "a member twice": (lambda c: c.idp.raw(_with(c, b'"sub":"sub-of-eve"')), "twice"),
    "a list of claims": (lambda c: c.idp.raw(b"[]"), "unreadable"),
    "no JSON": (lambda c: c.idp.raw(b"x"), "unreadable"),
    "no UTF-8": (lambda c: c.idp.raw(b'"\xff"'), "unreadable"),
    "a deep one": (lambda c: c.idp.raw(b"[" * 2_500 + b"]" * 2_500), "unreadable"),
    "a number without end": (lambda c: c.idp.raw(b'{"exp":' + b"9" * 5_000 + b"}"), "unreadable"),
    "two parts": (lambda c: c.assertion().rpartition(".")[0], "compact JWS"),
    "five parts": (lambda c: c.assertion() + ".x.y", "compact JWS"),
    "words": (lambda c: "not a token", "compact JWS"),
    "an assertion of SAML": (lambda c: "PHNhbWwyOkFzc2VydGlvbj4=", "compact JWS"),
}


def _with(firm: Company, member: bytes) -> bytes:
    claims = firm.claims(exp=None) if member.startswith(b'"exp"') else firm.claims()
    return json.dumps(claims).encode()[:-1] + b"," + member + b"}"


@pytest.mark.parametrize("case", FORGED)
async def test_what_is_forged_or_loose_lets_nobody_in_and_says_what_is_wrong(case: str) -> None:
    make, says = FORGED[case]
    async with company() as firm:
        await refused(firm, make(firm), "invalid_grant", says)


async def test_a_huge_one_is_refused_before_it_is_read() -> None:
    async with company() as firm:
        reply = await firm.ask(firm.assertion(more="x" * 8_000))
        assert told(reply) == (400, "invalid_request", "assertion is too long")
        assert firm.idp.asked == []


@pytest.mark.parametrize("assertion", [(), ("",), ("a", "b")])
async def test_none_or_two_are_no_request(assertion: tuple[str, ...]) -> None:
    async with company() as firm:
        pairs = (("assertion", each) for each in assertion)
        reply = await sent(firm.identity, post("/token", *pairs, **firm.shown, grant_type=JWT_BEARER))
        assert told(reply)[:2] == (400, "invalid_request")


async def test_a_key_that_gives_itself_away_proves_nothing() -> None:
    async with company() as firm:
        firm.idp.published = [{**firm.idp.key.jwk, "d": "AAAA"}]
        await refused(firm, None, "invalid_grant", "signature")


# ---------------------------------------------------------------- who must not


@pytest.mark.parametrize("state", ["disabled", "locked", "invited"])
async def test_an_account_that_is_not_open_is_not_opened_by_it(state: str) -> None:
    async with company() as firm:
        await firm.change_user(ANN, state=state)
        await refused(firm, None, "invalid_grant")
        assert await firm.rows("user_identities") == []


async def test_people_who_are_not_listed_or_whose_time_is_over_are_not_let_in() -> None:
    async with company() as firm:
        await refused(firm, firm.assertion(sub="sub-of-mallory"), "invalid_grant")
        assert (await firm.audited())[-1] == ("refused", "work sub-of-mallory: not listed")
        await refused(firm, firm.assertion(sub="ann"), "invalid_grant")  # our name for her is not theirs
        await refused(firm, firm.assertion(sub="x", email="bob@example.org"), "invalid_grant")
        await firm.change_user(ANN, expires_at=firm.clock.now)
        await refused(firm, None, "invalid_grant")
    async with company(provider(allow={"sub-of-ann": "nobody"})) as firm:
        await refused(firm, None, "invalid_grant")


async def test_a_provider_that_people_only_sign_in_with_vouches_for_nobody() -> None:
    silent = provider(name="silent", issuer="https://silent.example", assertions=False)
    async with company(provider(), silent) as firm:
        await refused(firm, firm.assertion(iss="https://silent.example"), "invalid_grant", "iss")
        assert firm.idp.asked == []


async def test_only_programs_with_the_grant_and_with_something_to_show_may_ask() -> None:
    async with company() as firm:
        plain = await firm.program(grant_types=(AUTHORIZATION_CODE,), redirect_uris=("http://127.0.0.1/x",))
        itself = await enrolled(firm.identity, "TypeScript SDK")
        shown = {name: itself[name] for name in ("client_id", "client_secret")}
        for firm.shown in (plain, shown, {"client_id": CLI_CLIENT_ID}):
            assert told(await firm.ask())[:2] == (400, "unauthorized_client")
        for firm.shown in ({"client_id": "nobody"}, {}):
            reply = await sent(
                firm.identity,
                post("/token", **firm.shown, grant_type=JWT_BEARER, assertion=firm.idp.signed({})),
            )
            assert told(reply)[:2] == (401, "invalid_client")
        firm.shown = {**await firm.program(), "client_secret": "wrong"}
        assert told(await firm.ask())[:2] == (401, "invalid_client")
        assert firm.idp.asked == []  # none of them makes us ask anybody
        assert await firm.rows("grants") == []


@pytest.mark.parametrize(
    ("kind", "method"), [("dynamic", "client_secret_basic"), ("builtin", "none"), ("registered", "none")]
)
async def test_a_row_that_somebody_else_wrote_is_not_enough(kind: str, method: str) -> None:
    async with company() as firm:
        await firm.identity.parts.store.write(
            by_hand(
                "UPDATE clients SET kind = ?, auth_method = ?, secret_hash = CASE ? WHEN 'none' THEN NULL"
                " ELSE secret_hash END WHERE id = ?",
                kind,
                method,
                method,
                firm.client_id,
            )
        )
        if method == "none":
            del firm.shown["client_secret"]
        assert told(await firm.ask())[1] in ("unauthorized_client", "invalid_grant")
        assert await firm.rows("grants") == []


async def test_an_assertion_that_was_read_for_one_program_is_worth_nothing_to_another() -> None:
    async with company() as firm:
        said = read(
            firm.assertion(),
            client_id=firm.client_id,
            names={ORIGIN},
            providers=[provider()],
            now=firm.clock.now,
        ).asserted
        other = (await firm.program())["client_id"]

        def job(db: Db) -> list[object]:
            listed = upstream.account_of(db, said.person, said.provider, firm.clock.now)
            found = (clients.lookup(db, each) for each in (firm.client_id, other))
            return [
                decide(said, each, listed, server="agent", asked="", known=SITE.scopes, now=firm.clock.now)
                for each in found
                if each is not None
            ]

        assert await firm.identity.parts.store.read(job) == [
            GrantedAccess(server="agent", scope="mcp mcp:tools"),
            TokenRefusal(error="invalid_grant", reason="made for another client"),
        ]


async def test_a_disabled_program_brings_nobody_in_and_what_it_has_is_refused() -> None:
    async with company() as firm:
        answer = await firm.token()
        await firm.identity.parts.store.write(
            lambda db: clients.disable(db, firm.client_id, by="local:0", now=firm.clock.now)
        )
        assert isinstance(await firm.caller(answer), BearerRefusal)
        assert told(await firm.ask())[:2] == (401, "invalid_client")


async def test_programs_that_register_themselves_cannot_have_the_grant_nor_the_operator_give_it_to_a_public_one() -> (
    None
):
    async with company() as firm:
        body = {**SEEN["Python SDK"], "grant_types": [AUTHORIZATION_CODE, JWT_BEARER]}
        reply = await sent(firm.identity, ask("/register", body))
        assert told(reply)[:2] == (400, "invalid_client_metadata")
    public_one = ClientRegistration(name="x", grant_types=(JWT_BEARER,))
    (problem,) = public_one.check(Vocabulary())
    assert problem.startswith(f"grant_types: {JWT_BEARER}")


# ---------------------------------------------------------------- asking the provider


async def test_documents_are_asked_for_once_and_a_new_key_at_once() -> None:
    async with company() as firm:
        for _ in range(5):
            await firm.token()
        assert firm.idp.asked == ["GET /.well-known/openid-configuration", "GET /keys"]
        firm.clock.now += MINUTE
        firm.idp.key = Key("RS256", "second")
        firm.idp.published.append(firm.idp.key.jwk)
        await firm.token()
        assert firm.idp.asked[2:] == ["GET /keys"]
        for _ in range(5):
            await refused(firm, _by_another(firm, "unknown"), "invalid_grant")
        assert firm.idp.asked[3:] == []
        firm.clock.now += MINUTE
        for _ in range(5):
            await refused(firm, _by_another(firm, "unknown"), "invalid_grant")
        assert firm.idp.asked[3:] == ["GET /keys"]


async def test_a_provider_that_is_down_is_said_to_be_and_left_alone_for_a_moment() -> None:
    async with company() as firm:
        firm.idp.down = True
        assertion = firm.assertion()
        for _ in range(5):
            reply = await firm.ask(assertion)
            assert told(reply)[:2] == (429, "temporarily_unavailable")
            assert header(reply, "retry-after") == "10"
        assert firm.idp.asked == ["in vain"]
        assert (await firm.audited())[0] == ("refused", "Example Ltd does not answer in time")
        firm.idp.down = False
        firm.clock.now += 10_000
        await firm.token(assertion)  # nothing was used up


async def test_while_it_is_down_its_known_keys_count_for_an_hour_whatever_else_is_brought() -> None:
    async with company() as firm:
        await firm.token()
        firm.idp.down = True
        firm.clock.now += MINUTE
        assert told(await firm.ask(_by_another(firm, "unknown")))[1] == "temporarily_unavailable"
        await firm.token()
        firm.clock.now += 58 * MINUTE
        await firm.token()
        firm.clock.now += MINUTE
        assert told(await firm.ask())[1] == "temporarily_unavailable"


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/.well-known/openid-configuration", (500, b"")),
        ("/.well-known/openid-configuration", (200, b"<html>")),
        ("/.well-known/openid-configuration", (200, b'{"issuer": "https://other.example"}')),
        ("/keys", (404, b"{}")),
        ("/keys", (200, b"[]")),
        ("/keys", (200, b'{"keys": {}}')),
        ("/keys", (302, b"{}")),
    ],
)
async def test_a_provider_whose_documents_are_no_good_lets_nobody_in(
    path: str, answer: tuple[int, bytes]
) -> None:
    async with company() as firm:
        firm.idp.broken = {path: answer}
        assert told(await firm.ask())[:2] == (429, "temporarily_unavailable")
        assert await firm.rows("grants") == []


# ---------------------------------------------------------------- off, unless it is on


async def test_without_a_provider_for_it_nothing_of_it_exists() -> None:
    async with company(provider(assertions=False), policy=POLICY) as firm:
        assert told(await firm.ask())[:2] == (400, "unsupported_grant_type")
        assert firm.idp.asked == []
        document = server_metadata.authorization_server(SITE, POLICY, ORIGIN)
        assert JWT_BEARER not in document["grant_types_supported"]
        assert "authorization_grant_profiles_supported" not in document
        assert self_test.examine(firm.identity.parts) == ()


async def test_with_one_the_metadata_says_so_and_the_self_test_agrees() -> None:
    async with company() as firm:
        reply = await sent(firm.identity, get(endpoint_paths.AUTHORIZATION_SERVER))
        document = json.loads(reply.body)
        assert document["authorization_grant_profiles_supported"] == [PROFILE]
        assert document["grant_types_supported"][-1] == JWT_BEARER
        assert self_test.examine(firm.identity.parts) == ()
    async with open_identity() as identity:  # metadata that promises more than there is
        (told_too_much,) = self_test.examine(
            identity.parts,
            lambda site, policy, path, origin: server_metadata.document(site, trusting(), path, origin),
        )
        assert "grant types" in told_too_much


async def test_the_list_says_who_somebody_is_and_a_claim_of_theirs_does_not() -> None:
    async with company() as firm:
        now, here = firm.clock.now, provider()
        look = firm.identity.parts.store.read

        async def who(subject: str, *also: str) -> ListedAccount | NotLetIn:
            person = ProviderPerson(subject=subject, also=also, shown=subject)
            return await look(lambda db: upstream.account_of(db, person, here, now))

        ann, bob = await who("sub-of-ann"), await who("x", "email:bob@example.org")
        assert isinstance(ann, ListedAccount) and (ann.user.id, ann.entry) == (ANN, "sub-of-ann")
        assert isinstance(bob, ListedAccount) and bob.user.id == BOB
        claimed = await who("email:bob@example.org")
        assert isinstance(claimed, NotLetIn) and claimed.why == "not listed"
        assert set(ALLOW.values()) == {"ann", "bob", "eve"}
