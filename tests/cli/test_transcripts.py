"""Transcripts of commands at a server: what is typed, and what comes back."""

from __future__ import annotations

import json
import re

import pytest
from shell import Terminal

from tests.client.fake_server import FakeServer
from tests.snapshots import Snapshot

# What is typed, and the exit code: first after a login, then without one. The rest stands in the snapshot.
LOGGED_IN = {
    "tools URL": 0,
    "tools URL echo": 0,
    "tools URL ecko": 1,
    "call URL echo text=hello": 0,
    "call URL echo text=1 times=2 tags=[1]": 0,
    'call URL echo {"text":"hi"}': 0,
    "call URL slow": 0,
    "call URL fail": 1,
    "call URL echo": 2,
    "call URL echo text=x times=many": 2,
    "call URL echo txt=x": 2,
    "call URL echo {": 2,
    "call URL echo text=x -": 2,
    "call URL echo @missing.json": 2,
    "whoami": 0,
    "doctor URL": 0,
    "logout URL": 0,
    "token URL": 1,
}
LOGGED_OUT = {
    "token URL": 1,
    "tools URL": 1,
    "logout URL": 1,
    "whoami URL": 1,
    "whoami": 1,
    "login http://127.0.0.1:1": 1,
    "login http://a.example": 1,
    "doctor URL": 0,
    "doctor 127.0.0.1:1": 1,
}


async def transcript(shell: Terminal, fake: FakeServer, line: str, code: int) -> str:
    done = await shell.run(*line.replace("URL", fake.url).split(" "))
    assert done.code == code, (line, done)
    told = "\n".join(
        [f"$ ostiary {line}", *done.stdout.splitlines(), *(f"! {each}" for each in done.stderr.splitlines())]
    )
    told = told.replace(fake.url, "URL").replace(fake.origin, "ORIGIN")
    return re.sub(
        "(?m)^logged in at +", "logged in at  ", told.replace(fake.origin.rpartition(":")[2], "PORT")
    )


async def test_a_login_shows_the_code_and_how_to_approve_it(shell: Terminal, fake: FakeServer) -> None:
    fake.pending = 1
    done = await shell.run("login", fake.url)
    assert (done.code, done.stdout) == (0, "")
    for each in (
        "│   WDJB-MJHT   │",
        f"{fake.origin}/device?user_code=WDJB-MJHT\n",
        "ostiary approve WDJB-MJHT\n",
    ):
        assert each in done.stderr
    assert done.stderr.endswith(f"logged in to {fake.url}\nhint: ostiary tools {fake.url}\n")
    (asked,) = fake.requests("/device_authorization")
    assert asked.form["client_id"] == "ostiary-cli"
    assert asked.form["client_name"].startswith("ostiary ")
    assert asked.form["hostname"]


@pytest.mark.slow
async def test_what_somebody_sees_who_is_logged_in_and_who_is_not(
    logged_in: Terminal, fake: FakeServer, snapshot: Snapshot
) -> None:
    other = Terminal(logged_in.home / "other")
    other.home.mkdir()
    found = [await transcript(logged_in, fake, *each) for each in LOGGED_IN.items()]
    assert fake.count["revoked"] == 1
    found += ["── not logged in", *[await transcript(other, fake, *each) for each in LOGGED_OUT.items()]]
    assert not other.config.exists()
    snapshot("commands_of_a_client", "\n\n".join(found))


@pytest.mark.slow
async def test_everything_is_said_in_json_too_and_the_fields_are_a_promise(
    logged_in: Terminal, fake: FakeServer
) -> None:
    async def fields(*arguments: str) -> dict[str, object]:
        done = await logged_in.run(*arguments, "--json")
        assert done.code == 0
        assert done.stderr == ""
        return json.loads(done.stdout)

    token = await fields("token", fake.url)
    assert list(token) == ["url", "access_token", "token_type", "expires_at", "scope"]
    whoami = await fields("whoami", fake.url)
    assert list(whoami) == [
        "url", "issuer", "subject", "client", "scope", "grant", "expires_at", "renewable", "state",
        "account",
    ]  # fmt: skip
    assert (whoami["subject"], whoami["grant"], whoami["state"]) == ("usr_1", "gr_1", "accepted")
    tools = await fields("tools", fake.url)
    assert list(tools) == ["url", "tools"]
    assert (await fields("tools", fake.url, "fail"))["name"] == "fail"
    assert (await fields("call", fake.url, "echo", "text=hi"))["content"] == [{"type": "text", "text": "hi"}]
    doctor = await fields("doctor", fake.url)
    assert list(doctor) == ["url", "ok", "steps"]
    assert doctor["ok"] is True
    assert await fields("logout", fake.url) == {"url": fake.url, "revoked": True}


async def test_a_login_in_json_prints_the_result_alone_on_stdout(shell: Terminal, fake: FakeServer) -> None:
    done = await shell.run("login", fake.url, "--json")
    assert list(json.loads(done.stdout)) == ["url", "scope", "expires_at"]
    assert "WDJB-MJHT" in done.stderr


async def test_arguments_come_from_a_file_or_from_stdin(logged_in: Terminal, fake: FakeServer) -> None:
    (logged_in.home / "arguments.json").write_text('{"text": "from a file"}')
    assert (await logged_in.run("call", fake.url, "echo", "@arguments.json")).stdout == "from a file\n"
    piped = await logged_in.run("call", fake.url, "echo", "-", stdin=b'{"text": "from a pipe"}')
    assert piped.stdout == "from a pipe\n"


async def test_a_server_that_denies_is_an_error_with_exit_code_1(shell: Terminal, fake: FakeServer) -> None:
    fake.decision = "access_denied"
    done = await shell.run("login", fake.url)
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.endswith("error: the login was denied\n")
    assert not (shell.config / "tokens.json").exists()


async def test_a_token_that_the_server_forgot_is_told_by_whoami(
    logged_in: Terminal, fake: FakeServer
) -> None:
    fake.valid.clear()
    fake.refresh_token = None
    done = await logged_in.run("whoami", fake.url)
    assert done.code == 1
    assert "state    the server no longer accepts this login" in done.stdout
    assert done.stderr == f"hint: ostiary login {fake.url}\n"


async def test_a_login_under_another_name_of_this_machine_is_used(
    logged_in: Terminal, fake: FakeServer
) -> None:
    port = fake.origin.rpartition(":")[2]
    done = await logged_in.run("call", f"localhost:{port}", "echo", "text=hello")
    assert (done.code, done.stdout) == (0, "hello\n")
    assert all(request.headers["host"] == f"127.0.0.1:{port}" for request in fake.seen)


async def test_hints_name_the_program_as_it_was_started(shell: Terminal, fake: FakeServer) -> None:
    done = await shell.run("token", fake.url, OSTIARY_PROGRAM="scripts/ostiary")
    assert done.stderr == f"error: not logged in at {fake.url}\nhint: scripts/ostiary login {fake.url}\n"


@pytest.mark.slow
async def test_no_command_but_token_ever_shows_a_token(logged_in: Terminal, fake: FakeServer) -> None:
    kept = json.loads((logged_in.config / "tokens.json").read_text())["logins"][fake.url]
    secrets = [kept["access_token"], kept["refresh_token"], "dc-secret"]
    for arguments in (["whoami", fake.url, "--json"], ["tools", fake.url], ["doctor", fake.url, "--json"]):
        done = await logged_in.run(*arguments, OSTIARY_DEBUG="1")
        assert done.code == 0
        assert not any(secret in done.stdout + done.stderr for secret in secrets)
    assert (await logged_in.run("token", fake.url)).stdout == f"{kept['access_token']}\n"
