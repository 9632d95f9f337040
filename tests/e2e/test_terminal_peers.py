"""The terminal with servers of before: of the first transport, of the handshake era that ask on their streams, and with lines on a port."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import ROOT, SOURCE, Program, needed

PEER = ROOT / "tests" / "peers" / "python_sdk1_server.py"


@pytest.fixture
def program(home: Path) -> Program:
    return Program(command=SOURCE, home=home)


@pytest.mark.peers
@pytest.mark.parametrize("transport", ["sse", "streamable-http"])
def test_a_server_of_the_handshake_era_is_used_and_its_question_answered(
    program: Program, transport: str
) -> None:
    python = needed(ROOT / ".venvs" / "sdk1" / "bin" / "python", "scripts/peers")
    with program.starting(command=[str(python), str(PEER), transport]) as peer:
        url = peer.await_words(r"Listening on (\S+)").group(1)
        assert "book" in program.run("tools", url).stdout
        assert program.run("call", url, "echo", "text=hello").stdout == "hello\n"
        assert program.run("call", url, "book", "--answer", "name=Ada").stdout == "booked for Ada\n"
        unasked = program.run("call", url, "book", code=1)
        assert "not offered by this client" in unasked.stderr
        unanswered = program.run("call", url, "book", "--answer", "other=x", code=1)
        assert "“for whom?” is not answered: name" in unanswered.stderr


def test_lines_on_a_port_are_called_by_the_address_that_the_server_says(program: Program) -> None:
    with program.starting("serve", "--tcp", "0") as server:
        url = server.await_words(r"Listening on (tcp://\S+)").group(1)
        assert "echo" in program.run("tools", url).stdout
        assert program.run("call", url, "echo", "text=hello").stdout == "hello\n"
    gone = program.run("call", url, "echo", "text=hello", code=1)
    assert "cannot be reached: nobody answers there" in gone.stderr
    assert "tcp is not spoken here" in program.run("login", url, code=1).stderr
    assert "no host and port" in program.run("tools", "tcp://127.0.0.1", code=1).stderr
