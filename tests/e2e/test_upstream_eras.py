"""Servers of others that speak both eras of MCP, called by clients of either: what they come to directly, they come to by way of ours. With FastMCP and
both lines of the official Python SDK, over HTTP and as programs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from programs import ROOT, SOURCE, WAIT_SECONDS, Program, needed

pytestmark = [pytest.mark.peers, pytest.mark.slow]

PEERS = ROOT / "tests" / "peers"
QUESTIONS = ("ask", "think", "many")
ASKED = {"ask": "for Ada", "think": "a sample", "many": "12 answers, begun 1 time(s)"}
STATE = [("keep", {"word": "w"}), ("show", {})]
BOTH = "2026-07-28, 2025-11-25"


def python(environment: str) -> str:
    return str(needed(ROOT / ".venvs" / environment / "bin" / "python", "scripts/peers python"))


@pytest.fixture
def ostiary(home: Path) -> Program:
    return Program(command=SOURCE, home=home)


def settings(program: Program, *agent: str) -> None:
    lines = ["[[server]]", "[[server.agent]]", 'kind = "mcp"', 'trust = "always"', *agent]
    (program.home / "ostiary.toml").write_text("\n".join(lines) + "\n", "utf-8")


@contextmanager
def asking(program: Program, environment: str) -> Generator[str]:
    command = [python(environment), str(PEERS / "asking_server.py")]
    with program.starting("http", command=command) as background:
        yield background.await_words(r"Listening on (\S+)")[1]


def said(program: Program, url: str, mode: str, *calls: tuple[str, Any]) -> list[str]:
    done = subprocess.run(
        [python("peers"), str(PEERS / "python_sdk_gateway.py"), url, mode, json.dumps(calls)],
        env=program.environment(MCP_TOKEN=program.tokens()["access_token"]),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [each["text"] for each in json.loads(done.stdout)["results"]]


@pytest.mark.parametrize("environment", ["fastmcp", "peers", "sdk1"])
def test_a_client_of_the_handshake_era_is_asked_as_it_is_directly(ostiary: Program, environment: str) -> None:
    with asking(ostiary, environment) as url:
        settings(ostiary, f'url = "{url}"')
        with ostiary.serving() as server:
            ostiary.log_in(server)
            calls = [(name, {}) for name in QUESTIONS]
            assert said(ostiary, server.endpoint, "legacy", *calls) == list(ASKED.values())
            assert said(ostiary, url, "legacy", *calls[:2]) == [ASKED["ask"], ASKED["think"]]
            (shown,) = ostiary.at_machine("upstream", "list")
            spoken = "2025-11-25" if environment == "sdk1" else BOTH
            assert shown["revision"] == spoken
            assert f"MCP {spoken}" in ostiary.run("status", "--data-dir", str(ostiary.data_dir)).stdout


@pytest.mark.parametrize(("mode", "shown"), [("legacy", "w"), ("auto", "nothing")])
def test_a_state_is_kept_for_those_whom_fastmcp_keeps_one_for(
    ostiary: Program, mode: str, shown: str
) -> None:
    with asking(ostiary, "fastmcp") as url:
        settings(ostiary, f'url = "{url}"')
        with ostiary.serving() as server:
            ostiary.log_in(server)
            for endpoint in (url, server.endpoint):
                assert said(ostiary, endpoint, mode, *STATE) == ["kept", shown]


@pytest.mark.parametrize("environment", ["fastmcp", "peers"])
def test_a_program_of_each_caller_s_own_speaks_its_callers_era(ostiary: Program, environment: str) -> None:
    command = json.dumps([python(environment), str(PEERS / "asking_server.py"), "stdio"])
    settings(ostiary, f"command = {command}", 'share = "caller"')
    with ostiary.serving() as server:
        ostiary.log_in(server)
        calls = [(name, {}) for name in QUESTIONS]
        assert said(ostiary, server.endpoint, "legacy", *calls) == list(ASKED.values())
        if environment == "fastmcp":
            (refused,) = said(ostiary, server.endpoint, "auto", ("ask", {}))
            assert "unavailable on 2026-07-28" in refused
