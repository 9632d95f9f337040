"""`ostiary status` and what `whoami` adds from the server: at a machine without a server, and with logins of every state."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import trio
from msgspec.structs import asdict
from shell import Done, Terminal

from server.admin import control_socket
from server.client.token_file import TokenFile
from server.lib.log.structured_log import make_logger
from server.run.timed_backups import BackupOutcome
from tests.client.fake_server import FakeServer, Response, Seen, as_json


async def test_with_neither_server_nor_login_it_fails_and_says_what_to_do(shell: Terminal) -> None:
    done = await shell.run("status")
    assert done.code == 1
    first, second, third = done.stdout.splitlines()
    assert first.startswith("server  none (")
    assert (second, third) == ("", "logins  none from here")
    assert done.stderr == "hint: ostiary login URL\n"


async def test_logins_are_listed_with_their_names_and_states(logged_in: Terminal, fake: FakeServer) -> None:
    file = TokenFile(logged_in.config)
    login = file.get(fake.url)
    assert login is not None
    old = msgspec.structs.replace(login, obtained_at=0, expires_at=1)
    file.put(msgspec.structs.replace(old, url="https://old.example/mcp"))
    file.put(msgspec.structs.replace(old, url="https://ended.example/mcp", refresh_token=None))
    await logged_in.run("mcp", "add", "door", fake.url)
    done = await logged_in.run("status")
    assert done.code == 0
    assert [line.split("  ")[0] for line in done.stdout.splitlines()[2:]] == [
        "logged in at",
        fake.url,
        "https://old.example/mcp",
        "https://ended.example/mcp",
    ]
    assert " door " in done.stdout
    assert done.stderr == "hint: ostiary login https://ended.example/mcp\n"
    found = json.loads((await logged_in.run("status", "--json")).stdout)
    assert found["server"] is None
    assert [(each["name"], each["state"]) for each in found["logins"]] == [
        ("door", "fresh"),
        (None, "renewable"),
        (None, "ended"),
    ]
    assert list(found["logins"][0]) == ["url", "name", "scope", "state", "expires_at"]


async def test_settings_that_are_wrong_are_no_missing_server(shell: Terminal) -> None:
    (shell.home / "bad.toml").write_text("port = 'x'\n")
    done = await shell.run("status", "--config", str(shell.home / "bad.toml"))
    assert done.code == 2


ME = {
    "subject": "usr_1",
    "kind": "user",
    "credential": {"kind": "login", "how": "device", "id": "gr_1", "name": None},
    "user": {"name": "olivia", "role": "owner"},
    "tools": "echo",
    "plan": "starter",
    "quota": {"mcp_calls_per_day": {"used": 3, "limit": 100}},
}


def telling(fake: FakeServer, me: Any) -> None:
    async def answer(request: Seen) -> Response:
        message = request.message
        if message.get("method") != "resources/read":
            return await fake.usual(request)
        assert message["params"]["uri"] == "ostiary://me"
        assert request.headers["mcp-name"] == "ostiary://me"
        contents = [{"uri": "ostiary://me", "mimeType": "application/json", "text": json.dumps(me)}]
        result = {"contents": contents, "resultType": "complete"}
        return as_json({"jsonrpc": "2.0", "id": message["id"], "result": result})

    fake.overrides["/mcp"] = answer


async def test_whoami_shows_what_the_server_tells_of_the_account(
    logged_in: Terminal, fake: FakeServer
) -> None:
    telling(fake, ME)
    done = await logged_in.run("whoami", fake.url)
    assert done.code == 0
    shown = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    shown = {name: value.strip() for name, value in shown.items()}
    assert shown["you are"] == "olivia, the owner"
    assert shown["logged in"] == "by a code"
    assert shown["plan"] == "starter"
    assert shown["quota mcp_calls_per_day"] == "3 of 100"
    assert json.loads((await logged_in.run("whoami", fake.url, "--json")).stdout)["account"] == ME


@pytest.mark.parametrize("me", [[], "text", {"user": 5, "quota": [], "credential": {"kind": 7}}, {}])
async def test_whoami_puts_up_with_whatever_it_is_told(
    logged_in: Terminal, fake: FakeServer, me: Any
) -> None:
    telling(fake, me)
    done = await logged_in.run("whoami", fake.url)
    assert (done.code, done.stderr) == (0, "")


async def test_whoami_without_a_url_asks_each_server_who_one_is_there(
    logged_in: Terminal, fake: FakeServer
) -> None:
    telling(fake, {**ME, "user": {"name": "oli\x1b[2Jvia"}})
    file = TokenFile(logged_in.config)
    login = file.get(fake.url)
    assert login is not None
    silent = "http://127.0.0.1:1/mcp"  # where nobody listens
    file.put(msgspec.structs.replace(login, url=silent, resource=silent))
    done = await logged_in.run("whoami")
    assert (done.code, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["logged", "in", "at", "you", "are", "state", "scope"],
        [fake.url, "oli�[2Jvia", "good", "mcp"],
        [silent, "not", "reached", "mcp"],
    ]
    offline = await logged_in.run("whoami", "--offline")
    assert [line.split()[1:] for line in offline.stdout.splitlines()[1:]] == 2 * [["not", "asked", "mcp"]]
    found = json.loads((await logged_in.run("whoami", "--json")).stdout)["logins"]
    assert [(each["url"], each["state"]) for each in found] == [
        (fake.url, "accepted"),
        (silent, "unreachable"),
    ]
    assert found[0]["account"]["user"]["name"].startswith("oli")
    # One that is over there ended is told, with what brings it back.
    fake.valid.clear()
    fake.refresh_token = None
    done = await logged_in.run("whoami")
    assert " ended " in done.stdout
    assert done.stderr == f"hint: ostiary login {fake.url}\n"


async def test_whoami_lets_no_server_steer_the_terminal(logged_in: Terminal, fake: FakeServer) -> None:
    telling(fake, {"user": {"name": "\x1b[2Jolivia"}, "plan": "a\x07b"})
    assert "\x1b" not in (await logged_in.run("whoami", fake.url)).stdout


RUNNING: Mapping[str, Any] = {
    "version": "1", "origin": "https://here.example", "paths": {"main": "/mcp"}, "data_dir": "/data", "started_at": 0, "auth": "none",
}  # fmt: skip
NO_ROOM = "cannot use /copies: No space left on device"


async def test_the_last_back_up_that_was_due_is_shown_and_why_it_failed(
    shell: Terminal, nursery: trio.Nursery
) -> None:
    failed = BackupOutcome(every_hours=24, failed_at=2, reason=NO_ROOM, hint="free some space")
    done = await ask_running(shell, nursery, backups=asdict(failed))
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("back-up ")]
    assert NO_ROOM in line and "hint: free some space" in done.stderr


async def test_without_scheduled_back_ups_nothing_is_said_of_them(
    shell: Terminal, nursery: trio.Nursery
) -> None:
    assert "back-up" not in (await ask_running(shell, nursery, backups=None)).stdout


async def test_an_agent_that_is_out_of_order_is_named_with_its_last_words(
    shell: Terminal, nursery: trio.Nursery
) -> None:
    bad = {"name": "main[2] (chat)", "words": "it refused\x1b[31m the connection", "since": 0}
    done = await ask_running(shell, nursery, backups=None, agents=[bad])
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("agent ")]
    assert re.fullmatch(
        r"agent main\[2\] \(chat\) +out of order for \d+ days: it refused�\[31m the connection", line
    )


@pytest.mark.parametrize(
    ("problem", "code", "shown"),
    [(None, 0, "ready\n"), ("the disk is full", 1, "not ready: the disk is full\n")],
)
async def test_whoever_watches_over_it_is_told_in_a_word_and_by_the_exit_code(
    problem: str | None, code: int, shown: str, shell: Terminal, nursery: trio.Nursery
) -> None:
    store = {"problem": problem}
    done = await ask_running(shell, nursery, "--ready", store=store)
    assert (done.code, done.stdout, done.stderr) == (code, shown, "")


async def test_without_a_server_nothing_is_ready(logged_in: Terminal) -> None:
    done = await logged_in.run("status", "--ready")
    assert done.code == 1
    assert done.stdout.startswith("not ready: ")
    told = json.loads((await logged_in.run("status", "--ready", "--json")).stdout)
    assert told["ready"] is False
    assert told["why"]


async def ask_running(shell: Terminal, nursery: trio.Nursery, *options: str, **said: Any) -> Done:
    """`ostiary status` beside a server that says this of itself."""

    async def status(arguments: Mapping[str, Any], actor: str) -> Any:
        return {**RUNNING, **said}

    data = shell.home / "data"
    data.mkdir(mode=0o700)
    log = make_logger(level="error", style="json", stream=io.StringIO())
    await nursery.start(control_socket.serve, data, lambda: {"status": status}, log)
    return await shell.run("status", *options, "--data-dir", str(data))
