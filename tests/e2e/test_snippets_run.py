"""Programs of `ostiary snippets`, run as they are printed: against a server that wants a login, with curl and the official SDKs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from programs import ROOT, SOURCE, WAIT_SECONDS, Program, Server, needed

pytestmark = pytest.mark.slow

HOSTILE = "'; touch owned; \"$(touch owned)`touch owned`\\ ${x} */ \u2028"


@pytest.fixture
def logged_in(home: Path) -> Iterator[tuple[Program, Server]]:
    settings = home / "ostiary.toml"
    settings.write_text(
        f'[[server]]\n[server.tools.echo]\nexample = {{ text = {json.dumps(HOSTILE)} }}\n[[server.agent]]\nkind = "demo"\n'
    )
    program = Program(command=SOURCE, home=home)
    with program.serving("--config", str(settings)) as server:
        program.log_in(server)
        yield program, server


def run(program: Program, server: Server, language: str, command: Sequence[str], name: str) -> str:
    """What it prints; nothing of its arguments was run."""
    snippet = program.run("snippets", language, "echo", "--data-dir", str(program.data_dir))
    token = program.run("token", server.endpoint).stdout.strip()
    assert token not in snippet.stdout
    assert f"export OSTIARY_TOKEN=$(ostiary token {server.endpoint})" in snippet.stderr
    file = program.home / name
    file.write_text(snippet.stdout, "utf-8")
    done = subprocess.run(
        (*command, str(file)),
        env=program.environment(OSTIARY_TOKEN=token, NO_PROXY="127.0.0.1"),
        cwd=program.home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (program.home / "owned").exists()
    return done.stdout


def test_curl_calls_with_a_login_without_having_its_token_in_the_program(
    logged_in: tuple[Program, Server],
) -> None:
    program, server = logged_in
    answer = json.loads(run(program, server, "curl", ["sh", "-eu"], "snippet.sh"))
    assert answer["result"]["content"] == [{"type": "text", "text": HOSTILE}]


@pytest.mark.peers
def test_the_python_program_calls_with_a_login(logged_in: tuple[Program, Server]) -> None:
    python = needed(ROOT / ".venvs" / "peers" / "bin" / "python", "scripts/peers")
    assert run(*logged_in, "python", [str(python)], "snippet.py").rstrip("\n") == HOSTILE


@pytest.mark.peers
def test_the_typescript_program_calls_with_a_login(logged_in: tuple[Program, Server]) -> None:
    packages = needed(ROOT / "tests" / "peers" / "node_modules", "scripts/peers")
    (logged_in[0].home / "node_modules").symlink_to(packages)
    assert run(*logged_in, "ts", ["node"], "snippet.mjs").rstrip("\n") == HOSTILE
