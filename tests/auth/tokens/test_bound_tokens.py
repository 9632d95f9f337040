"""Tokens that are bound to a key: that each proof counts once, and that nothing else stands in for one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from auth.tokens.challenge import BearerRefusal
from auth.tokens.dpop import BACK_SECONDS, DpopProof, ProofWindow
from auth.tokens.presentation import PresentedProof
from auth.values.model import Principal
from tests.auth.dpop_fakes import ENDPOINT, Prover, bound, call, redeeming, refreshing, sent, told
from tests.auth.identity_fakes import ORIGIN, SECOND, START, Clock, open_identity


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
        assert isinstance(refused, BearerRefusal)
        assert refused.error == "invalid_dpop_proof"


@pytest.mark.parametrize("seed", range(20))
def test_no_flood_and_no_clock_lets_the_window_take_one_proof_twice(seed: int) -> None:
    random, window, taken = Random(seed), ProofWindow(remembered=50), set[str]()
    now, made = 1_000, list[DpopProof]()
    for _ in range(3_000):
        now += random.choice((0, 0, 0, 0, 1, 1, -1, random.randint(-90, 90)))
        if made and random.random() < 0.5:
            proof = random.choice(made)
        else:
            second = now + random.randint(-BACK_SECONDS, 10)
            proof = DpopProof(jkt="k", id_hash=f"{len(made)}", issued_at=second)
            made.append(proof)
        if window.use_up(proof, now * 1_000):
            assert proof.id_hash not in taken
            taken.add(proof.id_hash)
        assert len(window) <= 50
    assert taken


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
        assert isinstance(found, BearerRefusal)
        assert found.status == 401


async def test_more_spaces_after_the_scheme_spare_no_proof() -> None:
    async with open_identity() as identity:
        token = (await bound(identity, Prover()))["access_token"]
        for spaces in range(1, 6):  # with three, it begins where a Bearer token would
            assert isinstance(await call(identity, f"DPoP{' ' * spaces}{token}"), BearerRefusal)


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
            assert isinstance(
                await call(identity, f"DPoP {token}", PresentedProof(posted, method)), BearerRefusal
            )
        assert isinstance(await call(identity, f"DPoP {token}", PresentedProof(posted, "POST")), Principal)


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
