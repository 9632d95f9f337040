"""What a review found of proofs that count once and of people whom a provider vouches for, kept as tests."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from dpop_fakes import ENDPOINT, Prover, bound, call, redeeming, refreshing, sent, told
from enterprise_fakes import company, provider
from identity_fakes import ORIGIN, SECOND, START, Clock, open_identity

from auth.model import Principal
from auth.tokens.dpop import BACK_SECONDS, Presented, Proof, Window
from auth.tokens.verify import Refused
from auth.upstream import sign_in as upstream
from server.settings.reading import load
from server.settings.resolve import resolve
from server.settings.upstreams import providers

# ---------------------------------------------------------------- a proof counts once


async def test_a_clock_that_is_set_back_lets_no_old_proof_in_again() -> None:
    clock, prover = Clock(), Prover()
    async with open_identity(clock=clock) as identity:
        token = (await bound(identity, prover))["access_token"]
        stolen = prover.shown(token)
        assert isinstance(await call(identity, f"DPoP {token}", stolen), Principal)
        clock.now += (BACK_SECONDS + 20) * SECOND
        later = prover.shown(token, iat=clock.now // SECOND)
        assert isinstance(await call(identity, f"DPoP {token}", later), Principal)
        clock.now = START
        refused = await call(identity, f"DPoP {token}", stolen)
        assert isinstance(refused, Refused)
        assert refused.error == "invalid_dpop_proof"


@pytest.mark.parametrize("seed", range(20))
def test_no_flood_and_no_clock_lets_the_window_take_one_proof_twice(seed: int) -> None:
    random, window, taken = Random(seed), Window(remembered=50), set[str]()
    now, made = 1_000, list[Proof]()
    for _ in range(3_000):
        now += random.choice((0, 0, 0, 0, 1, 1, -1, random.randint(-90, 90)))
        if made and random.random() < 0.5:
            proof = random.choice(made)
        else:
            second = now + random.randint(-BACK_SECONDS, 10)
            proof = Proof(jkt="k", id_hash=f"{len(made)}", issued_at=second)
            made.append(proof)
        if window.use_up(proof, now * 1_000):
            assert proof.id_hash not in taken
            taken.add(proof.id_hash)
        assert len(window) <= 50
    assert taken


# ---------------------------------------------------------------- a bound token is nothing without its proof


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer {0}",
        "bearer {0}",
        "Bearer   {0}",
        "DPoP {0}, Bearer {0}",  # two headers, joined
        "Bearer {0}, DPoP {0}",
        "Basic {0}",
        "X-DPoP {0}",
    ],
)
@pytest.mark.parametrize("proven", [False, True])
async def test_no_way_of_writing_a_bound_token_spares_its_proof(authorization: str, proven: bool) -> None:
    prover = Prover()
    async with open_identity() as identity:
        token = (await bound(identity, prover))["access_token"]
        proof = prover.shown(token) if proven else None
        found = await call(identity, authorization.format(token), proof)
        assert isinstance(found, Refused)
        assert found.status == 401


async def test_more_spaces_after_the_scheme_spare_no_proof() -> None:
    async with open_identity() as identity:
        token = (await bound(identity, Prover()))["access_token"]
        for spaces in range(1, 6):  # with three, it begins where a Bearer token would
            assert isinstance(await call(identity, f"DPoP{' ' * spaces}{token}"), Refused)


@pytest.mark.parametrize(
    ("changed", "let_in"),
    [
        ({"htu": ENDPOINT + "/"}, True),
        ({"htu": ENDPOINT + "?tools=a#b"}, True),
        ({"htu": ORIGIN.upper() + "/mcp"}, True),
        ({"htu": ORIGIN + "/MCP"}, False),
        ({"htu": ORIGIN + "/%6dcp"}, False),
        ({"htu": ORIGIN + "//mcp"}, False),
        ({"htu": ORIGIN + "/mcp//"}, False),
        ({"htu": ORIGIN + "/mcp/../mcp"}, False),
        ({"htu": ORIGIN + "/mcp;x"}, False),
        ({"htu": ORIGIN + "\\@other.example/mcp"}, False),
        ({"htu": "http://127.0.0.1.:8420/mcp"}, False),
        ({"htu": "http://[::ffff:127.0.0.1]:8420/mcp"}, False),
        ({"htu": "http://2130706433:8420/mcp"}, False),
        ({"htu": ORIGIN + "/other/mcp"}, False),
        ({"ath": None}, False),
        ({"ath": ""}, False),
        ({"ath": ["x"]}, False),
    ],
)
async def test_a_proof_is_about_this_address_and_this_token_however_it_is_written(
    changed: dict[str, Any], let_in: bool
) -> None:
    prover = Prover()
    async with open_identity() as identity:
        token = (await bound(identity, prover))["access_token"]
        found = await call(identity, f"DPoP {token}", prover.shown(token, **changed))
        assert isinstance(found, Principal) is let_in


async def test_a_proof_for_one_verb_opens_no_other() -> None:
    prover = Prover()
    async with open_identity() as identity:
        token = (await bound(identity, prover))["access_token"]
        posted = prover.proof(token, htm="POST")
        for method in ("GET", "DELETE", "HEAD"):
            assert isinstance(await call(identity, f"DPoP {token}", Presented(posted, method)), Refused)
        assert isinstance(await call(identity, f"DPoP {token}", Presented(posted, "POST")), Principal)


async def test_a_spent_refresh_token_is_repeated_to_its_own_key_alone() -> None:
    mine, thief = Prover(), Prover()
    async with open_identity() as identity:
        first = (await bound(identity, mine))["refresh_token"]
        assert (await sent(identity, refreshing(first), mine.proof())).status == 200
        for proof in (None, thief.proof()):  # within the window in which it is repeated
            assert told(await sent(identity, refreshing(first), proof))[:2] == (400, "invalid_grant")
        assert (await sent(identity, refreshing(first), mine.proof())).status == 200


async def test_a_proof_that_was_used_for_a_refused_request_is_used() -> None:
    prover = Prover()
    async with open_identity() as identity:
        proof = prover.proof()
        assert told(await sent(identity, redeeming("no such code"), proof))[1] == "invalid_grant"
        assert told(await sent(identity, redeeming("no such code"), proof))[1] == "invalid_dpop_proof"


# ---------------------------------------------------------------- whom a provider vouches for


@pytest.mark.parametrize(
    "email",
    ["straße@example.org", "\u212aim@example.org", "o\ufb01ce@example.org", "\u017fue@example.org"],
)
def test_an_address_with_other_letters_is_another_address(email: str) -> None:
    listed = {"strasse@example.org", "kim@example.org", "ofice@example.org", "sue@example.org"}
    person = upstream.person_of("sub", {"email": email, "email_verified": True})
    assert not {f"email:{each}" for each in listed} & set(person.also)
    assert person.also == (f"email:{email}",)


async def test_whoever_verified_an_address_that_only_looks_the_same_is_not_let_in() -> None:
    allow = {"email:strasse@example.org": "bob"}
    async with company(provider(allow=allow)) as firm:
        mail: dict[str, Any] = {"email_verified": True}
        other = await firm.ask(firm.assertion(sub="else", email="straße@example.org", **mail))
        assert told(other)[:2] == (400, "invalid_grant")
        assert (await firm.ask(firm.assertion(sub="bob", email="Strasse@Example.org", **mail))).status == 200


def test_the_list_writes_addresses_as_the_provider_does(tmp_path: Path) -> None:
    file = tmp_path / "ostiary.toml"
    people = '{ subject = "email:Straße@example.org", user = "a" }, { subject = "email:Ann@B.example", user = "b" }'
    file.write_text(
        '[[upstream]]\nname = "work"\nkind = "oidc"\nclient_id = "x"\nissuer = "https://login.example.org"\n'
        f"allow = [{people}]\n",
        "utf-8",
    )
    (work,) = providers(resolve(load(file, {})).upstreams).values()
    assert work.allow == {"email:Straße@example.org": "a", "email:ann@b.example": "b"}
