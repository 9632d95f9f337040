"""Tools that need no login, of a running server that asks for one: what whoever shows nothing gets, and that it is nothing more."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_calls import MODERN
from programs import SOURCE, WAIT_SECONDS, Program, Server

pytestmark = pytest.mark.slow

AGENT = """
from ostiary import prompt, resource, tool

READS = {"readOnlyHint": True}

@tool(annotations=READS)
def search(word: str) -> str:
    "Finds a word."
    return f"found {word}"

@tool(annotations=READS)
def secret_plans() -> str:
    "The secret plans."
    return "invade"

@tool
def feedback(text: str) -> str:
    "Writes to the owner."
    return "thanks"

@resource("data://secret")
def secret() -> str:
    return "a secret"

@prompt
def persuade() -> str:
    return "please"
"""
SETTINGS = """
[limits]
loopback = true
address = "{rate}"
[[server]]
name = "main"
instructions = "The password is swordfish."
anonymous_tools = [{tools}]
tokens = [{{ name = "ci", token = "file:{home}/token", scope = "mcp" }}]
compat = {{ sse = true }}
[[server.agent]]
kind = "python"
file = "agent.py"
"""
TOKEN = "t" * 30
SECRETS = ("secret", "swordfish", "persuade", "invade")


class Door:
    def __init__(self, program: Program, server: Server) -> None:
        self.program = program
        self.server = server

    def send(self, method: str, path: str, **more: Any) -> httpx2.Response:
        with httpx2.Client(trust_env=False, timeout=WAIT_SECONDS) as web:
            return web.request(method, f"{self.server.url}{path}", **more)

    def ask(self, method: str, params: Any = None, *, modern: bool = True, **headers: str) -> httpx2.Response:
        params = dict(params or {})
        sent = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if modern:
            sent |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            name = params.get("uri", params.get("name"))
            sent |= {"Mcp-Name": name} if isinstance(name, str) else {}
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self.send("POST", "/mcp", headers=sent, content=json.dumps(message))

    def call(self, tool: str, arguments: Any = None, **more: Any) -> httpx2.Response:
        return self.ask("tools/call", {"name": tool, "arguments": arguments or {}}, **more)


def write(home: Path, *, tools: str = '"search", "feedback"', rate: str = "600/min") -> None:
    settings = SETTINGS.format(home=home, tools=tools, rate=rate)
    (home / "ostiary.toml").write_text(settings, "utf-8")


def house(home: Path, **how: str) -> Program:
    (home / "agent.py").write_text(AGENT, "utf-8")
    (home / "token").write_text(TOKEN, "ascii")
    (home / "token").chmod(0o600)
    write(home, **how)
    return Program(command=SOURCE, home=home)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Generator[Door]:
    program = house(tmp_path_factory.mktemp("house"))
    with program.serving() as server:
        yield Door(program, server)


def asks_login(answer: httpx2.Response) -> bool:
    """And says nothing of what is behind it."""
    assert answer.status_code == 401, answer.text
    assert not any(word in answer.text for word in SECRETS)
    return "resource_metadata=" in answer.headers["www-authenticate"]


@pytest.mark.parametrize("modern", [True, False])
def test_whoever_shows_nothing_sees_and_calls_these_tools_alone(door: Door, modern: bool) -> None:
    listed = door.ask("tools/list", modern=modern)
    assert [tool["name"] for tool in listed.json()["result"]["tools"]] == ["search", "feedback"]
    assert "secret" not in listed.text
    found = door.call("search", {"word": "ostium"}, modern=modern)
    assert found.json()["result"]["content"][0]["text"] == "found ostium"
    assert door.call("feedback", {"text": "nice"}, modern=modern).status_code == 200


def test_the_first_words_say_nothing_of_the_rest(door: Door) -> None:
    handshake = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    begun = door.ask("initialize", handshake, modern=False)
    found = door.ask("server/discover")
    for answer in (begun, found):
        assert answer.status_code == 200
        assert not any(word in answer.text for word in SECRETS)
        assert not {"resources", "prompts", "completions"} & set(answer.json()["result"]["capabilities"])
    session = begun.headers["mcp-session-id"]
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    headers = {
        "Mcp-Session-Id": session,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    assert door.send("POST", "/mcp", headers=headers, content=json.dumps(note)).status_code == 202
    assert door.call("search", {"word": "a"}, modern=False, mcp_session_id=session).status_code == 200
    assert asks_login(door.call("secret_plans", modern=False, mcp_session_id=session))
    assert asks_login(door.send("GET", "/mcp", headers=headers))
    assert door.send("DELETE", "/mcp", headers=headers).status_code in (200, 204)


@pytest.mark.parametrize("modern", [True, False])
def test_everything_else_is_asked_to_log_in_whether_it_exists_or_not(door: Door, modern: bool) -> None:
    told = [
        door.call(name, modern=modern) for name in ("secret_plans", "no_such_tool", "SEARCH", "search_", "")
    ]
    asked = [
        door.ask(method, params, modern=modern)
        for method, params in (
            ("resources/list", {}),
            ("resources/templates/list", {}),
            ("resources/read", {"uri": "data://secret"}),
            ("resources/read", {"uri": "ostiary://me"}),
            ("prompts/list", {}),
            ("prompts/get", {"name": "persuade"}),
            ("tasks/list", {}),
            ("tools/call", {"name": ["search"]}),
            ("tools/call", {}),
        )
    ]
    for answer in (*told, *asked):
        # What cannot be read, or is of another era, is refused like that before anybody looks who asks.
        assert answer.status_code in (400, 404) or asks_login(answer), answer.text
        assert not any(word in answer.text for word in SECRETS)
    assert all(asks_login(answer) for answer in told[:2])
    assert told[0].text == told[1].text
    assert asks_login(asked[0]) and asks_login(asked[2])


def test_an_array_or_the_older_transport_is_no_way_around(door: Door) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "secret_plans", "arguments": {}},
    }
    assert asks_login(door.send("POST", "/mcp", headers=headers, content=json.dumps([call])))
    assert asks_login(door.send("GET", "/sse", headers={"Accept": "text/event-stream"}))
    assert asks_login(door.send("POST", "/messages?sessionId=x", headers=headers, content=json.dumps(call)))


def test_over_plain_http_it_is_the_same(door: Door) -> None:
    answer = door.send("POST", "/main/call/search", json={"word": "ostium"})
    assert (answer.status_code, answer.json()["content"][0]["text"]) == (200, "found ostium")
    for name in ("secret_plans", "no_such_tool"):
        assert asks_login(door.send("POST", f"/main/call/{name}", json={}))


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer nonsense"},
        {"authorization": "Basic bm9ib2R5Om5vdGhpbmc="},
        {"authorization": "Digest x"},
        {"authorization": ""},
        {"x_api_key": "nonsense"},
        {"dpop": "x.y.z"},
    ],
    ids=["bearer", "basic", "unknown", "empty", "key", "proof"],
)
def test_whoever_shows_something_that_is_none_is_no_visitor(door: Door, headers: dict[str, Any]) -> None:
    assert asks_login(door.call("search", {"word": "a"}, **headers))
    assert asks_login(door.ask("tools/list", **headers))


def test_whoever_logs_in_has_what_they_always_had(door: Door) -> None:
    listed = door.ask("tools/list", authorization=f"Bearer {TOKEN}").json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["search", "secret_plans", "feedback"]
    assert "swordfish" in door.ask("server/discover", authorization=f"Bearer {TOKEN}").text


def test_a_selection_makes_less_of_it_and_never_more(door: Door) -> None:
    for selection, names in (("all", ["search", "feedback"]), ("readonly", ["search"]), ("secret_plans", [])):
        listed = door.ask("tools/list", x_ostiary_tools=selection).json()["result"]["tools"]
        assert [tool["name"] for tool in listed] == names
    assert asks_login(door.call("search", {"word": "a"}, x_ostiary_tools="feedback"))


def test_the_login_is_still_found_and_the_list_is_shown_to_nobody_in_particular(door: Door) -> None:
    shown = door.program.ask("tools", door.server.endpoint)["tools"]
    assert [tool["name"] for tool in shown] == ["search", "feedback"]
    steps = door.program.ask("doctor", door.server.endpoint)["steps"]
    assert {step["step"]: step["state"] for step in steps}["challenge"] == "ok"


def test_visitors_of_one_address_are_counted(tmp_path: Path) -> None:
    with (program := house(tmp_path, rate="12/min, 3 at once")).serving() as server:
        door = Door(program, server)
        found = [door.call("search", {"word": "a"}).status_code for _ in range(8)]
        assert found[:3] == [200] * 3 and found[-1] == 429


def test_what_needs_no_login_changes_with_the_settings(tmp_path: Path) -> None:
    with (program := house(tmp_path, tools="")).serving() as server:
        door = Door(program, server)
        assert asks_login(door.call("search", {"word": "a"}))
        assert asks_login(door.ask("tools/list"))
        write(tmp_path, tools='"se*"')
        server.await_words("settings.reloaded")
        assert door.call("search", {"word": "a"}).status_code == 200
        assert door.call("secret_plans").status_code == 200, "it begins so, and only reads"
        assert asks_login(door.call("feedback", {"text": "a"}))
        write(tmp_path, tools="")
        server.await_words("(?s)settings.reloaded.*settings.reloaded")
        assert asks_login(door.call("search", {"word": "a"}))


def test_a_tool_that_there_is_not_is_a_mistake_of_the_settings(tmp_path: Path) -> None:
    program = house(tmp_path, tools='"serach"')
    assert "anonymous_tools names serach, which no agent offers" in program.run("serve", code=1).stderr


def test_where_others_come_in_to_pay_both_get_what_is_theirs(tmp_path: Path) -> None:
    program = house(tmp_path, tools='"search", "secret_plans"')
    settings = (tmp_path / "ostiary.toml").read_text("utf-8")
    money = """
[payments]
pay_to = "0x52908400098527886E0F7030069857D2E4169EE7"
networks = ["base-sepolia"]
[[payments.facilitator]]
url = "http://127.0.0.1:8402"
"""
    priced = 'anonymous_pay = true\ntools = { secret_plans = { price = "$0.01" } }\ntokens ='
    (tmp_path / "ostiary.toml").write_text(money + settings.replace("tokens =", priced), "utf-8")
    with program.serving() as server:
        door = Door(program, server)

        def post(tool: str, **headers: str) -> httpx2.Response:
            body = {"word": "ostium"} if tool == "search" else {}
            return door.send("POST", f"/main/call/{tool}", json=body, headers=headers)

        assert post("search").json()["content"][0]["text"] == "found ostium"
        assert post("secret_plans").status_code == 402, "what has a price is sold, to whomever"
        assert asks_login(post("feedback"))
        assert post("search", authorization="Bearer nonsense").status_code == 401
        listed = door.ask("tools/list").json()["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["search"]
        listed = door.ask("tools/list", payment_signature="e30=").json()["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["secret_plans"]
