"""Keys for machines against the real server: each way of showing one, what each may see, and how it ends."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.programs import SOURCE, WAIT_SECONDS, House, Program, Server, claim_in_browser, until

STATIC = "a-token-that-its-owner-made-up-0123456789"
SETTINGS = """
[[scope]]
name = "billing:read"
description = "See the bills"

[[server]]
name = "main"
tokens = [{ name = "ci", token = "file:%(static)s", scope = "mcp:tools", tools = "readonly" }]
[server.groups]
time = ["clo*"]
[server.tools.countdown]
tier = "write"
[[server.agent]]
kind = "demo"

[[server]]
name = "open"
auth = "none"
[[server.agent]]
kind = "demo"

[[server]]
name = "basic"
accepts = ["basic"]
[[server.agent]]
kind = "demo"

[[server]]
name = "slow"
[[server.agent]]
kind = "python"
file = "agent.py"
python = "%(python)s"
"""
AGENT = """
import asyncio
from pathlib import Path
from ostiary import Context, tool

@tool(task="required")
async def wait(ctx: Context, note: str) -> str:
    said = Path(__file__).parent / "notes" / note
    said.write_text("begun")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        said.write_text("stopped")
        raise
"""


@contextmanager
def serving(program: Program) -> Generator[House]:
    static = program.home / "static"
    static.write_text(STATIC + "\n", "utf-8")
    (program.home / "agent.py").write_text(AGENT, "utf-8")
    (program.home / "notes").mkdir()
    settings = program.home / "ostiary.toml"
    settings.write_text(SETTINGS % {"static": static, "python": sys.executable}, "utf-8")
    with program.serving("--config", str(settings)) as server:
        yield House(program=program, server=server)


@pytest.fixture(scope="module")
def house(shared_home: Path) -> Generator[House]:
    with serving(Program(command=SOURCE, home=shared_home)) as house:
        yield house


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def basic(name: str, text: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{text}".encode()).decode()}


def post(
    server: Server, method: str, headers: dict[str, str], path: str = "/mcp", **params: Any
) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    accepts = {"Accept": "application/json, text/event-stream"}
    return httpx2.post(
        server.url + path, json=body, headers={**accepts, **headers}, trust_env=False, timeout=WAIT_SECONDS
    )


def tools(server: Server, headers: dict[str, str], path: str = "/mcp") -> list[str]:
    answer = post(server, "tools/list", headers, path)
    assert answer.status_code == 200, answer.text
    return sorted(tool["name"] for tool in answer.json()["result"]["tools"])


def says(server: Server, headers: dict[str, str], path: str = "/mcp") -> str:
    answer = post(server, "tools/call", headers, path, name="echo", arguments={"text": "hello"})
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["content"][0]["text"]


def test_each_way_of_showing_a_key_comes_in_and_sees_what_it_may(house: House) -> None:
    program, server = house.program, house.server
    made = program.at_machine("api-keys", "create", "ci", "--scope", "mcp:tools")
    key = made["key"]
    assert re.fullmatch(r"ost_[0-9A-Za-z]{49}", key)
    everything = ["clock", "countdown", "echo"]
    for shown in (
        bearer(key),
        {"X-API-Key": key},
        basic(made["id"], key),
        {**bearer(key), "X-API-Key": key},
    ):
        assert tools(server, shown) == everything
        assert says(server, shown) == "hello"
    for shown in (bearer(STATIC), {"X-API-Key": STATIC}, basic("ci", STATIC)):
        assert tools(server, shown) == ["clock", "echo"]  # its owner said: readonly
        assert says(server, shown) == "hello"
        hidden = post(server, "tools/call", shown, name="countdown", arguments={"from": 1, "seconds": 0})
        assert hidden.json()["error"]["code"] == -32602
    assert tools(server, {}, "/open/mcp") == everything
    assert tools(server, basic(made["id"], key), "/basic/mcp") == everything
    (listed,) = (each for each in program.at_machine("api-keys", "list") if each["id"] == made["id"])
    assert (listed["hint"], "key" in listed) == (key[-4:], False)
    assert key not in server.said() and STATIC not in server.said()


def test_what_is_no_key_for_this_server_is_refused_and_told_how_to_do_better(house: House) -> None:
    program, server = house.program, house.server
    here = program.at_machine("api-keys", "create", "here", "--server", "main")
    elsewhere = program.at_machine("api-keys", "create", "elsewhere", "--server", "basic")
    ended = program.at_machine("api-keys", "create", "ended")
    assert tools(server, bearer(ended["key"]))
    program.at_machine("api-keys", "revoke", ended["id"])
    key = here["key"]
    wrong = [
        {},
        bearer(key[:-1] + ("0" if key[-1] != "0" else "1")),
        bearer("ost_" + "A" * 49),
        bearer(elsewhere["key"]),
        bearer(ended["key"]),
        {"X-API-Key": STATIC + "x"},
        basic("somebody", key),
        basic("another", STATIC),
        basic(here["id"], ""),
        {**bearer(key), "X-API-Key": STATIC},
        {**bearer("x"), "X-API-Key": key},
        {"X-API-Key": ""},
        {"Authorization": "Basic !!!"},
    ]
    for shown in wrong:
        refused = post(server, "tools/list", shown)
        assert refused.status_code == 401, shown
        challenge = refused.headers["www-authenticate"]
        assert challenge.startswith("Bearer resource_metadata=")
        assert ('error="invalid_token"' in challenge) == bool(shown)
    # A server for Basic alone has no login to send anybody to.
    refused = post(server, "tools/list", bearer(key), "/basic/mcp")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (
        401,
        'Basic realm="basic", charset="UTF-8"',
    )
    for name in ("open", "basic"):
        metadata = f"{server.url}/.well-known/oauth-protected-resource/{name}/mcp"
        assert httpx2.get(metadata, trust_env=False, timeout=60).status_code == 404
    assert key not in server.said() and STATIC not in server.said()


def test_a_request_narrows_its_tools_by_header_or_address_and_never_widens(house: House) -> None:
    program, server = house.program, house.server
    key = program.at_machine("api-keys", "create", "all")["key"]
    few = program.at_machine("api-keys", "create", "few", "--tools", "time,echo")["key"]
    choose = {"X-Ostiary-Tools": "readonly"}
    assert tools(server, {**bearer(key), **choose}) == ["clock", "echo"]
    assert tools(server, bearer(key), "/mcp?tools=time") == ["clock"]
    assert tools(server, {**bearer(key), **choose}, "/mcp?tools=-clock") == ["echo"]
    assert tools(server, {**bearer(few), "X-Ostiary-Tools": "all"}) == ["clock", "echo"]
    assert tools(server, {**bearer(few), "X-Ostiary-Tools": "countdown,clock"}) == ["clock"]
    assert tools(server, {"X-Ostiary-Tools": "none,echo"}, "/open/mcp") == ["echo"]
    call = post(server, "tools/call", {**bearer(key), **choose}, name="countdown", arguments={"from": 1})
    assert call.json()["error"]["code"] == -32602
    bad = post(server, "tools/list", {**bearer(key), "X-Ostiary-Tools": "a b"})
    assert bad.status_code == 400 and "separated by commas" in bad.json()["error_description"]
    asked = httpx2.options(
        server.endpoint,
        headers={"Origin": server.url, "Access-Control-Request-Headers": "x-api-key"},
        trust_env=False,
        timeout=60,
    )
    assert "X-API-Key" in asked.headers["access-control-allow-headers"]


def test_who_shows_a_key_can_ask_who_they_are(house: House) -> None:
    program, server = house.program, house.server
    made = program.at_machine("api-keys", "create", "me", "--scope", "mcp:tools:read", "--expires", "never")
    answer = post(server, "resources/read", bearer(made["key"]), uri="ostiary://me")
    me = json.loads(answer.json()["result"]["contents"][0]["text"])
    (scope,) = me.pop("scopes")
    assert scope["name"] == "mcp:tools:read" and scope["words"]
    assert made["expires_at"] is None
    short = program.at_machine("api-keys", "create", "short", "--expires", "12h")
    assert short["expires_at"] - short["created_at"] == 12 * 3_600_000
    assert me == {
        "subject": made["id"],
        "kind": "api_key",
        "credential": {"kind": "api-key", "how": None, "id": made["id"], "name": "me"},
        "user": {"name": "owner", "role": "owner"},
        "client": None,
        "server": "main",
        "tools": "",
        "expires_at": None,
        "called_at": None,  # that of logins
        "plan": None,
        "quota": None,
        "may": None,
    }
    listed = post(server, "resources/list", bearer(made["key"])).json()["result"]["resources"]
    assert [each["uri"] for each in listed] == ["ostiary://me", "ostiary://usage"]
    assert "result" in post(server, "tools/call", bearer(made["key"]), name="clock", arguments={}).json()

    def used() -> Any:
        told = post(server, "resources/read", bearer(made["key"]), uri="ostiary://usage").json()
        usage = json.loads(told["result"]["contents"][0]["text"])
        return usage if usage["calls"] else None

    usage = until("the call to be written down", used)
    assert [(tool["name"], tool["calls"], tool["failed"]) for tool in usage["tools"]] == [("clock", 1, 0)]
    program.log_in(server)
    login = program.tokens()["access_token"]
    mine = json.loads(
        post(server, "resources/read", bearer(login), uri="ostiary://me").json()["result"]["contents"][0][
            "text"
        ]
    )
    assert (mine["kind"], mine["credential"]["kind"], mine["credential"]["how"]) == (
        "user",
        "login",
        "device",
    )
    assert mine["client"]["name"] and mine["user"]["role"] == "owner" and mine["expires_at"] > 0
    nobody = post(server, "resources/list", {}, "/open/mcp").json()["result"]["resources"]
    assert nobody == []


@pytest.mark.parametrize(("how", "user"), [("revoked", "bob"), ("disabled", "eve")])
def test_what_runs_for_a_key_stops_when_the_key_or_its_user_is_shut_out(
    house: House, how: str, user: str
) -> None:
    program, server = house.program, house.server
    notes = program.home / "notes" / how

    def said() -> str:
        return notes.read_text("utf-8") if notes.exists() else ""

    invitation = program.at_machine("invite", user)["url"]
    assert claim_in_browser(invitation, "a passphrase of four words").status_code == 200
    made = program.at_machine("api-keys", "create", how, "--user", user, "--scope", "mcp:tools")
    era = {**bearer(made["key"]), "MCP-Protocol-Version": "2025-11-25"}
    begun = post(server, "tools/call", era, "/slow/mcp", name="wait", arguments={"note": how}, task={})
    task_id = begun.json()["result"]["task"]["taskId"]
    until("the tool to begin", lambda: said() == "begun" or None)
    if how == "revoked":
        program.at_machine("api-keys", "revoke", made["id"])
    else:
        program.at_machine("users", "disable", user)
    until("the tool to be stopped", lambda: said() == "stopped" or None)
    assert post(server, "tasks/get", era, "/slow/mcp", taskId=task_id).status_code == 401


def test_a_ceiling_that_is_lowered_counts_in_the_session_that_is_open(program: Program) -> None:
    with serving(program) as house:
        server = house.server
        program.log_in(server)
        login, made = program.tokens()["access_token"], program.at_machine("api-keys", "create", "ci")
        for token in (login, made["key"]):
            assert tools(server, bearer(token)) == ["clock", "countdown", "echo"]
        program.at_machine("users", "set", "owner", "--scope", "mcp:tools:read")
        for token in (login, made["key"]):
            assert tools(server, bearer(token)) == ["clock", "echo"]
            hidden = post(server, "tools/call", bearer(token), name="countdown", arguments={"from": 1})
            assert hidden.json()["error"]["code"] == -32602


def test_a_session_of_a_key_ends_for_it_when_the_key_is_revoked(house: House) -> None:
    program, server = house.program, house.server
    made = program.at_machine("api-keys", "create", "streams")
    hello: dict[str, Any] = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    begun = post(server, "initialize", bearer(made["key"]), **hello)
    session = {"Mcp-Session-Id": begun.headers["mcp-session-id"]}
    assert tools(server, {**bearer(made["key"]), **session})
    program.at_machine("api-keys", "revoke", made["id"])
    assert post(server, "tools/list", {**bearer(made["key"]), **session}).status_code == 401


def test_use_and_misuse_are_written_down_and_no_key_with_them(program: Program) -> None:
    with serving(program) as house:
        server = house.server
        made = program.at_machine("api-keys", "create", "watched")
        assert tools(server, bearer(made["key"]))
        program.at_machine("api-keys", "revoke", made["id"])
        for _ in range(3):
            assert post(server, "tools/list", bearer(made["key"])).status_code == 401
        server.end()
        assert made["key"] not in server.said()
    (database,) = program.data_dir.glob("*.db")
    with sqlite3.connect(database) as opened:
        row = opened.execute("SELECT last_used_at IS NOT NULL, last_used_ip FROM api_keys").fetchone()
        events = opened.execute(
            "SELECT event, outcome, reason FROM audit WHERE event LIKE 'api_key.%' ORDER BY seq"
        ).fetchall()
        everything = "\n".join(opened.iterdump())
    assert row == (1, "127.0.0.1")
    assert events == [
        ("api_key.created", "ok", ""),
        ("api_key.revoked", "ok", ""),
        ("api_key.used", "refused", "revoked"),
    ]
    assert made["key"] not in everything
