"""One authorization code in many hands at once, and in one hand across a crash, on the real store: one login at most."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from auth.identity import found
from auth.tokens.presented_credentials import present
from auth.tokens.www_authenticate import BearerRefusal
from auth.values.http_messages import WireReply
from tests.auth.code_fakes import Porch, body_of, porch_of
from tests.auth.identity_fakes import ORIGIN, POLICY, SITE, Clock, seeds, subkey
from tests.engine_under_test import open_at, place_of, written

CROWD = 20
ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def on_disk(home: Path, seed: int = 0) -> AsyncGenerator[Porch]:
    clock = Clock()
    async with open_at(place_of(home / "ostiary.db"), clock=clock) as store:
        identity = await found(
            store, clock=clock, entropy=seeds(seed), subkey=subkey, site=SITE, policy=POLICY
        )
        store.on_changes(identity.apply_changes)
        yield await porch_of(identity, clock)


async def test_twenty_parallel_redemptions_of_a_code_give_one_login_and_end_it(tmp_path: Path) -> None:
    async with on_disk(tmp_path) as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        answers: list[WireReply] = []

        async def redeem() -> None:
            answers.append(await program.redeem(code))

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(CROWD):
                    nursery.start_soon(redeem)
        (won,) = [answer for answer in answers if answer.status == 200]
        lost = [body_of(answer)["error"] for answer in answers if answer is not won]
        assert lost == ["invalid_grant"] * (CROWD - 1)
        (grant,) = await porch.rows("grants")
        assert grant["revoked_reason"] == "authorization code used again"
        bearer = f"Bearer {body_of(won)['access_token']}"
        assert isinstance(
            await porch.identity.check(present(bearer, server="agent", origin=ORIGIN)), BearerRefusal
        )


async def test_twenty_parallel_answers_to_one_pushed_request_give_one_code(tmp_path: Path) -> None:
    async with on_disk(tmp_path) as porch:
        program = await porch.program()
        pushed = body_of(await porch.post("/par", **program.request()))
        browser = await porch.browser()
        await browser.get(
            f"/authorize?client_id={program.client.id}&request_uri={pushed['request_uri']}", site="cross-site"
        )
        fields = [*browser.fields("/authorize/decide#allow"), ("decision", "allow")]
        statuses: list[int] = []

        async def allow() -> None:
            statuses.append((await browser.post("/authorize/decide", *fields, follow=False)).status)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(CROWD):
                    nursery.start_soon(allow)
        assert sorted(statuses) == [303] + [400] * (CROWD - 1)
        assert len(await porch.rows("authorization_codes")) == 1


async def test_a_server_killed_between_commit_and_answer_makes_no_second_login(tmp_path: Path) -> None:
    async with on_disk(tmp_path) as porch:
        program = await porch.program()
        code = (await program.agreed(await porch.browser()))["code"]
        client_id = program.client.id
    with trio.fail_after(60):
        child = await trio.run_process(
            [
                sys.executable,
                str(Path(__file__).with_name("code_child.py")),
                written(place_of(tmp_path / "ostiary.db")),
                client_id,
                code,
            ],
            env={"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"},
            check=False,
        )
    assert child.returncode == 9
    async with on_disk(tmp_path, seed=9_000_000) as porch:
        (grant,) = await porch.rows("grants")
        assert grant["revoked_at"] is None
        program.porch = porch
        reply = await program.redeem(code)
        assert (reply.status, body_of(reply)["error"]) == (400, "invalid_grant")
        (grant,) = await porch.rows("grants")
        assert grant["revoked_at"] is not None
        # Whoever signs in anew is not kept out by it.
        fresh = (await program.agreed(await porch.browser(), prompt="consent"))["code"]
        assert (await program.redeem(fresh)).status == 200
