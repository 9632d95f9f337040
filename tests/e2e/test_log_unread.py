"""A log whose reader has stopped reading (Ctrl-S in a terminal, a pager, a stuck collector): callers do not notice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from programs import SOURCE, WAIT_SECONDS, Program

from tests.call_counts import NodeConversation, tool_call

CALLS = 2000  # their lines are several times what a pipe holds
PATIENT = ("--drain-seconds", "600")  # far longer than anybody waits here


@contextmanager
def unread(home: Path, *options: str) -> Generator[subprocess.Popen[bytes]]:
    """The program, with a log that goes into a pipe which nobody reads."""
    reading, writing = os.pipe()
    command: Sequence[str] = (*SOURCE, "serve", "--auth", "none", "--log-level", "debug", *options)
    process = subprocess.Popen(
        command, cwd=home, env=Program(command=SOURCE, home=home).environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writing,
    )  # fmt: skip
    os.close(writing)
    try:
        yield process
    finally:
        os.close(reading)
        process.kill()
        process.communicate()


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_log_that_nobody_reads_holds_up_no_call_and_no_stop(home: Path, style: str) -> None:
    options = ("--port", "0", "--data-dir", str(home / "data"), "--log-format", style)
    with unread(home, *options, *PATIENT) as process:
        assert process.stdout is not None
        found = re.search(rb":(\d+)", process.stdout.readline())
        assert found is not None
        port = int(found[1])
        request = tool_call(port, "echo", {"text": "hello"})
        with closing(NodeConversation(port)) as talk:
            for _ in range(CALLS):
                assert talk.exchange(request)[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


def test_on_pipes_neither(home: Path) -> None:
    with unread(home, "--stdio", *PATIENT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(CALLS):
            meta = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            params = {"name": "echo", "arguments": {"text": "hello"}, "_meta": meta}
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == number
        process.stdin.close()
        process.stdin = None
        assert process.wait(WAIT_SECONDS) == 0
