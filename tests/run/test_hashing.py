"""Hashing a passphrase takes 19 MiB and some tens of milliseconds of a core: a crowd at the sign-in page must not take them all."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import httpx2
import pytest
import trio
from test_app import running

from auth.people import user_accounts
from server.run.hash_queue import HASHES_AT_ONCE

CROWD = 8


async def test_however_many_sign_in_at_once_two_passphrases_are_hashed_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting, inside, peak, done = threading.Lock(), 0, 0, 0
    full, leave = threading.Event(), threading.Event()

    def verify(passphrase: str, phc: str) -> bool:
        nonlocal inside, peak, done
        del passphrase, phc
        with counting:
            inside += 1
            peak = max(peak, inside)
            if inside == HASHES_AT_ONCE:
                full.set()
        leave.wait(60)
        with counting:
            inside -= 1
            done += 1
        return False

    monkeypatch.setattr(user_accounts, "verify_passphrase", verify)
    assert HASHES_AT_ONCE == 2
    async with running(tmp_path) as server:
        url = server.started.origin
        await claim(server.started.claim_url or "")

        async def sign_in(place: int) -> None:
            async with httpx2.AsyncClient(trust_env=False, base_url=url, timeout=60) as client:
                page = await client.get("/signin")
                token = re.search(r'name="form_token" value="([^"]+)"', page.text)
                assert token is not None
                fields = {"form_token": token[1], "name": f"name{place}", "passphrase": "x" * 12, "next": ""}
                answer = await client.post("/signin", data=fields, headers={"Origin": url})
                assert answer.status_code == 400, answer.text

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for place in range(CROWD):
                    nursery.start_soon(sign_in, place)
                await trio.to_thread.run_sync(full.wait, 60)
                assert (await server.get("/healthz")).status_code == 200  # nobody else is held up by it
                leave.set()
    assert (peak, done) == (HASHES_AT_ONCE, CROWD)


async def claim(link: str) -> None:
    """Where nobody can sign in yet, nobody is asked for a passphrase."""
    origin = link.partition("/claim/")[0]
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        page = await client.get(link)
        token = re.search(r'name="form_token" value="([^"]+)"', page.text)
        assert token is not None
        fields = {
            "form_token": token[1],
            "name": "ann",
            "passphrase": "a long passphrase",
            "passphrase_again": "a long passphrase",
        }
        assert (await client.post(link, data=fields, headers={"Origin": origin})).status_code == 303
