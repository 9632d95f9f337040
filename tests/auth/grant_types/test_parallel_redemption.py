"""Many at once, on the real store with its threads: one login per code, one successor per refresh token."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from auth.authorization import device_authorization as device
from auth.clients.client_registry import CLI_CLIENT_ID
from auth.identity import Identity, found
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.identity_model import DEVICE_CODE, REFRESH_TOKEN, Principal
from tests.auth.identity_fakes import ORIGIN, POLICY, SITE, Clock, logged_in, post, seeds, subkey
from tests.engine_under_test import open_at, place_of

CROWD = 20


@asynccontextmanager
async def on_disk(tmp_path: Path) -> AsyncGenerator[Identity]:
    clock = Clock()
    async with open_at(place_of(tmp_path / "ostiary.db"), clock=clock) as store:
        identity = await found(store, clock=clock, entropy=seeds(), subkey=subkey, site=SITE, policy=POLICY)
        store.on_changes(identity.apply_changes)
        yield identity


async def crowd(identity: Identity, **form: str) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = []

    async def one() -> None:
        reply = await identity.handle(post("/token", client_id=CLI_CLIENT_ID, **form))
        assert reply is not None
        answers.append(json.loads(reply.body))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(CROWD):
                nursery.start_soon(one)
    return answers


async def test_twenty_parallel_redemptions_of_a_code_give_one_login(tmp_path: Path) -> None:
    async with on_disk(tmp_path) as identity:
        asked = await identity.handle(post("/device_authorization", client_id=CLI_CLIENT_ID))
        assert asked is not None
        codes = json.loads(asked.body)
        code = device.normalise(codes["user_code"])
        assert code is not None
        mac = device.user_code_mac(subkey(device.MAC_PURPOSE), code)

        def approve(db: Any) -> object:
            request, owner = (
                device.find(db, mac, identity.parts.clock()),
                db.fetch_one("SELECT id FROM users"),
            )
            assert request is not None
            return device.approve(
                db, request.id, subject=owner["id"], by="local:0", scope=None, now=identity.parts.clock()
            )

        await identity.parts.store.write(approve)
        answers = await crowd(identity, grant_type=DEVICE_CODE, device_code=codes["device_code"])
        assert [answer.get("error") for answer in answers].count("invalid_grant") == CROWD - 1
        (won,) = [answer for answer in answers if "access_token" in answer]
        grants = await identity.parts.store.read(lambda db: db.fetch_all("SELECT * FROM grants"))
        assert len(grants) == 1
        # The others showed the code to be in several hands, so the one login is over as well.
        assert grants[0]["revoked_reason"] == "device code used again"
        bearer = f"Bearer {won['access_token']}"
        assert isinstance(await identity.check(present(bearer, server="agent", origin=ORIGIN)), BearerRefusal)


async def test_twenty_parallel_refreshes_give_one_successor_and_twenty_good_access_tokens(
    tmp_path: Path,
) -> None:
    async with on_disk(tmp_path) as identity:
        tokens = await logged_in(identity)
        answers = await crowd(identity, grant_type=REFRESH_TOKEN, refresh_token=tokens["refresh_token"])
        assert len({answer["refresh_token"] for answer in answers}) == 1
        assert len({answer["access_token"] for answer in answers}) == CROWD
        for answer in answers:
            bearer = f"Bearer {answer['access_token']}"
            assert isinstance(await identity.check(present(bearer, server="agent", origin=ORIGIN)), Principal)


async def test_a_login_survives_a_restart(tmp_path: Path) -> None:
    async with on_disk(tmp_path) as identity:
        tokens = await logged_in(identity)
    async with on_disk(tmp_path) as identity:
        bearer = f"Bearer {tokens['access_token']}"
        assert isinstance(await identity.check(present(bearer, server="agent", origin=ORIGIN)), Principal)
        reply = await identity.handle(
            post(
                "/token",
                client_id=CLI_CLIENT_ID,
                grant_type=REFRESH_TOKEN,
                refresh_token=tokens["refresh_token"],
            )
        )
        assert reply is not None
        assert reply.status == 200
