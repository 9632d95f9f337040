"""`ostiary approve` as its owner sees it: the facts first, then a question, whose answer is no unless it is yes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from handmade import Handmade
from programs import SOURCE, WAIT_SECONDS, Program

pytestmark = pytest.mark.slow


def test_approving_in_a_terminal_shows_every_fact_and_nothing_happens_without_a_yes(home: Path) -> None:
    program = Program(command=SOURCE, home=home)
    with program.serving() as server:
        client = Handmade(server.url)
        try:
            codes = client.ask_for_device(client_name="Lamp\x1b[2J", hostname="rowan.lan", scope="mcp:tools")
            approve = ("approve", codes["user_code"], "--data-dir", str(program.data_dir))
            shown = program.run(*approve, code=130)  # nobody is at this terminal, which is not a yes
            for fact in (
                "ostiary-cli",
                "unverified",
                "Lamp",
                "rowan.lan",
                "127.0.0.1",
                "python-httpx2",
                "mcp:tools",
                server.url,
                "seconds ago",
                "runs out in",
                "List and call the agent's tools",
                "up to 30 days, as owner",
                "let it in [y/N]",
            ):
                assert fact in shown.stdout + shown.stderr, fact
            assert "\x1b" not in shown.stdout + shown.stderr
            enter = subprocess.run(
                (*program.command, *approve),
                env=program.environment(),
                input="\n",
                capture_output=True,
                text=True,
                timeout=WAIT_SECONDS,
                check=False,
            )
            assert enter.returncode == 1
            assert "nothing was decided" in enter.stderr
            assert client.poll(codes["device_code"]).json()["error"] == "authorization_pending"
            program.at_machine("approve", codes["user_code"], "--yes")
            assert client.poll(codes["device_code"]).status_code == 200
        finally:
            client.close()
