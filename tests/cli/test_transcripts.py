"""What is typed and exactly what comes back. {url} and {origin} stand for the fake server's."""

from __future__ import annotations

import json

import pytest
from shell import Terminal

from tests.client.fake_server import FakeServer

SCREEN = """
    ┌───────────────┐
    │   WDJB-MJHT   │
    └───────────────┘

approve this code in one of these ways
  in a browser   {origin}/device?user_code=WDJB-MJHT
  at the server  ostiary approve WDJB-MJHT

✓ logged in to {url}
hint: ostiary tools {url}
"""

# command line → exit code, stdout, stderr; after a login
LOGGED_IN: dict[str, tuple[int, str, str]] = {
    "tools {url}": (
        0,
        "echo    text [times] [tags]  say the same text back\n"
        "fail                         fail on purpose\n"
        "slow                         report progress first\n"
        "region  [where]\n",
        "hint: ostiary call {url} echo text=…\n",
    ),
    "tools {url} echo": (
        0,
        "echo\nsay the same text back\nand nothing else\n\n"
        "  text   string   required  what to say\n"
        "  times  integer  optional  how often\n"
        "  tags   array    optional\n",
        "hint: ostiary call {url} echo text=…\n",
    ),
    "tools {url} ecko": (1, "", "error: {url} has no tool ecko\nhint: did you mean echo?\n"),
    "call {url} echo text=hello": (0, "hello\n", ""),
    "call {url} echo text=1 times=2 tags=[1]": (0, '{{"text": "1", "times": 2, "tags": [1]}}\n', ""),
    'call {url} echo {{"text":"hi"}}': (0, "hi\n", ""),
    "call {url} slow": (0, "done\n", ""),
    "call {url} fail": (1, "", "error: it could not be done\n"),
    "call {url} echo": (2, "", "error: echo needs text\nhint: echo takes text=… [times=…] [tags=…]\n"),
    "call {url} echo text=x times=many": (2, "", "error: times takes an integer, not “many”\n"),
    "call {url} echo txt=x": (
        2,
        "",
        "error: echo has no argument txt\nhint: echo takes text=… [times=…] [tags=…]\n",
    ),
    "call {url} echo {{": (
        2,
        "",
        'error: the arguments are not one JSON object\nhint: such as \'{{"text": "hello"}}\'\n',
    ),
    "call {url} echo text=x -": (
        2,
        "",
        "error: arguments are either key=value words or one JSON object\nhint: ostiary call --help\n",
    ),
    "call {url} echo @missing.json": (2, "", "error: cannot read missing.json: no such file or directory\n"),
    "whoami": (
        0,
        "logged in at{pad}  you are  state  scope\n{url}           good   mcp\n",
        "",
    ),
    "doctor {url}": (
        0,
        "{url}\n"
        "✓ connection      port {port} answers\n"
        "✓ challenge       401, and says where the metadata is\n"
        "✓ resource        {url}, scope mcp\n"
        "✓ issuer          {origin}\n"
        "✓ device login    offered, and the endpoint answers\n"
        "– browser login   not offered; the way in is a code\n"
        "✓ login           a token is stored, scope mcp\n"
        "✓ tools           4 tools from fake 1.0, MCP 2026-07-28\n",
        "",
    ),
    "logout {url}": (0, "", "logged out of {url}\n"),
}

LOGGED_OUT: dict[str, tuple[int, str, str]] = {
    "token {url}": (1, "", "error: not logged in at {url}\nhint: ostiary login {url}\n"),
    "tools {url}": (1, "", "error: not logged in at {url}\nhint: ostiary login {url}\n"),
    "logout {url}": (1, "", "error: not logged in at {url}\nhint: ostiary whoami\n"),
    "whoami {url}": (1, "", "error: not logged in at {url}\nhint: ostiary login {url}\n"),
    "whoami": (1, "", "error: not logged in anywhere\nhint: ostiary login URL\n"),
    "login http://127.0.0.1:1": (
        1,
        "",
        "error: nothing answers at 127.0.0.1:1\nhint: is it running? `ostiary serve` starts it\n",
    ),
    "login http://a.example": (
        1,
        "",
        "error: http to a.example would send tokens in the clear\n"
        "hint: use https://a.example, or reach it through `ssh -L 8420:127.0.0.1:8420`\n",
    ),
    "doctor {url}": (
        0,
        "{url}\n"
        "✓ connection      port {port} answers\n"
        "✓ challenge       401, and says where the metadata is\n"
        "✓ resource        {url}, scope mcp\n"
        "✓ issuer          {origin}\n"
        "✓ device login    offered, and the endpoint answers\n"
        "– browser login   not offered; the way in is a code\n"
        "– login           not logged in from here\n"
        "  hint: ostiary login {url}\n",
        "",
    ),
    "doctor 127.0.0.1:1": (
        1,
        "http://127.0.0.1:1/mcp\n"
        "✗ connection      nothing answers on port 1 of 127.0.0.1\n"
        "  hint: is it running? `ostiary serve` starts it\n",
        "",
    ),
}


def filled(template: str, fake: FakeServer) -> str:
    return template.format(
        url=fake.url,
        origin=fake.origin,
        port=fake.origin.rpartition(":")[2],
        pad=" " * (len(fake.url) - len("logged in at")),
    )


async def check(shell: Terminal, fake: FakeServer, line: str, expected: tuple[int, str, str]) -> None:
    done = await shell.run(*filled(line, fake).split(" "))
    code, stdout, stderr = expected
    assert (done.code, done.stdout, done.stderr) == (code, filled(stdout, fake), filled(stderr, fake)), line


async def test_a_login_shows_the_code_and_how_to_approve_it(shell: Terminal, fake: FakeServer) -> None:
    fake.pending = 1
    done = await shell.run("login", fake.url)
    assert (done.code, done.stdout, done.stderr) == (0, "", filled(SCREEN, fake))
    (asked,) = fake.requests("/device_authorization")
    assert asked.form["client_id"] == "ostiary-cli"
    assert asked.form["client_name"].startswith("ostiary ")
    assert asked.form["hostname"]


@pytest.mark.slow
async def test_what_somebody_logged_in_sees(logged_in: Terminal, fake: FakeServer) -> None:
    for line, expected in LOGGED_IN.items():
        await check(logged_in, fake, line, expected)
    assert fake.count["revoked"] == 1
    await check(logged_in, fake, *next(iter(LOGGED_OUT.items())))


@pytest.mark.slow
async def test_what_somebody_not_logged_in_sees(shell: Terminal, fake: FakeServer) -> None:
    for line, expected in LOGGED_OUT.items():
        await check(shell, fake, line, expected)
    assert not shell.config.exists()


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
