"""The official Python SDK as a client, with a token from `ostiary token`, in both eras."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import ROOT, SOURCE, WAIT_SECONDS, Program, Server, needed

pytestmark = [pytest.mark.peers, pytest.mark.slow]

CLIENT = ROOT / "tests" / "peers" / "python_sdk_client.py"


@pytest.fixture
def logged_in(home: Path) -> Iterator[tuple[Program, Server]]:
    program = Program(command=SOURCE, home=home)
    with program.serving() as server:
        program.log_in(server)
        yield program, server


def test_the_python_sdk_lists_and_calls_in_both_eras(logged_in: tuple[Program, Server]) -> None:
    program, server = logged_in
    token = program.run("token", server.endpoint).stdout.strip()
    for mode, revision in (("auto", "2026-07-28"), ("2026-07-28", "2026-07-28"), ("legacy", "2025-11-25")):
        answer = json.loads(talk(program, server.endpoint, mode, token).stdout)
        assert answer["revision"] == revision
        assert "echo" in answer["tools"]
        assert answer["text"] == ["hello from the SDK"]
        assert answer["is_error"] is False


def test_the_python_sdk_is_kept_out_with_a_token_that_is_not_ours(logged_in: tuple[Program, Server]) -> None:
    program, server = logged_in
    refused = talk(program, server.endpoint, "auto", "not-a-token")
    assert refused.returncode != 0
    assert refused.stdout == ""
    assert "Server returned an error response" in refused.stderr  # what the SDK makes of a 401


def talk(program: Program, endpoint: str, mode: str, token: str) -> subprocess.CompletedProcess[str]:
    python = needed(ROOT / ".venvs" / "peers" / "bin" / "python", "scripts/peers")
    return subprocess.run(
        (str(python), str(CLIENT), endpoint, mode),
        env=program.environment(MCP_TOKEN=token),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
