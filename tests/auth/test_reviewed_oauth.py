"""What a hostile review of the authorization server asked for: addresses that strangers register, programs that pretend to be
another, and tables that anybody could fill."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from typing import Any

import pytest
from assertion_fakes import KEYS, Signer, public
from browser_fakes import header
from code_fakes import CALLBACK, CHALLENGE, STATE, Porch, answer_of, body_of, open_porch
from identity_fakes import MINUTE, ORIGIN, Clock, open_identity, post
from msgspec.structs import replace
from registration_fakes import SEEN, ask, enrolled, sent

from auth.clients import registry as clients
from auth.clients.documents import CannotFetch, Fetched
from auth.identity import Identity
from auth.model import Client
from auth.policy import FormLimits, Policy, RegistrationPolicy
from auth.site import Site

PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})
WEB = "https://client.example/cb"
APP = "com.example.app:/cb"
FAR = "203.0.113.7"


async def rows(identity: Identity, table: str) -> list[Any]:
    return list(await identity.store.read(lambda db: db.fetch_all(f"SELECT * FROM {table}")))


async def audited(identity: Identity, event: str) -> list[str]:
    return [row["outcome"] for row in await rows(identity, "audit") if row["event"] == event]


# ---------------------------------------------------------------- the exchange, as OAuth 2.1 has it


async def test_an_exchange_may_leave_out_the_redirect_address_since_the_verifier_says_more() -> None:
    async with open_porch() as porch:
        program = await porch.program(redirect_uris=(CALLBACK, WEB))
        browser = await porch.browser()
        code = (await program.agreed(browser, redirect_uri=CALLBACK))["code"]
        wrong: tuple[dict[str, str | None], ...] = (
            {"redirect_uri": WEB},
            {"redirect_uri": None, "code_verifier": "w" * 43},
            {"redirect_uri": None, "code_verifier": None},
        )
        for changes in wrong:
            assert (await program.redeem(code, **changes)).status == 400
        assert (await program.redeem(code, redirect_uri=None)).status == 200


# ---------------------------------------------------------------- who may be sent where


@pytest.mark.parametrize("address", [WEB, APP])
@pytest.mark.parametrize("kind", ["dynamic", "document"])
@pytest.mark.parametrize("wrong", [{"response_type": "token"}, {"prompt": "none"}, {"code_challenge": None}])
async def test_nobody_who_is_not_signed_in_is_sent_to_an_address_that_a_stranger_registered(
    address: str, kind: str, wrong: dict[str, str | None]
) -> None:
    async with open_porch() as porch:
        program = await porch.program(kind=kind, redirect_uris=(address,))
        stranger = await porch.browser(signed_in=False)
        reply = await stranger.get(program.path(**wrong), site="cross-site", follow=False)
        assert (reply.status, header(reply, "location")) == (400, None)
        where = address.removesuffix("/cb")
        assert f"Back to {where}" in stranger.words
        # The person may go there, and the program then learns what was wrong.
        assert f'href="{address}?error=' in stranger.text
        assert f"state={STATE}" in stranger.text

        alice = await porch.browser()
        answer = answer_of(await alice.get(program.path(**wrong), site="cross-site", follow=False))
        assert (answer["state"], answer["iss"]) == (STATE, ORIGIN)


async def test_programs_that_the_operator_entered_and_those_on_the_persons_machine_are_told_at_once() -> None:
    async with open_porch() as porch:
        known = await porch.program(kind="registered", redirect_uris=(WEB,))
        here = await porch.program()
        for program in (known, here):
            stranger = await porch.browser(signed_in=False)
            reply = await stranger.get(program.path(response_type="token"), site="cross-site", follow=False)
            assert answer_of(reply)["error"] == "unsupported_response_type"


async def with_secret(porch: Porch, client: Client) -> None:
    await porch.run(
        "UPDATE clients SET auth_method = 'client_secret_basic', secret_hash = ? WHERE id = ?",
        clients.secret_hash("s3cret"),
        client.id,
    )


@pytest.mark.parametrize(
    "address", [CALLBACK, "http://localhost/cb", "http://[::1]:9/cb", APP, "cursor://a/cb"]
)
@pytest.mark.parametrize("kind", ["dynamic", "document", "registered"])
async def test_a_program_that_anybody_can_pretend_to_be_is_asked_about_every_time(
    address: str, kind: str
) -> None:
    """RFC 8252 §8.6: whatever runs on the person's machine can name the id and wait at the address."""
    async with open_porch() as porch:
        program = await porch.program(kind=kind, redirect_uris=(address,))
        alice = await porch.browser()
        assert "code" in await program.agreed(alice)
        again = await alice.get(program.path(), site="cross-site", follow=False)
        assert again.status == 200
        assert header(again, "location") is None
        silent = answer_of(await alice.get(program.path(prompt="none"), site="cross-site", follow=False))
        assert silent["error"] == "consent_required"
        assert await porch.rows("consents") == []

        await with_secret(porch, program.client)  # from now on a code is of use to nobody else
        assert "code" in await program.agreed(alice)
        assert "code" in answer_of(await alice.get(program.path(), site="cross-site", follow=False))


