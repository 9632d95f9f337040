"""How much may be pushed, by one network and in all, and what makes room again."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from msgspec.structs import replace

from auth.authorization.authorization_request import AuthorizationRequest
from auth.clients import client_registry as clients
from auth.clients.client_registry import ClientRegistration
from auth.endpoints import pushed_authorization
from auth.identity import Identity
from auth.values.http_messages import WireRequest
from auth.values.identity_model import AUTHORIZATION_CODE
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import FormLimits, Policy
from tests.auth.code_fakes import CHALLENGE
from tests.auth.identity_fakes import FAR, MINUTE, Clock, open_identity, post, rows
from tests.auth.registration_fakes import SEEN, ask, sent

PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})


def pushing(client_id: str, ip: str = FAR) -> Any:
    return post(
        "/par",
        ip=ip,
        origin=PUBLIC.issuer,
        client_id=client_id,
        response_type="code",
        redirect_uri="http://127.0.0.1:38937/callback",
        code_challenge=CHALLENGE,
        code_challenge_method="S256",
    )


async def entered(identity: Identity) -> clients.NewClient:
    """A program that the operator entered, with a secret."""
    registration = ClientRegistration(
        name="Entered",
        auth_method="client_secret_post",
        grant_types=(AUTHORIZATION_CODE,),
        redirect_uris=("http://127.0.0.1:38937/callback",),
    )
    now, seed = identity.parts.clock(), identity.parts.entropy(32)
    added = await identity.parts.store.write(
        lambda db: clients.add(db, registration, seed=seed, by="local:0", now=now)
    )
    assert added is not None
    return added


def pushing_as(program: clients.NewClient) -> WireRequest:
    assert program.secret is not None
    request = pushing(program.client.id)
    return dataclasses.replace(request, form=(*request.form, ("client_secret", program.secret.reveal())))


async def test_a_network_pushes_so_many_requests_a_minute_and_an_entered_program_as_many_as_it_needs() -> (
    None
):
    clock = Clock()
    async with open_identity(site=PUBLIC, clock=clock) as identity:
        # Two programs: a network counts once, whatever it calls itself.
        ids = [
            json.loads((await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))).body)["client_id"]
            for _ in "12"
        ]
        statuses = [(await sent(identity, pushing(ids[turn % 2]))).status for turn in range(32)]
        assert statuses == [201] * 30 + [429] * 2
        assert (await sent(identity, pushing(ids[0], "198.51.100.1"))).status == 201
        program = await entered(identity)
        assert [(await sent(identity, pushing_as(program))).status for _ in range(40)] == [201] * 40
        clock.now += MINUTE
        assert (await sent(identity, pushing(ids[1]))).status == 201


async def test_a_name_that_anybody_can_use_makes_nobody_less_of_a_stranger() -> None:
    async with open_identity(site=PUBLIC) as identity:
        statuses = [(await sent(identity, pushing("ostiary-cli"))).status for _ in range(32)]
        assert statuses == [201] * 30 + [429] * 2
        registration = ClientRegistration(
            name="Public",
            client_id="entered-public",
            grant_types=(AUTHORIZATION_CODE,),
            redirect_uris=("http://127.0.0.1:38937/callback",),
        )
        await identity.parts.store.write(
            lambda db: clients.add(db, registration, seed=b"s" * 32, by="local:0", now=Clock().now)
        )
        assert (await sent(identity, pushing("entered-public"))).status == 429


async def test_requests_that_strangers_let_wait_keep_no_entered_program_out() -> None:
    policy = replace(Policy(), limits=FormLimits(pushed=5))
    async with open_identity(site=PUBLIC, policy=policy) as identity:
        program = await entered(identity)
        # What it lets wait itself leaves room for the others.
        assert [(await sent(identity, pushing_as(program))).status for _ in range(9)] == [201] * 9
        push = [pushing("ostiary-cli", f"198.51.{number}.1") for number in range(7)]
        assert [(await sent(identity, each)).status for each in push] == [201] * 5 + [429] * 2
        assert (await sent(identity, pushing_as(program))).status == 201


async def test_programs_of_this_machine_push_a_bounded_number_too() -> None:
    async with open_identity() as identity:
        most = Policy().at_home.pushed_per_minute_per_network
        push = pushing("ostiary-cli", "127.0.0.1")
        assert [(await sent(identity, push)).status for _ in range(most + 2)] == [201] * most + [429] * 2


async def test_pushed_requests_that_wait_are_bounded_and_those_that_are_over_make_room() -> None:
    clock = Clock()
    policy = replace(Policy(), limits=FormLimits(pushed=5))
    async with open_identity(site=PUBLIC, policy=policy, clock=clock) as identity:
        made = json.loads((await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))).body)
        push = [pushing(made["client_id"], f"198.51.{number}.1") for number in range(7)]
        assert [(await sent(identity, each)).status for each in push] == [201] * 5 + [429] * 2
        clock.now += policy.tokens.pushed_ms
        assert (await sent(identity, push[6])).status == 201
        assert len(await rows(identity, "pushed_requests")) == 1


async def push_from(identity: Identity, addresses: list[str], times: int) -> list[int]:
    """How many of so many are taken, from each."""
    return [
        sum([(await sent(identity, pushing("ostiary-cli", address))).status == 201 for _ in range(times)])
        for address in addresses
    ]


async def test_many_who_take_all_they_can_leave_a_place_to_whoever_comes_next() -> None:
    clock = Clock()
    async with open_identity(site=PUBLIC, clock=clock) as identity:
        honest = json.loads((await sent(identity, pushing("ostiary-cli"))).body)["request_uri"]
        taken = await push_from(identity, [f"10.{number}.0.1" for number in range(20)], 30)  # ten filled it
        assert max(taken) == 30 and min(taken) >= 1
        assert sum(taken) < Policy().limits.pushed
        assert await push_from(identity, ["192.0.2.1", "2001:db8::1"], 1) == [1, 1]
        # What somebody let wait is there as long as it lives, whoever came after.
        assert honest
        assert len(await rows(identity, "pushed_requests")) == 1 + sum(taken) + 2
        clock.now += Policy().tokens.pushed_ms
        assert await push_from(identity, ["10.1.0.1"], 30) == [30]


@pytest.mark.parametrize(
    "addresses",
    [
        [f"198.51.100.{number}" for number in range(1, 11)],
        [f"2001:db8:1:{number:x}::1" for number in range(1, 11)],
    ],
)
async def test_addresses_of_one_neighbourhood_share_what_is_its(addresses: list[str]) -> None:
    async with open_identity(site=PUBLIC) as identity:
        taken = await push_from(identity, addresses, 30)
        assert sum(taken) == 34  # an eighth of what they leave free
        assert min(await push_from(identity, ["203.0.113.7", "2001:db8:2::1"], 30)) > 20


async def test_a_neighbourhood_holds_places_by_what_waits_and_not_by_what_is_over_or_was_refused() -> None:
    policy = replace(Policy(), limits=FormLimits(pushed=8))  # one of eight
    async with open_identity(site=PUBLIC, policy=policy) as identity:
        unfit = pushing("ostiary-cli", "198.51.100.1")
        unfit = dataclasses.replace(
            unfit,
            form=tuple(
                (name, "https://evil.example/" if name == "redirect_uri" else value)
                for name, value in unfit.form
            ),
        )
        for _ in range(5):
            assert (await sent(identity, unfit)).status == 400
        for address in ("198.51.100.2", "198.51.100.3"):
            answer = await sent(identity, pushing("ostiary-cli", address))
            assert answer.status == 201
            assert (await sent(identity, pushing("ostiary-cli", "198.51.100.4"))).status == 429
            asked = AuthorizationRequest(values=json.loads(answer.body))
            assert await identity.parts.store.write(
                lambda db, asked=asked: pushed_authorization.use_up(db, asked, Clock().now)
            )
