"""The page for those who come from MA²D: its mock, its settings and its commands, and what the page says of the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from pages import DocumentPage, differs, in_a_shell
from programs import SOURCE, WAIT_SECONDS, Program, Server

PAGE = DocumentPage("from/ma2d.md")
DOCUMENTED = "http://127.0.0.1:8420"
TOKEN = "a-token-of-the-desk-0123456789"


def written(home: Path) -> Program:
    (home / "weather.json").write_text(PAGE.of("json")[0], "utf-8")
    (home / "token").write_text(TOKEN, "utf-8")
    (settings,) = PAGE.of("toml")
    (home / "ostiary.toml").write_text(settings.replace("env:DESK_TOKEN", f"file:{home / 'token'}"), "utf-8")
    return Program(command=SOURCE, home=home)


@pytest.fixture(scope="module")
def platform(shared_home: Path) -> Iterator[Server]:
    with written(shared_home).serving() as server:
        yield server


def test_the_weather_is_told_as_the_page_shows(platform: Server, program: Program) -> None:
    commands = PAGE.typed()
    assert len(commands) == 6
    for line, shown in commands:
        said = in_a_shell(
            line.replace(DOCUMENTED, platform.url).replace("curl ", "curl -sS --noproxy '*' "),
            program,
            DESK_TOKEN=TOKEN,
        )
        wrong = differs(json.loads(shown), json.loads(said))
        assert not wrong, f"{line}\n{wrong}\n{said}"


def test_what_is_not_there_is_not_declared_and_a_tool_that_is_switched_off_is_not_listed(
    platform: Server, home: Path
) -> None:
    listed = post(platform, "tools/list").json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["get_weather"]
    assert {"resources", "prompts"} <= capabilities(platform).keys()
    assert "completions" not in capabilities(platform)
    program = written(home)
    mock = json.loads((home / "weather.json").read_text("utf-8"))
    bare = {"name": "Bare", "tools": mock["tools"]}
    (home / "weather.json").write_text(json.dumps(bare), "utf-8")
    with program.serving() as server:
        assert capabilities(server).keys() & {"resources", "prompts", "completions"} == set()


def test_a_client_that_accepts_events_alone_gets_one(platform: Server) -> None:
    answered = post(platform, "tools/list", accept="text/event-stream")
    assert answered.headers["content-type"].startswith("text/event-stream")
    (event,) = [line for line in answered.text.splitlines() if line.startswith("data:")]
    assert json.loads(event.removeprefix("data:"))["result"]["tools"]


def test_the_server_with_a_token_is_shut_without_it(platform: Server) -> None:
    url = f"{platform.url}/api/platform/staff/mcp"
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for headers, status in (
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Bearer {TOKEN}"}, 200),
    ):
        assert (
            httpx2.post(url, json=message, headers=headers, trust_env=False, timeout=WAIT_SECONDS).status_code
            == status
        )
    known = httpx2.post(url, json=message, auth=("desk", TOKEN), trust_env=False, timeout=WAIT_SECONDS)
    assert known.status_code == 200
    assert TOKEN not in platform.said()


def post(server: Server, method: str, accept: str = "*/*", **params: object) -> httpx2.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    url = f"{server.url}/api/platform/weather/mcp"
    return httpx2.post(url, json=message, headers={"accept": accept}, trust_env=False, timeout=WAIT_SECONDS)


def capabilities(server: Server) -> dict[str, object]:
    return post(server, "initialize").json()["result"]["capabilities"]