async def test_a_yes_to_a_program_with_a_secret_ends_when_it_gives_its_secret_up() -> None:
    async with open_porch() as porch:
        program = await porch.program()
        await with_secret(porch, program.client)
        alice = await porch.browser()
        await program.agreed(alice)
        assert (await alice.get(program.path(), follow=False)).status == 303
        await porch.run("UPDATE clients SET auth_method = 'none', secret_hash = NULL")
        assert (await alice.get(program.path(), follow=False)).status == 200


# ---------------------------------------------------------------- what strangers can fill


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
        await identity.store.write(
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


class Nowhere:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, url: str) -> Fetched:
        self.asked.append(url)
        raise CannotFetch("does not answer")


async def test_strangers_together_make_us_fetch_so_many_key_sets_and_the_operators_programs_go_on() -> None:
    outside = Nowhere()
    async with open_identity(site=PUBLIC, fetch=outside) as identity:

        async def shows(client_id: str, ip: str) -> None:
            signer = Signer(client_id)
            request = signer.request(
                assertion=signer.assertion(aud=PUBLIC.issuer), grant_type="refresh_token"
            )
            reply = await sent(identity, dataclasses.replace(request, ip=ip, origin=PUBLIC.issuer))
            assert reply.status == 401

        for number in range(40):
            ip = f"2001:db8:1:{number:x}::1"
            body = {**SEEN["Codex"], "token_endpoint_auth_method": "private_key_jwt"}
            made = await sent(
                identity, ask("/register", {**body, "jwks_uri": f"https://keys.example/{number}"}, ip=ip)
            )
            await shows(json.loads(made.body)["client_id"], ip)
        assert len(outside.asked) == 30
        await identity.store.write(
            lambda db: db.execute("UPDATE clients SET kind = 'registered' WHERE jwks_uri LIKE '%/39'")
        )
        (last,) = [row for row in await rows(identity, "clients") if row["kind"] == "registered"]
        await shows(last["id"], FAR)
        assert outside.asked[30:] == ["https://keys.example/39"]


async def test_what_is_counted_of_a_client_id_is_short_however_long_it_is() -> None:
    async with open_identity(site=PUBLIC) as identity:
        for number in range(5):
            await sent(
                identity, post("/token", client_id=f"{number}" * 2_048, grant_type="refresh_token", ip=FAR)
            )
        counts: dict[str, object] = vars(identity.throttle)["_counts"]
        assert len(counts) >= 6
        assert max(map(len, counts)) < 100


async def test_keys_that_this_process_cannot_read_are_no_keys_and_no_crash() -> None:
    async with open_identity() as identity:
        made = await enrolled(
            identity, token_endpoint_auth_method="private_key_jwt", jwks=public(KEYS["ES256"])
        )
        deep = "[" * 100_000 + "]" * 100_000
        await identity.store.write(
            lambda db: db.execute("UPDATE clients SET jwks = ? WHERE id = ?", deep, made["client_id"])
        )
        signer = Signer(made["client_id"])
        reply = await sent(identity, signer.request(grant_type="refresh_token"))
        assert (reply.status, body_of(reply)["error"]) == (401, "invalid_client")


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
