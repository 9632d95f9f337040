"""Key sets of clients: how many strangers make us fetch, and what cannot be read."""

from __future__ import annotations

import dataclasses
import json

from auth.clients.client_identifier_urls import CannotFetch, FetchedDocument
from auth.values.issuer_and_resources import Site
from tests.auth.assertion_fakes import KEYS, Signer, public
from tests.auth.code_fakes import body_of
from tests.auth.identity_fakes import FAR, open_identity, rows
from tests.auth.registration_fakes import SEEN, ask, enrolled, sent
from tests.sealing import by_hand

PUBLIC = Site(issuer="https://agent.example", loopback=False, servers={"agent": "/mcp"})


class Nowhere:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, url: str) -> FetchedDocument:
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
        await identity.parts.store.write(
            by_hand("UPDATE clients SET kind = 'registered' WHERE jwks_uri LIKE '%/39'")
        )
        (last,) = [row for row in await rows(identity, "clients") if row["kind"] == "registered"]
        await shows(last["id"], FAR)
        assert outside.asked[30:] == ["https://keys.example/39"]


async def test_keys_that_this_process_cannot_read_are_no_keys_and_no_crash() -> None:
    async with open_identity() as identity:
        made = await enrolled(
            identity, token_endpoint_auth_method="private_key_jwt", jwks=public(KEYS["ES256"])
        )
        deep = "[" * 100_000 + "]" * 100_000
        await identity.parts.store.write(
            by_hand("UPDATE clients SET jwks = ? WHERE id = ?", deep, made["client_id"])
        )
        signer = Signer(made["client_id"])
        reply = await sent(identity, signer.request(grant_type="refresh_token"))
        assert (reply.status, body_of(reply)["error"]) == (401, "invalid_client")
