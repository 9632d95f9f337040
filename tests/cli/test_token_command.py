"""`ostiary token` under the conditions of real scripts: many at once, and killed at the worst moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
import trio
from shell import WAIT_SECONDS, Terminal

from tests.client.fake_server import FakeServer, Response, Seen


def expire(shell: Terminal, fake: FakeServer) -> None:
    """As if an hour had passed since the login."""
    file = shell.config / "tokens.json"
    kept = json.loads(file.read_text())
    kept["logins"][fake.url]["expires_at"] = kept["logins"][fake.url]["obtained_at"] + 1
    file.write_text(json.dumps(kept))


@pytest.mark.slow
async def test_ten_processes_with_an_expired_token_make_one_refresh(
    logged_in: Terminal, fake: FakeServer
) -> None:
    expire(logged_in, fake)
    printed: list[str] = []

    async def one() -> None:
        done = await logged_in.run("token", fake.url)
        assert done.code == 0, done.stderr
        printed.append(done.stdout)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(one)
    assert fake.count["refreshed"] == 1
    assert set(printed) == {f"{next(iter(fake.valid))}\n"}
    assert len(printed) == 10


async def test_a_process_killed_between_the_refresh_and_the_file_costs_no_login(
    logged_in: Terminal, fake: FakeServer
) -> None:
    expire(logged_in, fake)
    process = subprocess.Popen(
        logged_in.command(["token", fake.url]),
        env=logged_in.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )

    async def rotate_and_kill(request: Seen) -> Response:
        response = await fake.usual(request)
        del fake.overrides["/token"]
        os.kill(process.pid, signal.SIGKILL)
        return response

    fake.overrides["/token"] = rotate_and_kill
    with trio.fail_after(WAIT_SECONDS):
        stdout, _ = await trio.to_thread.run_sync(process.communicate)
    assert (process.returncode, stdout) == (-signal.SIGKILL, b"")
    done = await logged_in.run("token", fake.url)
    assert done.code == 0, done.stderr
    assert done.stdout == f"{next(iter(fake.valid))}\n"
    assert (fake.count["refreshed"], fake.count["replayed"]) == (1, 1)


async def test_a_token_file_open_to_others_is_refused_by_every_command(
    logged_in: Terminal, fake: FakeServer
) -> None:
    file = logged_in.config / "tokens.json"
    file.chmod(0o644)
    done = await logged_in.run("token", fake.url)
    assert (done.code, done.stdout) == (1, "")
    assert str(file) in done.stderr and done.stderr.endswith(f"\nhint: chmod 600 {file}\n")


async def test_a_logout_that_the_server_cannot_hear_keeps_the_login_unless_told(
    logged_in: Terminal, fake: FakeServer
) -> None:
    async def down(request: Seen) -> Response:
        return Response(503)

    fake.overrides["/revoke"] = down
    done = await logged_in.run("logout", fake.url)
    assert done.code == 1
    assert "the login was not ended" in done.stderr
    assert f"hint: try again later, or forget it here only: ostiary logout {fake.url} --forget" in done.stderr
    assert (await logged_in.run("token", fake.url)).code == 0
    forgotten = await logged_in.run("logout", fake.url, "--forget", "--json")
    assert json.loads(forgotten.stdout) == {"url": fake.url, "revoked": False}
    assert (await logged_in.run("token", fake.url)).code == 1
