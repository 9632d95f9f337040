"""How much may be registered: by one network, by all together, and by changes of what there is."""

from __future__ import annotations

import json
from functools import partial

from msgspec.structs import replace

from auth.identity import Identity
from auth.values.issuer_and_resources import Site
from auth.values.limits_and_lifetimes import Policy, RegistrationPolicy
from tests.auth.identity_fakes import FAR, MINUTE, Clock, open_identity, post, rows
from tests.auth.registration_fakes import SEEN, ask, sent
from tests.sealing import by_hand

PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})


async def audited(identity: Identity, event: str) -> list[str]:
    return [row["outcome"] for row in await rows(identity, "audit") if row["event"] == event]


async def test_changes_of_a_registration_are_counted_like_registrations() -> None:
    clock = Clock()
    async with open_identity(site=PUBLIC, clock=clock) as identity:
        made = json.loads((await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))).body)
        path = "/register/" + made["client_id"]
        put = partial(ask, path, made, method="PUT", token=made["registration_access_token"], ip=FAR)
        statuses = [(await sent(identity, put())).status for _ in range(25)]
        assert statuses == [200] * 19 + [429] * 6
        assert (await audited(identity, "client.changed")).count("ok") == 19
        assert (await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))).status == 429
        clock.now += 15 * MINUTE
        assert (await sent(identity, put())).status == 200


async def test_all_networks_together_register_so_many_and_no_more() -> None:
    policy = replace(Policy(), registration=RegistrationPolicy(everybody=12))
    async with open_identity(site=PUBLIC, policy=policy) as identity:
        statuses = [
            (await sent(identity, ask("/register", SEEN["Codex"], ip=f"2001:db8:0:{number:x}::1"))).status
            for number in range(15)
        ]
        assert statuses == [201] * 12 + [429] * 3
        assert len(await rows(identity, "clients")) == 1 + 12


async def test_a_clock_that_is_set_back_locks_nobody_out_until_it_has_caught_up() -> None:
    clock = Clock()
    async with open_identity(site=PUBLIC, clock=clock) as identity:
        right = clock.now
        clock.now += 365 * 24 * 60 * MINUTE
        for _ in range(20):
            assert (await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))).status == 201
        clock.now = right
        statuses = [(await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))).status for _ in range(21)]
        assert statuses == [201] * 20 + [429]


async def test_a_flood_of_registrations_shuts_out_nobody_and_leaves_so_many_rows() -> None:
    policy, clock = replace(Policy(), registration=RegistrationPolicy(unused=10)), Clock()
    async with open_identity(site=PUBLIC, policy=policy, clock=clock) as identity:
        honest = json.loads((await sent(identity, ask("/register", SEEN["Codex"], ip=FAR))).body)["client_id"]
        under_way = json.loads(
            (await sent(identity, ask("/register", SEEN["a device without a browser"], ip=FAR))).body
        )["client_id"]
        asked = await sent(identity, post("/device_authorization", client_id=under_way, ip=FAR))
        assert asked.status == 200
        await identity.parts.store.write(by_hand("UPDATE clients SET authorized_at = 1 WHERE id = ?", honest))
        newest = ""
        for number in range(30):
            clock.now += 1_000
            made = await sent(identity, ask("/register", SEEN["Codex"], ip=f"198.51.{number}.1"))
            assert made.status == 201
            newest = json.loads(made.body)["client_id"]
        left = [row["id"] for row in await rows(identity, "clients") if row["kind"] == "dynamic"]
        assert len(left) == 1 + 10, "the one that was let in counts apart"
        assert {honest, under_way, newest} <= set(left)


async def test_a_prefix_of_many_networks_registers_no_more_than_a_neighbourhood() -> None:
    async with open_identity(site=PUBLIC) as identity:
        statuses = [
            (await sent(identity, ask("/register", SEEN["Codex"], ip=f"2001:db8:1:{number:x}::1"))).status
            for number in range(105)
        ]
        assert statuses == [201] * 100 + [429] * 5
        assert (await sent(identity, ask("/register", SEEN["Codex"], ip="2001:db8:2::1"))).status == 201


async def test_a_prefix_of_many_networks_lets_no_more_logins_wait_than_a_neighbourhood() -> None:
    async with open_identity(site=PUBLIC) as identity:
        statuses = [
            (
                await sent(
                    identity,
                    post("/device_authorization", client_id="ostiary-cli", ip=f"2001:db8:1:{number:x}::1"),
                )
            ).status
            for number in range(205)
        ]
        assert statuses == [200] * 200 + [429] * 5
        far = post("/device_authorization", client_id="ostiary-cli", ip="2001:db8:2::1")
        assert (await sent(identity, far)).status == 200
