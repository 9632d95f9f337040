"""`ostiary login` through a browser, as a person sees it: what is printed, opened, pasted and told."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from shell import WAIT_SECONDS, Terminal

from server.client.login_ways import headless
from tests.client.fake_server import FakeServer

LINK = re.compile(r"http://127\.0\.0\.1:\d+/authorize\?\S+")
# A desktop as far as anybody can tell by the environment; CI and SSH are seen by theirs.
DESKTOP = {"DISPLAY": ":0"}


@pytest.fixture
def foreign(fake: FakeServer) -> FakeServer:
    fake.browser_only()
    return fake


def with_opener(shell: Terminal, script: str) -> dict[str, Any]:
    """A desktop whose way of opening links is this script; it gets the link as its first argument."""
    folder = shell.home / "bin"
    folder.mkdir()
    opener = folder / "xdg-open"
    opener.write_text(f"#!{sys.executable}\n{script}")
    opener.chmod(0o755)
    return {**DESKTOP, "PATH": f"{folder}:{os.environ['PATH']}"}


FOLLOW = (
    "import sys, urllib.request as web\nweb.build_opener(web.ProxyHandler({})).open(sys.argv[1]).read()\n"
)


async def test_a_browser_is_opened_and_the_login_is_there(shell: Terminal, foreign: FakeServer) -> None:
    done = await shell.run("login", foreign.url, **with_opener(shell, FOLLOW))
    assert done.code == 0, done.stderr
    assert "browser that just opened" in done.stderr
    assert LINK.search(done.stderr)
    assert done.stderr.endswith(f"logged in to {foreign.url}\nhint: ostiary tools {foreign.url}\n")
    again = await shell.run("tools", foreign.url)
    assert "echo" in again.stdout


@pytest.mark.parametrize("way", ["{}", "{} %s", "no-such-browser-anywhere:/bin/false:{} &"])
async def test_the_browser_that_the_environment_names_is_opened_also_where_none_would_be_seen(
    shell: Terminal, foreign: FakeServer, way: str
) -> None:
    environment = with_opener(shell, "raise SystemExit('the desktop was asked')")
    named = shell.home / "my browser"
    named.write_text(f"#!{sys.executable}\n{FOLLOW}")
    named.chmod(0o755)
    environment |= {"DISPLAY": "", "SSH_CONNECTION": "::1 1 ::1 2", "BROWSER": way.format(f"'{named}'")}
    done = await shell.run("login", foreign.url, "--browser", **environment)
    assert done.code == 0, done.stderr
    assert "browser that just opened" in done.stderr


@pytest.mark.parametrize(
    "environment", [{}, {"BROWSER": "/bin/false"}, {"BROWSER": "no-such-browser-anywhere"}, {"BROWSER": "'"}]
)
async def test_where_no_browser_opens_it_is_said_where_to_go_and_how_long_it_waits(
    shell: Terminal, foreign: FakeServer, environment: dict[str, str]
) -> None:
    process = subprocess.Popen(
        shell.command(["login", foreign.url, "--browser"]),
        env=shell.environment(**with_opener(shell, "raise SystemExit(4)"), **environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = ""
    with trio.fail_after(WAIT_SECONDS):
        while "waiting" not in said:
            said += await trio.to_thread.run_sync(process.stderr.readline)
    process.send_signal(signal.SIGINT)
    await trio.to_thread.run_sync(process.communicate)
    assert "no browser was opened" in said
    assert LINK.search(said)
    assert "waiting 10 minutes" in said


async def test_the_result_in_json_is_alone_on_stdout(shell: Terminal, foreign: FakeServer) -> None:
    done = await shell.run("login", foreign.url, "--browser", "--json", **with_opener(shell, FOLLOW))
    assert list(json.loads(done.stdout)) == ["url", "scope", "expires_at"]


async def test_a_no_in_the_browser_is_told_in_the_terminal(shell: Terminal, foreign: FakeServer) -> None:
    foreign.answered = {"code": None, "error": "access_denied"}
    done = await shell.run("login", foreign.url, **with_opener(shell, FOLLOW))
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr.endswith("error: the login was denied\n")
    assert (
        not (shell.config / "tokens.json").exists()
        or foreign.url not in (shell.config / "tokens.json").read_text().partition('"registrations"')[0]
    )


async def test_without_a_way_to_open_links_the_link_is_printed_and_waited_for(
    shell: Terminal, foreign: FakeServer
) -> None:
    said, followed = b"", False
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            partial(
                trio.run_process,
                shell.command(["login", foreign.url, "--no-browser"]),
                stderr=subprocess.PIPE,
                check=False,
                env=shell.environment(**DESKTOP),
            )
        )
        assert process.stderr is not None
        with trio.fail_after(WAIT_SECONDS):
            async for piece in process.stderr:
                said += piece
                found = LINK.search(said.decode())
                if found and not followed:
                    followed = True
                    async with httpx2.AsyncClient(
                        follow_redirects=True, trust_env=False, timeout=60
                    ) as browser:
                        assert "You can close this page" in (await browser.get(found[0])).text
    assert b"logged in to" in said
    assert b"no browser was opened" in said
    assert b"waiting 10 minutes" in said


async def test_over_ssh_the_last_address_is_pasted_back(shell: Terminal, foreign: FakeServer) -> None:
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    written = ""
    pasted = False
    with trio.fail_after(WAIT_SECONDS):
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(
                partial(
                    trio.run_process,
                    shell.command(["login", foreign.url]),
                    stdin=slave,
                    stdout=slave,
                    stderr=slave,
                    check=False,
                    env=shell.environment(TERM="xterm", SSH_CONNECTION="::1 1 ::1 2", NO_COLOR="1"),
                )
            )
            os.close(slave)
            while True:
                await trio.lowlevel.wait_readable(master)
                try:
                    written += os.read(master, 65536).decode()
                except OSError:
                    break
                if "paste here the address" in written and not pasted:
                    pasted = True
                    link = LINK.search(written)
                    assert link is not None
                    async with httpx2.AsyncClient(trust_env=False, timeout=60) as browser:
                        last = (await browser.get(link[0])).headers["location"]
                    strange = last.replace("state=", "state=x")
                    os.write(master, f"{link[0]}\n{strange}\n{last}\n".encode())
            assert await process.wait() == 0, written
    os.close(master)
    assert "that is not the address at which it ends" in written, "the link itself was pasted"
    assert "this answer belongs to no login here" in written
    assert "logged in to" in written


async def test_ctrl_c_ends_the_wait_for_a_browser_quietly(shell: Terminal, foreign: FakeServer) -> None:
    process = subprocess.Popen(
        shell.command(["login", foreign.url, "--no-browser"]),
        env=shell.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "open this link" not in (await trio.to_thread.run_sync(process.stderr.readline)):
        continue
    process.send_signal(signal.SIGINT)
    out, said = await trio.to_thread.run_sync(process.communicate)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in said


async def test_a_registered_client_brings_its_secret_by_reference_only(
    shell: Terminal, foreign: FakeServer
) -> None:
    foreign.insists_on = "client_secret_basic"
    del foreign.metadata["registration_endpoint"]
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = str(listener.socket.getsockname()[1])
    await listener.aclose()
    foreign.clients["by-hand"] = {
        "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
        "token_endpoint_auth_method": "client_secret_basic",
        "client_secret": "of a client",
    }
    options = ["--client-id", "by-hand", "--client-secret", "env:THEIRS", "--port", port]
    missing = await shell.run("login", foreign.url, *options)
    assert (missing.code, "THEIRS is not set" in missing.stderr) == (2, True)
    clear = await shell.run("login", foreign.url, "--client-id", "by-hand", "--client-secret", "of a client")
    assert clear.code == 2
    assert "of a client" not in clear.stderr
    alone = await shell.run("login", foreign.url, "--client-secret", "env:THEIRS")
    assert alone.code == 2
    done = await shell.run("login", foreign.url, *options, THEIRS="of a client", **with_opener(shell, FOLLOW))
    assert done.code == 0, done.stderr
    assert "of a client" not in done.stderr + done.stdout


async def test_the_two_ways_exclude_each_other(shell: Terminal) -> None:
    done = await shell.run("login", "localhost:1", "--device", "--no-browser")
    assert done.code == 2


async def test_a_scope_that_is_missing_is_asked_for_together_with_what_is_held(
    logged_in: Terminal, fake: FakeServer
) -> None:
    from tests.client.fake_server import Response, Seen, as_json

    async def refuse(request: Seen) -> Response:
        if request.message.get("method") != "tools/call":
            return await fake.usual(request)
        challenge = 'Bearer error="insufficient_scope", scope="deploy"'
        return as_json({"error": "insufficient_scope"}, 403, WWW_Authenticate=challenge)

    fake.overrides["/mcp"] = refuse
    done = await logged_in.run("call", fake.url, "echo", "text=hello")
    assert done.code == 1
    assert f"hint: ostiary login {fake.url} --scope 'mcp deploy'\n" in done.stderr


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", True),
        ({"DISPLAY": ":0"}, "linux", False),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", False),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "::1 1 ::1 2"}, "linux", True),
        ({"DISPLAY": ":0", "SSH_TTY": "/dev/pts/1"}, "linux", True),
        ({"DISPLAY": ":0", "CI": "true"}, "linux", True),
        ({}, "darwin", False),
        ({"SSH_CONNECTION": "::1 1 ::1 2"}, "darwin", True),
    ],
)
def test_whether_somebody_would_see_a_browser(environ: dict[str, str], platform: str, expected: bool) -> None:
    assert headless(environ, platform) is expected


def test_the_environment_of_other_programs_is_not_that_of_the_packed_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from server.cli.browser import environment_of_others

    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH_ORIG", "/usr/local/lib")
    assert environment_of_others()["LD_LIBRARY_PATH"] == str(tmp_path)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert environment_of_others()["LD_LIBRARY_PATH"] == "/usr/local/lib"
    assert "LD_LIBRARY_PATH_ORIG" not in environment_of_others()
