"""How much may be pushed, by one network and in all, and what makes room again."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from auth.identity import Identity
from auth.values.policy import FormLimits, Policy
from auth.values.site import Site
from tests.auth.code_fakes import CHALLENGE
from tests.auth.identity_fakes import MINUTE, Clock, open_identity, post
from tests.auth.registration_fakes import SEEN, ask, sent

PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})


FAR = "203.0.113.7"


async def rows(identity: Identity, table: str) -> list[Any]:
    return list(await identity.parts.store.read(lambda db: db.fetch_all(f"SELECT * FROM {table}")))


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
        await identity.parts.store.write(
            lambda db: db.execute("UPDATE clients SET kind = 'registered' WHERE id = ?", ids[0])
        )
        assert [(await sent(identity, pushing(ids[0]))).status for _ in range(40)] == [201] * 40
        clock.now += MINUTE
        assert (await sent(identity, pushing(ids[1]))).status == 201


async def test_pushed_requests_that_wait_are_bounded_and_those_that_are_over_make_room() -> None:
    clock = Clock()
    policy = replace(Policy(), limits=FormLimits(pushed=5))
    async with open_identity(site=PUBLIC, policy=policy, clock=clock) as identity:
        made = json.loads((await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))).body)
        push = [pushing(made["client_id"], f"198.51.100.{number}") for number in range(7)]
        assert [(await sent(identity, each)).status for each in push] == [201] * 5 + [429] * 2
        clock.now += policy.tokens.pushed_ms
        assert (await sent(identity, push[6])).status == 201
        assert len(await rows(identity, "pushed_requests")) == 1
