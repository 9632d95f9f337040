"""Tokens that are bound to a key: that each proof counts once, and that nothing else stands in for one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from auth.client_authentication.dpop_proofs import (
    AHEAD_SECONDS,
    BACK_SECONDS,
    DpopProof,
    ProofNonces,
    ProofWindow,
)
from auth.identity import Identity, found
from auth.tokens.presented_credentials import PresentedProof
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.identity_model import Principal
from tests.auth.dpop_fakes import ENDPOINT, Prover, bound, call, redeeming, refreshing, sent
from tests.auth.identity_fakes import (
    ORIGIN,
    POLICY,
    SECOND,
    SITE,
    START,
    Clock,
    open_identity,
    seeds,
    subkey,
    told,
)


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


# ---------------------------------------------------------------- once, also when the process is another one


async def begun(before: Identity, clock: Clock) -> Identity:
    """The process that comes after this one, on the same store."""
    return await found(
        before.parts.store, clock=clock, entropy=seeds(9), subkey=subkey, site=SITE, policy=POLICY
    )


def nonce_of(answer: Principal | BearerRefusal) -> str:
    assert isinstance(answer, BearerRefusal)
    assert (answer.status, answer.error) == (401, "use_dpop_nonce")
    assert answer.www_authenticate.startswith('DPoP error="use_dpop_nonce", ')
    return answer.nonce


@pytest.mark.parametrize("off", [-BACK_SECONDS, -5, 0, AHEAD_SECONDS])
async def test_a_proof_that_counted_before_a_restart_opens_nothing_after_it_whatever_its_clock_says(
    off: int,
) -> None:
    clock, prover = Clock(), Prover()
    async with open_identity(clock=clock) as before:
        token = (await bound(before, prover))["access_token"]
        caught = prover.shown(token, iat=START // SECOND + off)
        assert isinstance(await call(before, f"DPoP {token}", caught), Principal)
        after = await begun(before, clock)
        for second in range(BACK_SECONDS + AHEAD_SECONDS + 2):
            clock.now = START + second * SECOND
            assert isinstance(await call(after, f"DPoP {token}", caught), BearerRefusal)


@pytest.mark.parametrize("off", [-BACK_SECONDS, -5, 0, AHEAD_SECONDS])
async def test_a_client_that_calls_just_after_a_restart_is_let_in_at_its_second_try_whatever_its_clock_says(
    off: int,
) -> None:
    prover = Prover()
    async with open_identity(age=0) as identity:
        token = (await bound(identity, prover))["access_token"]
        iat = START // SECOND + off
        first = prover.shown(token, iat=iat)
        nonce = nonce_of(await call(identity, f"DPoP {token}", first))
        again = prover.shown(token, iat=iat, nonce=nonce)
        assert isinstance(await call(identity, f"DPoP {token}", again), Principal)
        refused = await call(identity, f"DPoP {token}", again)
        assert isinstance(refused, BearerRefusal)
        assert (refused.error, refused.nonce) == ("invalid_dpop_proof", "")
        # It stays good for every proof that follows.
        assert isinstance(
            await call(identity, f"DPoP {token}", prover.shown(token, iat=iat, nonce=nonce)), Principal
        )


async def test_from_ten_seconds_after_the_start_no_nonce_is_wanted_of_a_clock_that_is_right() -> None:
    clock, prover = Clock(), Prover()
    async with open_identity(clock=clock, age=0) as identity:
        token = (await bound(identity, prover))["access_token"]
        for seconds, wanted in ((AHEAD_SECONDS, True), (AHEAD_SECONDS + 1, False)):
            clock.now = START + seconds * SECOND
            answer = await call(identity, f"DPoP {token}", prover.shown(token, iat=clock.now // SECOND))
            assert isinstance(answer, BearerRefusal) is wanted


async def test_a_nonce_of_the_process_before_is_answered_with_another() -> None:
    clock, prover = Clock(), Prover()
    async with open_identity(clock=clock, age=0) as before:
        token = (await bound(before, prover))["access_token"]
        nonce = nonce_of(await call(before, f"DPoP {token}", prover.shown(token)))
        clock.now += SECOND
        after = await begun(before, clock)
        newer = nonce_of(await call(after, f"DPoP {token}", prover.shown(token, nonce=nonce)))
        assert newer != nonce
        assert isinstance(await call(after, f"DPoP {token}", prover.shown(token, nonce=newer)), Principal)


async def test_on_a_database_no_nonce_is_wanted_and_what_counted_before_a_restart_is_known() -> None:
    clock, prover = Clock(), Prover()
    async with open_identity(clock=clock) as before:
        before.heed_others()
        token = (await bound(before, prover))["access_token"]
        caught = prover.shown(token)
        assert isinstance(await call(before, f"DPoP {token}", caught), Principal)
        after = await begun(before, clock)
        after.heed_others()
        refused = await call(after, f"DPoP {token}", caught)
        assert isinstance(refused, BearerRefusal)
        assert refused.error == "invalid_dpop_proof"
        assert isinstance(await call(after, f"DPoP {token}", prover.shown(token)), Principal)


async def test_a_clock_that_is_set_back_after_the_start_locks_nobody_out() -> None:
    clock, prover = Clock(), Prover()
    async with open_identity(clock=clock, age=0) as identity:
        token = (await bound(identity, prover))["access_token"]
        clock.now -= 30 * SECOND
        iat = clock.now // SECOND
        nonce = nonce_of(await call(identity, f"DPoP {token}", prover.shown(token, iat=iat)))
        proof = prover.shown(token, iat=iat, nonce=nonce)
        assert isinstance(await call(identity, f"DPoP {token}", proof), Principal)


@pytest.mark.parametrize(
    "forge",
    [
        lambda nonce: "",
        lambda nonce: "A" * 32,
        lambda nonce: nonce[:-1] + ("A" if nonce[-1] != "A" else "B"),
        lambda nonce: nonce[:7] + ("A" if nonce[7] != "A" else "B") + nonce[8:],
        lambda nonce: nonce[:-1] + "=",
        lambda nonce: nonce + "A",
        lambda nonce: nonce.lower(),
        lambda nonce: [nonce],
        lambda nonce: "\ud800" * 32,
        lambda nonce: ProofNonces(bytes(32), START).make(START),  # another server's
    ],
)
async def test_a_nonce_that_is_none_of_ours_is_answered_with_one_that_is(forge: Any) -> None:
    prover = Prover()
    async with open_identity(age=0) as identity:
        token = (await bound(identity, prover))["access_token"]
        nonce = nonce_of(await call(identity, f"DPoP {token}", prover.shown(token)))
        assert nonce_of(await call(identity, f"DPoP {token}", prover.shown(token, nonce=forge(nonce))))


async def test_a_nonce_spares_neither_the_key_nor_the_age_of_a_proof() -> None:
    mine, thief = Prover(), Prover()
    async with open_identity(age=0) as identity:
        token = (await bound(identity, mine))["access_token"]
        nonce = nonce_of(await call(identity, f"DPoP {token}", mine.shown(token)))
        old = mine.shown(token, nonce=nonce, iat=START // SECOND - BACK_SECONDS - 1)
        for proof in (thief.shown(token, nonce=nonce), old):
            refused = await call(identity, f"DPoP {token}", proof)
            assert isinstance(refused, BearerRefusal)
            assert refused.error == "invalid_dpop_proof"
