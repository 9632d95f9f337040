"""`ostiary approve` as its owner sees it: the facts first, then a question, whose answer is no unless it is yes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from handmade import Handmade
from programs import SOURCE, Program
from test_readme import terminal

pytestmark = pytest.mark.slow


def test_approving_in_a_terminal_shows_every_fact_and_nothing_happens_without_a_yes(home: Path) -> None:
    program = Program(command=SOURCE, home=home)
    with program.serving() as server:
        client = Handmade(server.url)
        try:
            codes = client.ask_for_device(client_name="Lamp\x1b[2J", hostname="rowan.lan", scope="mcp:tools")
            line = shlex.join(
                (*program.command, "approve", codes["user_code"], "--data-dir", str(program.data_dir))
            )
            for typed in ("\n", "n\n", "perhaps\nn\n"):
                with terminal(line, program, 0) as owner:
                    owner.await_words(re.escape("let it in [y/N]:"))
                    owner.type(typed)
                    owner.await_words("nothing was decided")
                    assert owner.wait() == 1
                for fact in (
                    "ostiary-cli",
                    "unverified",
                    "Lamp",
                    "rowan.lan",
                    "127.0.0.1",
                    "python-httpx2",
                    "mcp:tools",
                    "the agent's tools",
                    "up to 30 days, as owner",
                    server.url,
                    " ago, ",
                    "runs out in",
                ):
                    assert fact in owner.seen(), fact
                assert "\x1b[2J" not in owner.seen()
            # Where nobody can be asked, the answer is no.
            refused = program.run("approve", codes["user_code"], "--data-dir", str(program.data_dir), code=2)
            assert "hint: " in refused.stderr and "--yes" in refused.stderr
            assert client.poll(codes["device_code"]).json()["error"] == "authorization_pending"
            program.at_machine("approve", codes["user_code"], "--yes")
            assert client.poll(codes["device_code"]).status_code == 200
        finally:
            client.close()
